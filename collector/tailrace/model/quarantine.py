"""The bytes of a quarantine file: frames of what could not be decoded.

A frame is, little-endian, `u64 offset | u32 size | u16 length of reason | reason (UTF-8) | bytes`;
`offset` is where the bytes stood in the session's input. A session's frames follow one another in
one file, so that a gap row's `quarantine` attribute (a position in that file) finds its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

_HEAD = Struct("<QIH")


class Quarantined(NamedTuple):
    offset: int
    reason: str
    data: bytes


def frame(offset: int, reason: str, data: bytes) -> bytes:
    text = reason.encode()
    return _HEAD.pack(offset, len(data), len(text)) + text + data


def frames(data: bytes) -> Iterator[Quarantined]:
    """All whole frames of a file's bytes; a torn one at the end is left out."""
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, length = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + length
        if body + size > len(data):
            return
        reason = data[at + _HEAD.size : body].decode(errors="replace")
        yield Quarantined(offset, reason, data[body : body + size])
        at = body + size
