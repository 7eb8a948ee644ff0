"""Remember the numbers of a stream: the last number, the missing numbers, the first number, and the marks of events.

`StreamCounter` holds the state of one stream. `HeldMarks` counts the marks of a session's streams, and drops marks to
save memory. When a number without a mark arrives again, the event counts as a duplicate, whichever event it is.
`StreamNumbers` answers read-only questions about a session's streams: to which incarnation an event belongs, and for
which numbers a session accounts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
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
"""Number of lowest wire numbers whose marks are kept until the counter wraps. A stream whose number falls back below
this value may have restarted."""

NEVER = 0
"""Placeholder for a mark: no event with this number is remembered."""

_SIZES = 2 * 2**16
"""Upper bound on the difference between two marks that datagram sizes alone can cause."""

_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF
_first = attrgetter("first")


class Marks(IntArray):
    """Array of event marks, 8 bytes each; a list would take 44 bytes each."""

    __slots__ = ()

    def __new__(cls, marks: bytes | Iterable[int] = b"") -> Self:
        return super().__new__(cls, "Q", marks)  # type: ignore[return-value] # stubs forget the subclass


_no_marks: Callable[[], Marks] = partial(array.__new__, Marks, "Q")  # type: ignore[assignment] # the same
"""Function that creates empty `Marks` in half the time of the constructor."""


class SeqRange(msgspec.Struct, array_like=True):
    """Range of missing numbers `first` to `last`: an open hole, a closed gap, or a discarded range.

    `since` is the time at which the loss was noticed. `before` is the time of the stream's last event before the loss
    (both Unix ns)."""

    first: int
    last: int
    since: int
    before: int
    reason: str


class StreamCounter(msgspec.Struct, omit_defaults=True):
    base: int = 0
    """First number that counts."""
    next: int = 0
    heard: int = 0
    """Time (Unix ns) of the stream's last events, from an earlier call than the current one."""
    counted: bool = True
    repeats: int = 0
    extra: int = 0
    """Number of events beyond the counter: different events under one number."""
    floor: int = 0
    """Number below which closed gaps are no longer remembered."""
    given_up: int = 0
    """Number of missing events in forgotten gaps, without the events that the client discarded."""
    recent: Marks = msgspec.field(default_factory=_no_marks)
    """Marks of the last numbers. The mark of number n is in slot n modulo the window."""
    head: Marks = msgspec.field(default_factory=_no_marks)
    """Marks of the wire numbers below `HEAD`, since the last wrap of the counter."""
    zero: int = 0
    """Unwrapped number of wire number 0 after the last wrap."""
    holes: list[SeqRange] = []
    gaps: list[SeqRange] = []
    """Closed gaps, in order of number. `holes` has the same order."""
    discarded: list[SeqRange] = []
    """Numbers at or above `next` that the client reported as discarded, in order."""

    @property
    def ranges(self) -> int:
        return len(self.holes) + len(self.gaps) + len(self.discarded)

    @property
    def fresh(self) -> bool:
        """Return whether the stream has neither received events nor known losses."""
        return self.next == self.base and not self.recent

    def remember(self, seq: int, count: int, mark: int, window: int) -> int:
        """Keep the mark of a received event with wire number `count`. Return the number of added mark slots.

        A number below the window has no slot of its own: the slot holds the mark of a newer number."""
        mark &= _FINGERPRINT
        more = 0
        if seq >= self.next - window:
            more += _put(self.recent, seq % window, mark, window)
        if count < HEAD:
            more += self._remember_near_zero(seq - count, count, mark)
        return more

    def _remember_near_zero(self, zero: int, count: int, mark: int) -> int:
        """Keep the mark of a wire number near zero. Drop the marks from before the counter's last wrap."""
        before = len(self.head)
        if zero > self.zero:
            self.zero, self.head = zero, Marks()
        if zero == self.zero:
            _put(self.head, count, mark, HEAD)
        return len(self.head) - before

    def mark_of(self, seq: int, window: int) -> int:
        """Return the mark remembered under a number, or NEVER."""
        if seq >= self.next - window:
            slot = seq % window
            return self.recent[slot] if slot < len(self.recent) else NEVER
        near = seq - self.zero
        return self.head[near] if 0 <= near < len(self.head) else NEVER

    def had(self, seq: int, mark: int, window: int) -> bool:
        """Return whether an event with this number and this mark is remembered."""
        return self.mark_of(seq, window) == mark & _FINGERPRINT

    def tells(self, seq: int, window: int) -> bool:
        """Return whether the mark of a number that is not missing is reliable.

        Below the floor, the stream no longer remembers which numbers arrived, and slots may hold the marks of older
        events."""
        return seq >= self.floor and self.mark_of(seq, window) != NEVER

    def last_mark(self, window: int) -> int:
        """Return the mark of the highest number that arrived. A goodbye may have advanced `next` beyond this number."""
        seq = self.next - 1
        while at := self._missing_at(seq):
            seq = at.first - 1
        return self.mark_of(seq, window)

    def fallen(self, mark: int, window: int) -> bool:
        """Return whether an event's time lies so far before the stream's last event that the event cannot just be late."""
        return far_before(mark, self.last_mark(window))

    def lacks(self, seq: int) -> bool:
        """Return whether a number is in an open hole or a remembered gap."""
        return self._missing_at(seq) is not None

    def came(self, seq: int) -> bool:
        """Return whether a number arrived, as far as the stream remembers."""
        return self.base <= seq < self.next and not self.lacks(seq)

    def _missing_at(self, seq: int) -> SeqRange | None:
        """Return the open hole or remembered gap that contains a number."""
        for ranges in (self.holes, self.gaps):
            if (at := find(ranges, seq)) is not None:
                return ranges[at]
        return None

    def suits(self, seq: int, mark: int, window: int) -> bool:
        """Return whether an event may be the missing event: its time does not lie far before the last event below the
        hole."""
        hole = self._missing_at(seq)
        return hole is not None and not far_before(mark, self.mark_of(hole.first - 1, window))

    def forget_gap(self) -> None:
        """Forget the gap with the lowest numbers. A forgotten gap can no longer heal."""
        gap = self.gaps.pop(0)
        self.floor = max(self.floor, gap.last + 1)
        if gap.reason not in OF_CLIENTS:
            self.given_up += gap.last - gap.first + 1


class CountersState(msgspec.Struct):
    streams: dict[str, StreamCounter] = {}
    seen: int = 0
    duplicates: int = 0
    missing: int = 0
    """Number of events in open holes and unhealed gaps."""
    uncounted: int = 0
    """Number of events in unfollowed streams."""
    unfollowed: dict[str, int] = {}
    """First unfollowed streams, with the number of events that each has received since."""
    others: bool = False
    """Whether there are more unfollowed streams than `unfollowed` remembers."""
    let_go: int = 0
    """Number of expected events in formerly followed streams, up to the time at which each lost its place."""
    tails: int = 0
    """Number of missing events that were found only because a goodbye stated the streams' ends."""
    tails_refused: bool = False
    """Whether goodbyes stated more missing events than the ledger accepts."""
    never_sent: int = 0
    """Number of events that the client discarded without sending them, as stated by the client."""
    unnumbered: int = 0
    """Number of `never_sent` events in gaps without a number, because no missing number represents these events."""
    datagrams: int = 0
    """Number of datagrams that carried the events; 0 for a byte stream."""


def far_before(mark: int, other: int) -> bool:
    """Return whether an event ended in the first half of another event's time, apart from the events' sizes.

    Within an incarnation, the ends of a stream's events increase. A mark is at least the end, and at most twice the end
    plus the size. For times so small that sizes matter, the result is False."""
    return 4 * (mark & _FINGERPRINT) + _SIZES < other


def parts_of(hole: SeqRange, ranges: list[SeqRange], reason: str) -> list[SeqRange]:
    """Split a hole at the given sorted ranges. The parts inside the ranges get the reason `reason`."""
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
    """Remove a number from its range. Return the range as it was before, or None if no range contains the number."""
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
    """Remove the numbers from `seq` up to, but not including, `stop` from the range that contains `seq`. Return the
    removed numbers as a range, or None if no range contains `seq`."""
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
    """Write a mark into its slot. Return the number of added slots; a stream has at most `most` slots.

    Beyond `HEAD`, all slots are added at once, because compiled kernels process the stream from then on."""
    more = max(0, (slot + 1 if slot < HEAD else most) - len(marks))
    if more:
        marks.frombytes(bytes(marks.itemsize * more))
    marks[slot] = mark
    return more


MARK_BYTES = 10
"""Memory (bytes) of a mark."""

_heard = attrgetter("heard")


class HeldMarks:
    """Counts the marks that the streams of one session hold."""

    what = Evicted.MARKS

    def __init__(self, streams: Mapping[str, StreamCounter]) -> None:
        self._streams = streams
        self.count = sum(len(s.recent) + len(s.head) for s in streams.values())
        """Number of marks in all streams. Callers of `StreamCounter.remember` add the new marks."""
        self.evicted = 0

    @property
    def held(self) -> int:
        return MARK_BYTES * self.count

    def give_way(self, size: int) -> None:
        """Drop marks until `size` bytes are free, longest silent streams first."""
        goal = max(0, self.held - size)
        for stream in sorted(self._streams.values(), key=_heard):
            if self.held <= goal:
                break
            self.evicted += self.forget(stream)

    def forget(self, stream: StreamCounter) -> int:
        """Drop a stream's marks. Return the number of dropped marks."""
        marks = len(stream.recent) + len(stream.head)
        stream.recent, stream.head = Marks(), Marks()
        self.count -= marks
        return marks

    def forget_all(self) -> None:
        """Drop the marks of all streams."""
        for stream in self._streams.values():
            self.forget(stream)


Fit = Literal["same", "near", "old", "far"]
"""How an event may belong to an incarnation. `same`: the event is remembered. `near`: the number is missing, or due
soon. `old`: the event that arrived under the number is forgotten. `far`: nothing excludes the event, because the stream
is new or the number far ahead."""


class StreamNumbers:
    """Answers questions about the numbers of one session's streams."""

    def __init__(self, streams: Mapping[str, StreamCounter], window: int, bits: int) -> None:
        """Answer for streams that remember the marks of their last `window` numbers. Counters have `bits` bits."""
        self._streams = streams
        self._window = window
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)

    def fits(self, name: str, count: int, mark: int) -> Fit | None:
        """Return how an event may belong to these streams although another incarnation has begun. Return None if the
        event cannot belong to them."""
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
        """Return whether the stream remembers a different event under this event's number."""
        stream = self._streams.get(name)
        distance = (count - stream.next) & self._mask if stream and stream.counted else 0
        if stream is None or distance < self._half:
            return False
        seq = stream.next - (self._mask + 1 - distance)
        if seq < stream.base or stream.lacks(seq):
            return False
        return stream.tells(seq, self._window) and not stream.had(seq, mark, self._window)

    def expects(self, name: str, count: int) -> bool:
        """Return whether a wire number is a stream's next number."""
        stream = self._streams.get(name)
        return count == (stream.next & self._mask if stream else 0)

    def remembered(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, wire number and mark of the newest events that the streams remember."""
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
        """Return a stream's next number, above the client's last discarded range, and the mark of the stream's last
        event. Return None if neither is known."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return None
        following = max([stream.next, *(said.last + 1 for said in stream.discarded)])
        return (following, stream.last_mark(self._window)) if following else None

    def accounts_for(self, name: str) -> range:
        """Return the range of a stream's numbers that arrived, are missing, or were discarded."""
        end = self.end_of(name)
        return range(self._streams[name].base, end[0]) if end else range(0)

    def last_mark(self, name: str) -> int:
        """Return the mark of a stream's last number; 0 for a stream without events."""
        stream = self._streams.get(name)
        return stream.last_mark(self._window) if stream else NEVER
