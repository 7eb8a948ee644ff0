"""Write and read the quarantine file of a session, which contains the bytes of the input that could not be decoded.

The file is a sequence of frames, one for each range of such bytes, in little-endian order: `u64 offset | u32 size | u16
length of reason | reason (UTF-8) | bytes`. `offset` is the position of the bytes in the session's input. The attribute
`quarantine` of a gap row is the position of a frame in this file."""

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
    """Yield the complete frames in the content of a quarantine file. Ignore an incomplete frame at the end."""
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, length = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + length
        if body + size > len(data):
            return
        reason = data[at + _HEAD.size : body].decode(errors="replace")
        yield QuarantineFrame(offset, reason, data[body : body + size])
        at = body + size


def whole_size(data: bytes) -> int:
    """Return how many bytes the complete frames at the beginning of a quarantine file's content take."""
    at = 0
    while at + _HEAD.size <= len(data):
        _, size, length = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length + size
        if end > len(data):
            break
        at = end
    return at
