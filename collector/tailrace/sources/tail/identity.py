"""Which file a file is, and whether it is still the one we read.

A file is known by device, inode and birth time, and by content: its first bytes and those before
the place reached (its *trail*). What a look at it finds is judged by these rules, in this order:

1. Shorter than what was read: *truncated*; what comes now is another incarnation.
2. Another head: *rewritten*, another incarnation. The first two bytes of a file say nothing:
   DFTracer 1.0 puts "[\\n" there when a trace is finished, over two blanks, and nothing is lost.
3. The bytes before our place differ. In a file that has grown it is *rewritten* (it was emptied and
   has grown past our place since). In one that has not, what we read was *overwritten* (ovnisort
   sorts in place) and we go on.
4. The first two bytes differ in another way: *overwritten*.

Bytes that change elsewhere behind our place are found by a checksum (`Verification`), when a file
was written to and has not grown, and has come to rest: what was read in this life of the daemon, of
a file that is not compressed and has no holes, is read once more.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple

from tailrace.ingest.file_state import HEAD, LAST, UNSAYING, FileState, checksum

_UNFINISHED, _FINISHED = b"  ", b"[\n"
"""What they are in a trace of DFTracer 1.0, before and after."""

VERIFY_BYTES = 2**20
"""Read once more at a time: about a millisecond."""

_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_STATX_MASK = struct.Struct("=I")
_STATX_BIRTH = struct.Struct("=qI")
_STATX_BIRTH_AT = 80


def birth(fd: int) -> int:
    """When an open file was made (Unix ns), 0 where the system does not say."""
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
    """What is remembered of the bytes read: how many, the first and the last of them."""

    __slots__ = ("crc", "head", "last", "offset")

    def __init__(self, offset: int = 0, head: bytes = b"", last: bytes = b"") -> None:
        self.offset = offset
        self.head = head
        self.last = last
        self.crc: int | None = None if offset else 0
        """CRC-32 of all of them but the first that may change, None where that is not known."""

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
        """A hole of this size: there it reads as zeros."""
        self.add(bytes(min(size, HEAD)))
        self.offset += size - min(size, HEAD)
        self.crc = None

    def precedes(self, last: bytes) -> bool:
        """Whether these are the bytes before our place."""
        return not _differing(self.last, last, self.offset - len(self.last))

    def copied(self) -> Trail:
        copy = Trail(self.offset, self.head, self.last)
        copy.crc = self.crc
        return copy


class Verification:
    """The bytes that were read, read once more, a part at a time."""

    def __init__(self, trail: Trail) -> None:
        self._left = trail.offset
        self._expected = trail.crc
        self._at = self._crc = 0

    def step(self, fd: int) -> bool | None:
        """Whether they are what they were; None while that is open. Raise OSError."""
        data = os.pread(fd, min(VERIFY_BYTES, self._left), self._at)
        self._crc = checksum(self._crc, data, self._at)
        self._at += len(data)
        self._left -= len(data)
        return self._crc == self._expected if not data or not self._left else None


class Judgement(NamedTuple):
    verdict: Literal["same", "overwritten", "rewritten"]
    size: int = 0
    """Bytes known to be overwritten."""


def judge(trail: Trail, head: bytes, last: bytes, *, grown: bool) -> Judgement:
    """What the bytes now at the places of a trail's head and last say; see the module."""
    if _differing(trail.head, head, 0):
        return Judgement("rewritten")
    behind = _differing(trail.last, last, trail.offset - len(trail.last))
    if behind and grown:
        return Judgement("rewritten")
    unsaying = sum(map(int.__ne__, trail.head[:UNSAYING], head))
    if (trail.head[:UNSAYING], head[:UNSAYING]) == (_UNFINISHED, _FINISHED):
        unsaying = 0
    if behind or unsaying:
        return Judgement("overwritten", behind + unsaying)
    return Judgement("same")


def relation(known: bytes, head: bytes) -> Literal["same", "other", "open"]:
    """Of two heads: of the same content, of other content, or too short to tell."""
    size = min(len(known), len(head))
    if known[UNSAYING:size] != head[UNSAYING:size]:
        return "other"
    return "same" if size == HEAD else "open"


def look(fd: int, trail: Trail) -> tuple[bytes, bytes]:
    """The bytes now where a trail's head and last were. Raise OSError."""
    head = os.pread(fd, len(trail.head), 0)
    return head, os.pread(fd, len(trail.last), trail.offset - len(trail.last))


def follows_on(known: Trail, again: Trail) -> bool:
    """Whether two trails that have come equally far may be of one content; `again` need not go back
    to its beginning."""
    size = min(len(known.last), len(again.last))
    ends = not _differing(known.last[-size:], again.last[-size:], known.offset - size)
    return (ends or not size) and (not again.head or relation(known.head, again.head) != "other")


def _differing(before: bytes, now: bytes, offset: int) -> int:
    """How many of these bytes, which begin at `offset`, are not what they were."""
    skip = max(0, UNSAYING - offset)
    before, now = before[skip:], now[skip:]
    if before == now:
        return 0
    return sum(map(int.__ne__, before, now)) + abs(len(before) - len(now))
