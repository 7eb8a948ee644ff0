"""What is remembered of streams' numbers: what came last, what is missing, how they began."""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Self

import msgspec

from tailrace.model.gap import Reason

if TYPE_CHECKING:
    Numbers = array[int]
else:
    Numbers = array  # before Python 3.12 an array does not say what it is of

HEAD = 64
"""Numbers near zero: a stream whose number falls back to one of these may have begun anew. Of the
first so many events it is remembered for good what they were."""

NEVER = 0
"""In place of a mark: no event of that number is remembered."""

_SIZES = 2 * 2**16
"""More than the sizes of datagrams can make of a difference between two marks."""

_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF
_first = attrgetter("first")


class Marks(Numbers):
    """Marks of events, 8 bytes each: as a list they would take 44."""

    __slots__ = ()

    def __new__(cls, marks: bytes | Iterable[int] = b"") -> Self:
        return super().__new__(cls, "Q", marks)  # type: ignore[return-value] # stubs forget the subclass


class Hole(msgspec.Struct, array_like=True):
    """Numbers `first` to `last` have not come. `since` is when that was noticed, `before` when the
    stream was last heard of before it (Unix ns)."""

    first: int
    last: int
    since: int
    before: int
    reason: str


class StreamCounter(msgspec.Struct, omit_defaults=True):
    base: int = 0
    """The first number counted on."""
    next: int = 0
    heard: int = 0
    """When events of it came, in an earlier call than this one (Unix ns)."""
    counted: bool = True
    repeats: int = 0
    extra: int = 0
    """Events beyond the counter: different ones under one number."""
    floor: int = 0
    """Below this, closed gaps are no longer remembered."""
    given_up: int = 0
    """Missing events in gaps that are no longer remembered, without those that the client discarded."""
    recent: Marks = msgspec.field(default_factory=Marks)
    """Marks of the last numbers; that of number n in slot n modulo the window."""
    head: Marks = msgspec.field(default_factory=Marks)
    """Marks of the numbers below `HEAD`."""
    holes: list[Hole] = []
    gaps: list[Hole] = []
    """Both in order of number."""
    discarded: list[Hole] = []
    """Numbers at `next` or above that the client says it has thrown away, in order."""

    @property
    def ranges(self) -> int:
        return len(self.holes) + len(self.gaps) + len(self.discarded)

    @property
    def fresh(self) -> bool:
        """Whether nothing of it came yet, and nothing is known to be missing."""
        return self.next == self.base and not self.recent

    def remember(self, seq: int, mark: int, window: int) -> int:
        """Keep the mark of an event that came. Return how many more marks are held. A number below
        the window has no slot of its own: the slot holds the mark of a newer number."""
        mark &= _FINGERPRINT
        more = 0
        if seq >= self.next - window:
            more += _put(self.recent, seq % window, mark)
        if 0 <= seq < HEAD:
            more += _put(self.head, seq, mark)
        return more

    def mark_of(self, seq: int, window: int) -> int:
        """The mark seen under a number, NEVER where that is not remembered."""
        if seq >= self.next - window:
            slot = seq % window
            return self.recent[slot] if slot < len(self.recent) else NEVER
        return self.head[seq] if 0 <= seq < len(self.head) else NEVER

    def had(self, seq: int, mark: int, window: int) -> bool:
        """Whether this very event is remembered."""
        return self.mark_of(seq, window) == mark & _FINGERPRINT

    def tells(self, seq: int, window: int) -> bool:
        """Return whether it is remembered which event came under a number that is not lacking. Below the
        floor nobody knows which numbers came; their slots may have older events' marks."""
        return seq >= self.floor and self.mark_of(seq, window) != NEVER

    def last_mark(self, window: int) -> int:
        """That of the highest number that came; the client may have said that it went further."""
        seq = self.next - 1
        while at := self._missing_at(seq):
            seq = at.first - 1
        return self.mark_of(seq, window)

    def fallen(self, mark: int, window: int) -> bool:
        """Whether an event's time lies far before the stream's last: no event that is merely late."""
        return far_before(mark, self.last_mark(window))

    def lacks(self, seq: int) -> bool:
        """Whether a number is in an open hole or a remembered gap."""
        return self._missing_at(seq) is not None

    def came(self, seq: int) -> bool:
        """Return whether a number came, as far as is remembered."""
        return self.base <= seq < self.next and not self.lacks(seq)

    def _missing_at(self, seq: int) -> Hole | None:
        """The open hole or remembered gap that a number is in."""
        for ranges in (self.holes, self.gaps):
            if (at := find(ranges, seq)) is not None:
                return ranges[at]
        return None

    def suits(self, seq: int, mark: int, window: int) -> bool:
        """Whether an event may be one that is lacking: its time does not lie far before that of the
        last one before the hole."""
        hole = self._missing_at(seq)
        return hole is not None and not far_before(mark, self.mark_of(hole.first - 1, window))

    def keep_gap(self, hole: Hole) -> None:
        """Remember a closed hole, by itself: what is said of a part of it is then said of one row."""
        insort(self.gaps, hole, key=_first)

    def forget_gap(self) -> None:
        """Let go of the gap with the lowest numbers: it cannot be healed any more."""
        gap = self.gaps.pop(0)
        self.floor = max(self.floor, gap.last + 1)
        if gap.reason != Reason.SENDER:
            self.given_up += gap.last - gap.first + 1


class CountersState(msgspec.Struct):
    streams: dict[str, StreamCounter] = {}
    seen: int = 0
    duplicates: int = 0
    missing: int = 0
    """In open holes and unhealed gaps."""
    uncounted: int = 0
    """Events of streams whose numbers are not followed."""
    unfollowed: dict[str, int] = {}
    """The first of these streams, with how many of their events came since."""
    others: bool = False
    """Whether there are more of them than are remembered."""
    let_go: int = 0
    """Events expected of streams that were followed once and are no more, as far as they were."""
    tails: int = 0
    """How many were found missing because the client said how far its streams went."""
    tails_refused: bool = False
    """Whether it said so of more than is believed."""
    datagrams: int = 0
    """In how many datagrams they came; 0 for a stream of bytes."""


def far_before(mark: int, other: int) -> bool:
    """Within a run the ends of a stream's events grow. A mark is at least the end, at most twice the
    end and the size; so one below a quarter of another ended in the first half of the other's time,
    sizes left aside: where times are so small that sizes count, nothing is far."""
    return 4 * (mark & _FINGERPRINT) + _SIZES < other


def parts_of(hole: Hole, ranges: list[Hole], reason: str) -> list[Hole]:
    """A hole in parts: those that lie in one of the ranges, which are in order, have that reason."""
    parts = []
    at = hole.first
    for other in ranges:
        first, last = max(other.first, at), min(other.last, hole.last)
        if first > last:
            continue
        if at < first:
            parts.append(Hole(at, first - 1, hole.since, hole.before, hole.reason))
        parts.append(Hole(first, last, hole.since, hole.before, reason))
        at = last + 1
    if at <= hole.last:
        parts.append(Hole(at, hole.last, hole.since, hole.before, hole.reason))
    return parts


def find(ranges: list[Hole], seq: int) -> int | None:
    """Which of the ranges has a number."""
    at = bisect_right(ranges, seq, key=_first) - 1
    return at if at >= 0 and seq <= ranges[at].last else None


def take(ranges: list[Hole], seq: int) -> Hole | None:
    """Remove one number from the range that has it; give that range as it was, None if none has."""
    at = find(ranges, seq)
    if at is None:
        return None
    hole = ranges[at]
    parts = []
    if hole.first < seq:
        parts.append(Hole(hole.first, seq - 1, hole.since, hole.before, hole.reason))
    if seq < hole.last:
        parts.append(Hole(seq + 1, hole.last, hole.since, hole.before, hole.reason))
    ranges[at : at + 1] = parts
    return hole


def _put(marks: Marks, slot: int, mark: int) -> int:
    """Write a mark into its slot. Return how many slots were added for it."""
    more = max(0, slot + 1 - len(marks))
    if more:
        marks.extend([NEVER] * more)
    marks[slot] = mark
    return more
