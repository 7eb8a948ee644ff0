"""The content of plain and compressed files, piece by piece, from a place on."""

from __future__ import annotations

import os
from typing import Literal, Protocol

from tailrace.ingest.file_state import HEAD
from tailrace.ingest.payloads import Member
from tailrace.sources.tail.identity import Trail, follows_on
from tailrace.sources.tail.inflate import MAGIC, Bad, Content, Inflater, InflationBegun, Torn
from tailrace.sources.tail.raw import ContentView, RawBytes, SparseRange

RAW_MAX = 64 * 1024
"""Compressed bytes read at a time."""
BEGIN = Member(0, 0)


Piece = bytes | SparseRange | InflationBegun | Torn | Bad | Literal["changed", "other"] | None
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

    `certain` says that the file once had all the known content; otherwise it may still get it."""

    def __init__(self, member: Member, known: Trail, *, certain: bool) -> None:
        self._raw = RawBytes(Trail(member.raw))
        self._inflater = Inflater(member)
        self._begun = member.raw
        """Where the last member begins in the file, or the last bytes that are none."""
        self._known = known.copied()
        self._skipped: Trail | None = Trail(member.content)
        self._certain = certain
        self._hole: SparseRange | None = None
        if known.offset == member.content:
            self._skipped = None

    @property
    def trail(self) -> Trail:
        return self._raw.trail

    @property
    def pending(self) -> int:
        """Return how many bytes at the end are no whole member."""
        return self.trail.offset - self._begun if self._inflater.waits else 0

    def next(self, view: ContentView) -> Piece:
        event = self._inflater.next()
        if event is None and self._hole is None:
            taken = self._raw.next(view, RAW_MAX)
            if isinstance(taken, bytes):
                self._inflater.feed(taken)
                return b""
            if isinstance(taken, SparseRange):
                self._hole = taken
            elif taken is None and self._skipped is not None and self._certain:
                return "other"
            elif taken is not None or not view.final:
                return taken
        if event is None:
            event = self._inflater.next(last=True)
        if event is None and self._hole is not None:
            event = self._past_hole(self._hole)
        return self._give(event)

    def _past_hole(self, hole: SparseRange) -> Bad:
        self._hole = None
        after = Member(self.trail.offset, self._inflater.place.content)
        self._inflater = Inflater(after)
        return Bad(hole.size, b"", after)

    def _give(self, event: Content | InflationBegun | Torn | Bad | None) -> Piece:
        if isinstance(event, InflationBegun):
            self._begun = event.member.raw
        elif isinstance(event, Torn | Bad):
            self._begun = event.after.raw
        if isinstance(event, Content):
            return event.data if self._skipped is None else self._skip(self._skipped, event.data)
        if self._skipped is not None and isinstance(event, Torn | Bad):
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
    inflater = Inflater(BEGIN)
    inflater.feed(os.pread(fd, RAW_MAX, 0))
    content = b""
    while len(content) < HEAD and (event := inflater.next()) is not None:
        if isinstance(event, Content):
            content += event.data
    return content[:HEAD]
