"""Which file a file is, and whether it is still the one that was read.

A file is known by device, inode and birth time, and by content: its first bytes and those before the
place reached (its *trail*). A look at the file is judged by these rules, in this order:

1. Shorter than what was read: *truncated*. The file is another incarnation now.
2. Another head: *rewritten*, another incarnation. The first two bytes of a file prove nothing:
   DFTracer 1.0 writes "[\\n" over two blanks there when a trace is finished, and nothing is lost.
3. The bytes before the place reached differ. A file that has grown is *rewritten*: it was emptied and
   has grown past that place since. In a file that has not grown, what was read was *overwritten*
   (ovnisort sorts in place), and reading continues.
4. The first two bytes differ in another way: *overwritten*.

A checksum (`ContentCheck`) finds bytes that change elsewhere in what was read. It is made when a file
was written to without growing and has come to rest: what this life of the daemon has read is read
once more, unless the file is compressed or has holes.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple

from tailrace.spool.payloads import HEAD, LAST, UNSAYING, FileState, checksum

_UNFINISHED, _FINISHED = b"  ", b"[\n"
"""The first two bytes of a trace of DFTracer 1.0, before and after it is finished."""

VERIFY_BYTES = 2**20
"""Bytes read again at a time: about a millisecond."""

_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_STATX_MASK = struct.Struct("=I")
_STATX_BIRTH = struct.Struct("=qI")
_STATX_BIRTH_AT = 80


def birth(fd: int) -> int:
    """Return when an open file was made (Unix ns), 0 where the system does not say."""
    if _statx is None:
        return 0
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if _statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return 0
    if not _STATX_MASK.unpack_from(buffer)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _STATX_BIRTH.unpack_from(buffer, _STATX_BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds)


def _find_statx() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None


_statx = _find_statx()


class Trail:
    """The memory of the bytes read: their number, the first and the last of them."""

    __slots__ = ("crc", "head", "last", "offset")

    def __init__(self, offset: int = 0, head: bytes = b"", last: bytes = b"") -> None:
        self.offset = offset
        self.head = head
        self.last = last
        self.crc: int | None = None if offset else 0
        """CRC-32 of all of them except the first few, which may change; None where it is not known."""

    @classmethod
    def of(cls, state: FileState) -> Trail:
        return cls(state.offset, state.head, state.last)

    def add(self, data: bytes) -> None:
        if len(self.head) < HEAD and len(self.head) == self.offset:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self.offset += len(data)

    def pass_over(self, size: int) -> None:
        """Add a hole of this size, whose bytes read as zeros."""
        self.add(bytes(min(size, HEAD)))
        self.offset += size - min(size, HEAD)
        self.crc = None

    def precedes(self, last: bytes) -> bool:
        """Return whether these are the bytes before the place reached."""
        return not differing(self.last, last, self.offset - len(self.last))

    def copied(self) -> Trail:
        copy = Trail(self.offset, self.head, self.last)
        copy.crc = self.crc
        return copy


class ContentCheck:
    """A check of the bytes that were read: it reads them once more, a part at a time."""

    def __init__(self, trail: Trail) -> None:
        self._left = trail.offset
        self._expected = trail.crc
        self._at = self._crc = 0

    def step(self, fd: int) -> bool | None:
        """Read the next part. Return whether all bytes are unchanged, None while parts are left.
        Raise OSError."""
        data = os.pread(fd, min(VERIFY_BYTES, self._left), self._at)
        self._crc = checksum(self._crc, data, self._at)
        self._at += len(data)
        self._left -= len(data)
        return self._crc == self._expected if not data or not self._left else None


class Judgement(NamedTuple):
    verdict: Literal["same", "truncated", "overwritten", "rewritten"]
    size: int = 0
    """Bytes known to be overwritten."""


def judge(trail: Trail, head: bytes, last: bytes, *, grown: bool) -> Judgement:
    """Judge the bytes now at the places of a trail's head and last, by the rules of this module."""
    if differing(trail.head, head, 0):
        return Judgement("rewritten")
    behind = differing(trail.last, last, trail.offset - len(trail.last))
    if behind and grown:
        return Judgement("rewritten")
    unsaying = sum(map(int.__ne__, trail.head[:UNSAYING], head))
    if (trail.head[:UNSAYING], head[:UNSAYING]) == (_UNFINISHED, _FINISHED):
        unsaying = 0
    if behind or unsaying:
        return Judgement("overwritten", behind + unsaying)
    return Judgement("same")


def relation(known: bytes, head: bytes) -> Literal["same", "other", "open"]:
    """Return whether two heads are of the same content, of other content, or too short to tell
    (open)."""
    size = min(len(known), len(head))
    if known[UNSAYING:size] != head[UNSAYING:size]:
        return "other"
    return "same" if size == HEAD else "open"


def look(fd: int, trail: Trail) -> tuple[bytes, bytes]:
    """Return the bytes now where a trail's head and last were. Raise OSError."""
    head = os.pread(fd, len(trail.head), 0)
    return head, os.pread(fd, len(trail.last), trail.offset - len(trail.last))


def follows_on(known: Trail, again: Trail) -> bool:
    """Return whether two trails that have come equally far may be of one content; `again` need not go
    back to the first byte."""
    size = min(len(known.last), len(again.last))
    ends = not differing(known.last[-size:], again.last[-size:], known.offset - size)
    return (ends or not size) and (not again.head or relation(known.head, again.head) != "other")


def differing(before: bytes, now: bytes, offset: int) -> int:
    """Return how many of these bytes, which begin at `offset`, differ. The first two of a file prove nothing."""
    skip = max(0, UNSAYING - offset)
    before, now = before[skip:], now[skip:]
    if before == now:
        return 0
    return sum(map(int.__ne__, before, now)) + abs(len(before) - len(now))
