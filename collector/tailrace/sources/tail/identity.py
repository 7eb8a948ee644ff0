r"""Identify files, and detect whether a file is still the file that was read.

A file is identified by device, inode and time of creation, and by its *trail*: the first bytes that were read, and the
last bytes before the reading position. Each check applies these rules in order:

1. The file is shorter than the bytes that were read: *truncated*. The file counts as a new file.
2. The first bytes differ: *rewritten*. The file counts as a new file. The first two bytes are ignored, because
   DFTracer 1.0 replaces two blanks by "[\n" when a trace is finished, without loss of data.
3. The last bytes before the reading position differ. A file that has grown is *rewritten*. In a file that has not
   grown, bytes were *overwritten* (ovnisort sorts in place), and reading continues.
4. The first two bytes differ in another way than in rule 2: *overwritten*.

If a file was modified without growing, a checksum (`ContentCheck`) also detects changes between its first and last
bytes. The file must be uncompressed and without holes, and this run of the daemon must have read all of its bytes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple

from tailrace.decoding.contract import Format
from tailrace.decoding.foreign import begins_record, other_format
from tailrace.spool.payloads import HEAD, LAST, UNSAYING, checksum

_UNFINISHED, _FINISHED = b"  ", b"[\n"
"""The first two bytes of a DFTracer 1.0 trace, before and after the trace is finished."""

VERIFY_BYTES = 2**20
"""Number of bytes that a check reads at a time (about 1 ms)."""

_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_STATX_MASK = struct.Struct("=I")
_STATX_BIRTH = struct.Struct("=qI")
_STATX_BIRTH_AT = 80


try:
    _statx: Callable[..., int] | None = ctypes.CDLL(None).statx
except (AttributeError, OSError):
    _statx = None


def birth(fd: int) -> int:
    """Return the time (Unix ns) at which an open file was created; 0 if unknown."""
    if _statx is None:
        return 0
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if _statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return 0
    if not _STATX_MASK.unpack_from(buffer)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _STATX_BIRTH.unpack_from(buffer, _STATX_BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds)


class Trail:
    """Describes the bytes that were read from a file: their number (`offset`), the first bytes and the last bytes."""

    __slots__ = ("crc", "head", "last", "offset")

    def __init__(self, offset: int = 0, head: bytes = b"", last: bytes = b"") -> None:
        self.offset = offset
        self.head = head
        self.last = last
        self.crc: int | None = None if offset else 0
        """CRC-32 of the bytes that were read, without the first `UNSAYING` ones, which a tracer may change; None if
        unknown."""

    def add(self, data: bytes) -> None:
        if len(self.head) < HEAD and len(self.head) == self.offset:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self.offset += len(data)

    def pass_over(self, size: int) -> None:
        """Add a hole of `size` bytes, which reads as zeros, to the trail."""
        self.add(bytes(min(size, HEAD)))
        self.offset += size - min(size, HEAD)
        self.crc = None

    def precedes(self, last: bytes) -> bool:
        """Return whether `last`, the present bytes before the reading position, equal those that were read there."""
        return not differing(self.last, last, self.offset - len(self.last))

    def copied(self) -> Trail:
        copy = Trail(self.offset, self.head, self.last)
        copy.crc = self.crc
        return copy


class ContentCheck:
    """Reads again, in parts, all bytes that were read from a file, and compares their checksum."""

    def __init__(self, trail: Trail) -> None:
        self._left = trail.offset
        self._expected = trail.crc
        self._at = self._crc = 0

    def step(self, fd: int) -> bool | None:
        """Read the next part. Return whether all bytes are unchanged; None while parts are left. Raise OSError on
        failure."""
        data = os.pread(fd, min(VERIFY_BYTES, self._left), self._at)
        self._crc = checksum(self._crc, data, self._at)
        self._at += len(data)
        self._left -= len(data)
        return self._crc == self._expected if not data or not self._left else None


class Judgement(NamedTuple):
    verdict: Literal["same", "truncated", "overwritten", "rewritten"]
    size: int = 0
    """Number of overwritten bytes that the comparison found."""


def judge(trail: Trail, head: bytes, last: bytes, *, grown: bool) -> Judgement:
    """Compare the bytes that were read with the present ones at their offsets (`head`, `last`), by rules 2 to 4 in this
    module's docstring. `grown` states that the file has more bytes than were read."""
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
    """Compare the first bytes of two files' contents; "open" means that there are too few bytes to decide."""
    size = min(len(known), len(head))
    if known[UNSAYING:size] != head[UNSAYING:size]:
        return "other"
    return "same" if size == HEAD else "open"


def look(fd: int, trail: Trail) -> tuple[bytes, bytes]:
    """Return the present bytes at the offsets of the first and last bytes in a trail. Raise OSError if that fails."""
    head = os.pread(fd, len(trail.head), 0)
    return head, os.pread(fd, len(trail.last), trail.offset - len(trail.last))


def follows_on(known: Trail, again: Trail) -> bool:
    """Return whether content that was decompressed again may equal the content `known`: their first and last bytes are
    equal."""
    size = min(len(known.last), len(again.last))
    ends = not differing(known.last[-size:], again.last[-size:], known.offset - size)
    return (ends or not size) and (not again.head or relation(known.head, again.head) != "other")


def differing(before: bytes, now: bytes, offset: int) -> int:
    """Return how many bytes from `offset` on differ, without the first `UNSAYING` bytes of the file."""
    skip = max(0, UNSAYING - offset)
    before, now = before[skip:], now[skip:]
    if before == now:
        return 0
    return sum(map(int.__ne__, before, now)) + abs(len(before) - len(now))


class FormatCheck:
    """A check whether a file's first bytes show another format than the source's. The check is due again when the file
    has changed."""

    __slots__ = ("_changed_as", "_first", "found", "is_bare")

    def __init__(self) -> None:
        self.found: str | None = None
        """The last result of `other_format`; None if no check was made, or if the first bytes were too few."""
        self.is_bare = False
        """Whether the file has content but no record yet (see `begins_record`)."""
        self._first: int | None = None
        self._changed_as: tuple[int, ...] | None = None

    def is_due(self, changed_as: tuple[int, ...] | None) -> bool:
        """Return whether the size or times of the file (`changed_as`) differ from those at the last check."""
        return self._first is None or self._changed_as != changed_as

    def make(self, path: str, head: bytes, own: Format, changed_as: tuple[int, ...] | None) -> None:
        first = hash(head)
        if first != self._first:
            self.found = other_format(path, head, own)
            self.is_bare = bool(head) and not begins_record(head)
        self._first, self._changed_as = first, changed_as
