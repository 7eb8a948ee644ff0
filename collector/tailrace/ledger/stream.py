"""The memory of a stream's numbers: which came last, which are missing, how the stream began, and which events they were.

`StreamCounter` remembers one stream. `HeldMarks` counts the marks that a session's streams hold, and gives them up to save
memory: a number whose mark was given up is a duplicate when it comes again, whatever its event. `StreamNumbers` answers questions about
a session's streams and changes nothing: of which incarnation an event is, and what a session accounts for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from tailrace.model.gap import OF_CLIENTS
from tailrace.model.holding import Evicted

if TYPE_CHECKING:
    IntArray = array[int]
else:
    IntArray = array  # before Python 3.12 an array is not generic

HEAD = 64
"""Numbers near zero: a stream whose number falls back to one of these may have restarted. The marks of
so many events are kept until the counter has wrapped."""

NEVER = 0
"""In place of a mark: no event with that number is remembered."""

_SIZES = 2 * 2**16
"""More than the difference that sizes of datagrams can make between two marks."""

_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF
_first = attrgetter("first")


class Marks(IntArray):
    """Marks of events, 8 bytes each; a list would take 44."""

    __slots__ = ()

    def __new__(cls, marks: bytes | Iterable[int] = b"") -> Self:
        return super().__new__(cls, "Q", marks)  # type: ignore[return-value] # stubs forget the subclass


_no_marks: Callable[[], Marks] = partial(array.__new__, Marks, "Q")  # type: ignore[assignment] # the same
"""Makes empty `Marks` in half the time."""


class SeqRange(msgspec.Struct, array_like=True):
    """Numbers `first` to `last` that have not come: an open hole, a closed gap, or a discarded range.

    `since` is when that was noticed, `before` when the stream was last heard before (Unix ns)."""

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
    """When its events last came, in an earlier call than the present one (Unix ns)."""
    counted: bool = True
    repeats: int = 0
    extra: int = 0
    """Events beyond the counter: different events under one number."""
    floor: int = 0
    """Below this, closed gaps are no longer remembered."""
    given_up: int = 0
    """Missing events in forgotten gaps, without those that the client discarded."""
    recent: Marks = msgspec.field(default_factory=_no_marks)
    """Marks of the last numbers; the mark of number n is in slot n modulo the window."""
    head: Marks = msgspec.field(default_factory=_no_marks)
    """Marks of the numbers below `HEAD` on the wire, since the counter wrapped last."""
    zero: int = 0
    """The number that was 0 on the wire then."""
    holes: list[SeqRange] = []
    gaps: list[SeqRange] = []
    """Holes and gaps, in order of number."""
    discarded: list[SeqRange] = []
    """Numbers at `next` or above that the client reported as discarded, in order."""

    @property
    def ranges(self) -> int:
        return len(self.holes) + len(self.gaps) + len(self.discarded)

    @property
    def fresh(self) -> bool:
        """Return whether nothing came yet, and nothing is known to be missing."""
        return self.next == self.base and not self.recent

    def remember(self, seq: int, count: int, mark: int, window: int) -> int:
        """Keep the mark of an event that came, under the number `count` on the wire. Return how many more marks
        are held.

        A number below the window has no slot of its own: the slot holds the mark of a newer number."""
        mark &= _FINGERPRINT
        more = 0
        if seq >= self.next - window:
            more += _put(self.recent, seq % window, mark, window)
        if count < HEAD:
            more += self._remember_near_zero(seq - count, count, mark)
        return more

    def _remember_near_zero(self, zero: int, count: int, mark: int) -> int:
        """Keep the mark of a number near zero on the wire. Forget those from before the counter wrapped."""
        before = len(self.head)
        if zero > self.zero:
            self.zero, self.head = zero, Marks()
        if zero == self.zero:
            _put(self.head, count, mark, HEAD)
        return len(self.head) - before

    def mark_of(self, seq: int, window: int) -> int:
        """Return the mark seen under a number, NEVER if it is not remembered."""
        if seq >= self.next - window:
            slot = seq % window
            return self.recent[slot] if slot < len(self.recent) else NEVER
        near = seq - self.zero
        return self.head[near] if 0 <= near < len(self.head) else NEVER

    def had(self, seq: int, mark: int, window: int) -> bool:
        """Return whether this very event is remembered."""
        return self.mark_of(seq, window) == mark & _FINGERPRINT

    def tells(self, seq: int, window: int) -> bool:
        """Return whether the mark of a number that is not missing can be trusted.

        Below the floor nobody knows which numbers came, and slots may hold the marks of older events."""
        return seq >= self.floor and self.mark_of(seq, window) != NEVER

    def last_mark(self, window: int) -> int:
        """Return the mark of the highest number that came; a goodbye may have gone further."""
        seq = self.next - 1
        while at := self._missing_at(seq):
            seq = at.first - 1
        return self.mark_of(seq, window)

    def fallen(self, mark: int, window: int) -> bool:
        """Return whether an event's time lies far before the stream's last one: the event is not merely late."""
        return far_before(mark, self.last_mark(window))

    def lacks(self, seq: int) -> bool:
        """Return whether a number is in an open hole or a remembered gap."""
        return self._missing_at(seq) is not None

    def came(self, seq: int) -> bool:
        """Return whether a number came, as far as is remembered."""
        return self.base <= seq < self.next and not self.lacks(seq)

    def _missing_at(self, seq: int) -> SeqRange | None:
        """Return the open hole or remembered gap that contains a number."""
        for ranges in (self.holes, self.gaps):
            if (at := find(ranges, seq)) is not None:
                return ranges[at]
        return None

    def suits(self, seq: int, mark: int, window: int) -> bool:
        """Return whether an event may be the missing one: its time does not lie far before the last event
        before the hole."""
        hole = self._missing_at(seq)
        return hole is not None and not far_before(mark, self.mark_of(hole.first - 1, window))

    def keep_gap(self, hole: SeqRange) -> None:
        """Remember a closed hole by itself, so that later statements about a part concern one row."""
        insort(self.gaps, hole, key=_first)

    def forget_gap(self) -> None:
        """Forget the gap with the lowest numbers, which then cannot heal any more."""
        gap = self.gaps.pop(0)
        self.floor = max(self.floor, gap.last + 1)
        if gap.reason not in OF_CLIENTS:
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
    """The first of these streams, with the number of their events since."""
    others: bool = False
    """Whether there are more such streams than are remembered."""
    let_go: int = 0
    """Expected events of streams that are followed no more, up to that point."""
    tails: int = 0
    """Events found missing because a goodbye said how far the streams went."""
    tails_refused: bool = False
    """Whether goodbyes claimed more than is believed."""
    never_sent: int = 0
    """Events that the client discarded before it sent them, as it states."""
    unnumbered: int = 0
    """The events of `never_sent` that are in gaps without a number, because no number shows them."""
    datagrams: int = 0
    """Datagrams in which the events came; 0 for a stream of bytes."""


def far_before(mark: int, other: int) -> bool:
    """Return whether an event ended in the first half of another's time, sizes left aside.

    Within an incarnation the ends of a stream's events grow. A mark is at least the end, and at most twice the
    end plus the size. Where times are so small that sizes matter, nothing is far."""
    return 4 * (mark & _FINGERPRINT) + _SIZES < other


def parts_of(hole: SeqRange, ranges: list[SeqRange], reason: str) -> list[SeqRange]:
    """Return a hole in parts; the parts inside the ranges, which are in order, get the reason."""
    parts = []
    at = hole.first
    for other in ranges:
        first, last = max(other.first, at), min(other.last, hole.last)
        if first > last:
            continue
        if at < first:
            parts.append(SeqRange(at, first - 1, hole.since, hole.before, hole.reason))
        parts.append(SeqRange(first, last, hole.since, hole.before, reason))
        at = last + 1
    if at <= hole.last:
        parts.append(SeqRange(at, hole.last, hole.since, hole.before, hole.reason))
    return parts


def find(ranges: list[SeqRange], seq: int) -> int | None:
    """Return the index of the range that contains a number, or None."""
    at = bisect_right(ranges, seq, key=_first) - 1
    return at if at >= 0 and seq <= ranges[at].last else None


def take(ranges: list[SeqRange], seq: int) -> SeqRange | None:
    """Remove a number from its range. Return the range as it was, or None if none contains the number."""
    at = find(ranges, seq)
    if at is None:
        return None
    hole = ranges[at]
    parts = []
    if hole.first < seq:
        parts.append(SeqRange(hole.first, seq - 1, hole.since, hole.before, hole.reason))
    if seq < hole.last:
        parts.append(SeqRange(seq + 1, hole.last, hole.since, hole.before, hole.reason))
    ranges[at : at + 1] = parts
    return hole


def take_from(ranges: list[SeqRange], seq: int, stop: int) -> SeqRange | None:
    """Remove the numbers from `seq` up to `stop`, excluded, from the range that contains `seq`. Return them as a
    range, or None if none contains `seq`."""
    at = find(ranges, seq)
    if at is None:
        return None
    hole = ranges[at]
    last = min(hole.last, stop - 1)
    before, taken, behind = (
        SeqRange(first, end, hole.since, hole.before, hole.reason)
        for first, end in ((hole.first, seq - 1), (seq, last), (last + 1, hole.last))
    )
    ranges[at : at + 1] = [part for part in (before, behind) if part.first <= part.last]
    return taken


def _put(marks: Marks, slot: int, mark: int, most: int) -> int:
    """Write a mark into its slot, of `most` at most. Return how many slots were added.

    Beyond `HEAD` all slots are added at once: kernels take a stream from then on."""
    more = max(0, (slot + 1 if slot < HEAD else most) - len(marks))
    if more:
        marks.frombytes(bytes(marks.itemsize * more))
    marks[slot] = mark
    return more


MARK_BYTES = 10
"""Bytes of a mark."""

_heard = attrgetter("heard")


class HeldMarks:
    """The marks that the streams of one session hold together."""

    what = Evicted.MARKS

    def __init__(self, streams: Mapping[str, StreamCounter]) -> None:
        self._streams = streams
        self.count = sum(len(s.recent) + len(s.head) for s in streams.values())
        """Marks that all streams hold; who lets a stream remember one counts it here."""
        self.evicted = 0

    @property
    def held(self) -> int:
        return MARK_BYTES * self.count

    def give_way(self, size: int) -> None:
        """Give up marks until so many bytes are free, of the longest silent streams first."""
        goal = max(0, self.held - size)
        for stream in sorted(self._streams.values(), key=_heard):
            if self.held <= goal:
                break
            self.evicted += self.forget(stream)

    def forget(self, stream: StreamCounter) -> int:
        """Forget a stream's marks. Return how many these were."""
        marks = len(stream.recent) + len(stream.head)
        stream.recent, stream.head = Marks(), Marks()
        self.count -= marks
        return marks

    def forget_all(self) -> None:
        """Forget the marks of all streams."""
        for stream in self._streams.values():
            self.forget(stream)


Fit = Literal["same", "near", "old", "far"]
"""How an event may belong to an incarnation. `same`: the event is remembered. `near`: the number is missing, or
soon due. `old`: it is not remembered which event came under the number. `far`: nothing speaks
against it, since the stream is new or the number far ahead."""


class StreamNumbers:
    """The numbers of one session's streams, to be asked."""

    def __init__(self, streams: Mapping[str, StreamCounter], window: int, bits: int) -> None:
        """Ask streams that remember the marks of their last `window` numbers; counters have `bits` bits."""
        self._streams = streams
        self._window = window
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)

    def fits(self, name: str, count: int, mark: int) -> Fit | None:
        """Return how an event may belong to these streams although another incarnation has begun, or None."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return "far"
        distance = (count - stream.next) & self._mask
        if distance < self._half:
            if stream.fallen(mark, self._window):
                return None
            return "near" if distance < self._window else "far"
        seq = stream.next - (self._mask + 1 - distance)
        if stream.suits(seq, mark, self._window):
            return "near"
        if stream.had(seq, mark, self._window):
            return "same"
        unknown = not (seq < stream.base or stream.lacks(seq) or stream.tells(seq, self._window))
        return "old" if unknown else None

    def contradicts(self, name: str, count: int, mark: int) -> bool:
        """Return whether another event is remembered under this event's number."""
        stream = self._streams.get(name)
        distance = (count - stream.next) & self._mask if stream and stream.counted else 0
        if stream is None or distance < self._half:
            return False
        seq = stream.next - (self._mask + 1 - distance)
        if seq < stream.base or stream.lacks(seq):
            return False
        return stream.tells(seq, self._window) and not stream.had(seq, mark, self._window)

    def expects(self, name: str, count: int) -> bool:
        """Return whether a number is a stream's next one."""
        stream = self._streams.get(name)
        return count == (stream.next & self._mask if stream else 0)

    def remembered(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, number on the wire and mark of the newest events, as many as are remembered."""
        window = self._window
        for name, stream in self._streams.items():
            for seq in range(max(stream.base, stream.next - window), stream.next):
                if not stream.lacks(seq):
                    yield name, seq & self._mask, stream.mark_of(seq, window)

    def ends(self) -> dict[str, tuple[int, int]]:
        """Return each stream's next number and the mark of its last event."""
        window = self._window
        streams = self._streams.items()
        return {name: (s.next, s.last_mark(window)) for name, s in streams if s.counted and s.next}

    def end_of(self, name: str) -> tuple[int, int] | None:
        """Return a stream's next number, behind the client's last discarded range, and the mark of its
        last event. Return None if neither is known."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return None
        following = max([stream.next, *(said.last + 1 for said in stream.discarded)])
        return (following, stream.last_mark(self._window)) if following else None

    def accounts_for(self, name: str) -> range:
        """Return the numbers of a stream that came, are missing, or were discarded."""
        end = self.end_of(name)
        return range(self._streams[name].base, end[0]) if end else range(0)

    def last_mark(self, name: str) -> int:
        """Return the mark of a stream's last number, 0 for a stream of which nothing came."""
        stream = self._streams.get(name)
        return stream.last_mark(self._window) if stream else NEVER
