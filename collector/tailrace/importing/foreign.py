"""Contents that no decoder reads, recognised by their first bytes, and what makes traces of them.

Such a file is left out as a whole, also where its format is given: pieces of it are no records, so nothing that is
counted in them says how many events are missing."""

from __future__ import annotations

import tarfile
from struct import Struct

from tailrace.decoding.formats import FORMATS
from tailrace.decoding.formats.heph.packets import EVENT, EVENT_MIN, METADATA, METADATA_MIN

FIRST_BYTES = (
    (b"\xff\xfe", "text in UTF-16 or UTF-32; write it in UTF-8, for example with iconv"),
    (b"\xfe\xff", "text in UTF-16; write it in UTF-8, for example with iconv"),
    (b"\0\0\xfe\xff", "text in UTF-32; write it in UTF-8, for example with iconv"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd; decompress it with `zstd -d`"),
    (b"\xfd7zXZ\0", "compressed by xz; decompress it with `xz -d`"),
    (b"BZh", "compressed by bzip2; decompress it with `bzip2 -d`"),
    (b"\x04\x22\x4d\x18", "compressed by lz4; decompress it with `lz4 -d`"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
    (b"PAR1", "a Parquet file"),
    (b"\x7fELF", "a program"),
)
TAR_AT, TAR = 257, b"ustar"
BROTLI = "named as compressed by Brotli (.br); decompress it with `brotli -d`, or give it another name if it is not compressed"
WIDE = "text in UTF-16 or UTF-32 without a mark; write it in UTF-8, for example with iconv"
OLD_HEPH = (
    "Heph of early 2021, whose events have no substream; no release of Tailrace reads this layout"
)

_OLD_MIN = 34
_WIDE_MIN = 16
_prefix, _u16 = Struct(">II").unpack_from, Struct(">H").unpack_from


def foreign(path: str, head: bytes) -> str:
    """Return in words what a file's first bytes are if no decoder reads them, else an empty text."""
    for first, words in FIRST_BYTES:
        if head.startswith(first):
            return words
    if head.startswith(TAR, TAR_AT) and _is_tar(head[: tarfile.BLOCKSIZE]):
        return "a tar archive; unpack it with `tar -x`"
    if _is_old_heph(head):
        return OLD_HEPH
    # Brotli has no first bytes of its own.
    if path.endswith(".br") and not any(f.files.recognises(path, head) for f in FORMATS.values()):
        return BROTLI
    return WIDE if _is_wide(head[:_WIDE_MIN]) else ""


def _is_tar(header: bytes) -> bool:
    """Return whether a header has the right checksum: a trace may have any text or number where a header has its magic."""
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _is_wide(first: bytes) -> bool:
    """Return whether each character has one byte that is not zero, the first or the last of two or four. Zeros alone
    may be a hole before a trace."""
    return len(first) == _WIDE_MIN and any(
        0 not in first[at::width] and first.count(0) == _WIDE_MIN - _WIDE_MIN // width
        for width in (2, 4)
        for at in (0, width - 1)
    )


def _is_old_heph(head: bytes) -> bool:
    """Return whether the first event is only whole if its description stands where it stood without a substream."""
    at = 0
    while len(head) - at >= METADATA_MIN and _prefix(head, at)[0] == METADATA:
        size = _prefix(head, at)[1]
        if size < METADATA_MIN:
            return False
        at += size
    if len(head) - at < EVENT_MIN or _prefix(head, at)[0] != EVENT:
        return False
    size = _prefix(head, at)[1]
    new, old = _u16(head, at + EVENT_MIN - 2)[0], _u16(head, at + _OLD_MIN - 2)[0]
    return bool(EVENT_MIN + new > size >= _OLD_MIN + old)
