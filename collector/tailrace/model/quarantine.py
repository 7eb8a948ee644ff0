"""Define the format of a quarantine file: one frame for each undecodable piece of input.

A frame is, little-endian, `u64 offset | u32 size | u16 length of reason | reason (UTF-8) | bytes`; `offset` is the
offset of the bytes in the session's input. One file contains all frames of a session in sequence. A gap row's
`quarantine` attribute is a position in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

_HEAD = Struct("<QIH")


class QuarantineFrame(NamedTuple):
    offset: int
    reason: str
    data: bytes


def frame(offset: int, reason: str, data: bytes) -> bytes:
    text = reason.encode()
    return _HEAD.pack(offset, len(data), len(text)) + text + data


def frames(data: bytes) -> Iterator[QuarantineFrame]:
    """Yield all complete frames of a file; skip a truncated frame at the end."""
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, length = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + length
        if body + size > len(data):
            return
        reason = data[at + _HEAD.size : body].decode(errors="replace")
        yield QuarantineFrame(offset, reason, data[body : body + size])
        at = body + size
