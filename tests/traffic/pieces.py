"""Cut what reaches a file at a time: slices of its content that end anywhere, and gzip members that come late.

The functions are pure, given a `Random`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from random import Random

SLICE_MAX_BYTES = 200 * 2**10
BLOCK_BYTES = 4096

_MAGIC = b"\x1f\x8b\x08\x00"


def slices(random: Random, data: bytes, first: int = 0) -> Iterator[bytes]:
    """Yield slices that together are `data`. With `first`, the first slice has this size."""
    if first:
        yield data[:first]
    at = first
    while at < len(data):
        end = min(_cut(random, data, at), at + SLICE_MAX_BYTES, len(data))
        yield data[at:end]
        at = end


def _cut(random: Random, data: bytes, at: int) -> int:
    """Return where a slice that begins at `at` ends. It is never empty, and may end beyond the data."""
    kind = random.randrange(8)
    if kind == 0:
        return at + 1
    if kind == 1:
        return at + random.randrange(1, 40)
    if kind == 2:  # The slice ends on a block's boundary, where a reader sees a large write stop.
        return (at // BLOCK_BYTES + random.randint(1, 16)) * BLOCK_BYTES
    near = at + random.randrange(1, 2000)
    if kind == 3:  # The slice ends within a line.
        return max(data.find(b"\n", near), near)
    if kind == 4:  # The slice ends within a character.
        inside = (i for i in range(near, min(near + 2000, len(data))) if data[i] & 0xC0 == 0x80)
        return next(inside, near)
    return at + int(min(SLICE_MAX_BYTES, len(data) - at) ** random.random())


def members(random: Random, data: bytes, *, torn: bool) -> Iterator[bytes]:
    """Yield data as gzip members of whole lines, in the pieces that reach the disk: bytes of a member after its last
    0x0a come with the next piece.

    With `torn`, those of the last member never come.
    """
    lines = data.splitlines(keepends=True)
    held = b""
    at = 0
    while at < len(lines):
        end = at + random.randint(1, 200)
        member = compressed(b"".join(lines[at:end]))
        held += member
        at = end
        cut = held.rfind(b"\n") + 1
        if torn and at >= len(lines):
            cut = min(cut or len(held), len(held) - len(member) // 3)
        if cut:
            yield held[:cut]
        held = held[cut:]
    if held and not torn:
        yield held


def compressed(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=31)
    return member.compress(data) + member.flush()


def inflated(data: bytes) -> bytes:
    """Return the content of gzip members.

    If a member ends too early, return what it has: the last may be incomplete, and another may be cut off by the member
    after it.
    """
    plain = b""
    while data:
        member = zlib.decompressobj(wbits=31)
        following = data.find(_MAGIC, 1)
        try:
            content = member.decompress(data)
        except zlib.error:
            if following < 0:
                raise
        if not member.eof and following > 0:
            # This member was cut off, although what follows may be decompressed as if it were its end.
            content = zlib.decompressobj(wbits=31).decompress(data[:following])
            data = data[following:]
        else:
            data = member.unused_data
        plain += content
    return plain
