"""The content of plain and compressed files, piece by piece, from a place on."""

from __future__ import annotations

import os
from typing import Literal, Protocol

from tailrace.ingest.file_state import HEAD
from tailrace.ingest.payloads import Member
from tailrace.sources.tail.identity import Trail, follows_on
from tailrace.sources.tail.inflate import (
    DOUBT_MAX,
    INFLATER_BYTES,
    MAGIC,
    Bad,
    Content,
    Event,
    Inflater,
    InflationBegun,
    StatedLoss,
    Torn,
)
from tailrace.sources.tail.raw import ContentView, RawBytes, SparseRange

RAW_MAX = 64 * 1024
"""Compressed bytes read at a time."""
INFLATING_BYTES = INFLATER_BYTES + RAW_MAX + DOUBT_MAX
"""Memory of an inflater between two pieces."""
BEGIN = Member(0, 0)


Piece = (
    bytes
    | SparseRange
    | InflationBegun
    | Torn
    | Bad
    | StatedLoss
    | Literal["changed", "other"]
    | None
)
"""Empty bytes are nothing to hand on, but no end; None is nothing more now. "changed": see
`RawBytes.next`. "other": the content to be skipped is not the content that was read before."""


class Reader(Protocol):
    @property
    def trail(self) -> Trail:
        """How far the file's bytes are read."""
        ...

    def next(self, view: ContentView) -> Piece:
        """Return the next piece. Raise OSError."""
        ...


class Compressed:
    """The content of a compressed file, from a member on. Content that is `known` is inflated again
    and skipped.

    `certain` says that the file once had all the known content; otherwise it may still get it. The inflater begins with the
    first call of `next`. It can be given up, and the next call then inflates the last member again."""

    def __init__(self, member: Member, known: Trail, *, certain: bool) -> None:
        self._raw = RawBytes(Trail(member.raw))
        self._again: RawBytes | None = None
        """The bytes that a former inflater was fed with, while they are read once more."""
        self._inflater: Inflater | None = None
        self._begun = member
        """The beginning of the last member, or of the last bytes that are none."""
        self._known = known.copied()
        self._skipped: Trail | None = None
        self._certain = certain
        self._hole: SparseRange | None = None

    @property
    def trail(self) -> Trail:
        return self._raw.trail

    @property
    def pending(self) -> int:
        """Return how many bytes at the end are no whole member."""
        waits = self._inflater is None or self._inflater.waits
        return self.trail.offset - self._begun.raw if waits else 0

    @property
    def in_hole(self) -> bool:
        """Return whether a hole was read of which nothing was said, so that the inflater cannot be given up."""
        return self._hole is not None

    @property
    def memory(self) -> int:
        """Return the memory of its inflater (bytes), at most `INFLATING_BYTES`."""
        return self._inflater.memory if self._inflater is not None else 0

    @property
    def repeated(self) -> tuple[int, int]:
        """Return how many bytes of the file, and of its content, `next` has to pass again before it comes to others."""
        if self._inflater is not None:
            return 0, 0
        begun = self._begun
        return self.trail.offset - begun.raw, max(0, self._known.offset - begun.content)

    def give_up(self, content: Trail) -> None:
        """Give up the inflater. `content` is all that was handed on."""
        if content.offset > self._known.offset:
            self._known = content.copied()
        self._certain |= self._skipped is None
        self._inflater = self._again = None

    def next(self, view: ContentView) -> Piece:
        inflater = self._inflater or self._begin()
        event = inflater.next()
        if event is None and self._hole is None:
            taken = self._take(view)
            if isinstance(taken, bytes):
                inflater.feed(taken)
                return b""
            if isinstance(taken, SparseRange):
                self._hole = taken
            elif taken is None and self._skipped is not None and self._certain:
                return "other"
            elif taken is not None or not view.final:
                return taken
        if event is None:
            event = inflater.next(last=True)
        if event is None and self._hole is not None:
            event = self._past_hole(self._hole, inflater.place.content)
        return self._give(event)

    def _begin(self) -> Inflater:
        begun = self._begun
        inflater = self._inflater = Inflater(begun)
        self._again = RawBytes(Trail(begun.raw)) if self.trail.offset > begun.raw else None
        self._skipped = Trail(begun.content) if self._known.offset != begun.content else None
        return inflater

    def _take(self, view: ContentView) -> bytes | SparseRange | Literal["changed", "other"] | None:
        if self._again is None:
            return self._raw.next(view, RAW_MAX)
        left = self.trail.offset - self._again.trail.offset
        taken = self._again.next(view, min(RAW_MAX, left))
        if not isinstance(taken, bytes):
            return "other"
        if len(taken) == left:
            self._again = None
        return taken

    def _past_hole(self, hole: SparseRange, content: int) -> Bad:
        self._hole = None
        after = Member(self.trail.offset, content)
        self._inflater = Inflater(after)
        return Bad(hole.size, b"", after)

    def _give(self, event: Event | None) -> Piece:
        if isinstance(event, InflationBegun):
            self._begun = event.member
        elif isinstance(event, Torn | Bad | StatedLoss):
            self._begun = event.after
        if isinstance(event, Content):
            return event.data if self._skipped is None else self._skip(self._skipped, event.data)
        if self._skipped is not None and isinstance(event, Torn | Bad | StatedLoss):
            return b""  # it was reported when it was first read
        return event

    def _skip(self, skipped: Trail, data: bytes) -> Piece:
        left = self._known.offset - skipped.offset
        skipped.add(data[:left])
        if skipped.offset < self._known.offset:
            return b""
        self._skipped = None
        return data[left:] if follows_on(self._known, skipped) else "other"


def kind(fd: int, *, final: bool = False) -> type[RawBytes | Compressed] | None:
    """Return the kind of reader for a file, None if its first bytes do not tell yet. Raise OSError."""
    return _kind(os.pread(fd, len(MAGIC), 0), final=final)


def _kind(begin: bytes, *, final: bool) -> type[RawBytes | Compressed] | None:
    if begin.startswith(MAGIC):
        return Compressed
    if begin and (begin != MAGIC[:1] or final):
        return RawBytes
    return None


def head(fd: int) -> bytes:
    """Return the first bytes of a file's content, as far as they are there now. Raise OSError."""
    begin = os.pread(fd, HEAD, 0)  # in one call, because the file may be growing
    kind = _kind(begin, final=False)
    if kind is not Compressed:
        return begin if kind is RawBytes else b""
    return inflated(fd, HEAD)


def inflated(fd: int, size: int) -> bytes:
    """Return the first bytes of a compressed file's content, up to `size`, as far as `RAW_MAX` bytes of the file have them. Raise
    OSError."""
    inflater = Inflater(BEGIN)
    inflater.feed(os.pread(fd, RAW_MAX, 0))
    content = b""
    while len(content) < size and (event := inflater.next()) is not None:
        if isinstance(event, Content):
            content += event.data
    return content[:size]
