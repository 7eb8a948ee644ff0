"""Remember for each stream its first and next number, its missing numbers, and the marks of its last events.

A mark is an event's fingerprint. `HeldMarks` drops marks to save memory: an event that repeats the number of a
dropped mark counts as a duplicate, even if it is another event.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from tailrace.model.holding import Evicted

if TYPE_CHECKING:
    IntArray = array[int]
else:
    # Until Python 3.11, the class `array` accepts no type parameters, as in `array[int]`.
    IntArray = array

HEAD = 64
"""Number of event numbers, from 0 on, whose marks (fingerprints) are kept until the counter wraps. They distinguish a
late copy from an event of a restarted producer, which begins again at these numbers."""

NEVER = 0
"""Value in place of a mark (event fingerprint) where no event is remembered under a number."""

_SIZES = 2 * 2**16
"""Maximum difference between the marks of two events with equal times: a mark contains the size of the event's
datagram, which is below 2^16."""

FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF
_first = attrgetter("first")


class Marks(IntArray):
    """Array of event marks (fingerprints), 8 bytes each; a list would take 44 bytes each."""

    __slots__ = ()

    def __new__(cls, marks: bytes | Iterable[int] = b"") -> Self:
        return super().__new__(cls, "Q", marks)  # type: ignore[return-value] # stubs forget the subclass


_no_marks: Callable[[], Marks] = partial(array.__new__, Marks, "Q")  # type: ignore[assignment] # the same
"""Function that creates an empty `Marks` object, in half the time that a call of the class takes."""


class SeqRange(msgspec.Struct, array_like=True):
    """Range of numbers of one stream: a hole (missing numbers that may still arrive), a gap (reported missing
    numbers), or discarded numbers. `since` is the time (Unix ns) at which the loss was noticed, `before` the arrival
    time (Unix ns) of the last event before it."""

    first: int
    last: int
    since: int
    before: int
    reason: str


class StreamCounter(msgspec.Struct, omit_defaults=True):
    base: int = 0
    """First event number of the stream. Lower numbers are not expected."""
    next: int = 0
    heard: int = 0
    """Arrival time (Unix ns) of the stream's last event before the chunk that is being counted."""
    counted: bool = True
    repeats: int = 0
    extra: int = 0
    """Number of events whose number had already been used by a different event."""
    floor: int = 0
    """Lowest number for which the stream knows whether an event is missing. A gap below this number was forgotten."""
    given_up: int = 0
    """Number of missing events in forgotten gaps, without those that the client discarded."""
    recent: Marks = msgspec.field(default_factory=_no_marks)
    """Marks (fingerprints) of the last `window` numbers. The mark of number n is at index n modulo `window`."""
    head: Marks = msgspec.field(default_factory=_no_marks)
    """Marks (fingerprints) of the first `HEAD` events since the last wrap of the counter, by number as sent."""
    zero: int = 0
    """Sequence number (unwrapped to 64 bits) at which the number as sent was last 0."""
    holes: list[SeqRange] = []
    gaps: list[SeqRange] = []
    """Ranges of reported missing numbers, in ascending order. Missing numbers that may still arrive are in `holes`."""
    discarded: list[SeqRange] = []
    """Ranges of numbers at or above `next` that the client reported as discarded, in ascending order."""

    @property
    def ranges(self) -> int:
        return len(self.holes) + len(self.gaps) + len(self.discarded)

    @property
    def fresh(self) -> bool:
        """Return whether no event has arrived and no number is missing."""
        return self.next == self.base and not self.recent

    def mark_of(self, seq: int, window: int) -> int:
        """Return the mark (fingerprint) of the event that arrived under a number; NEVER if no mark is remembered."""
        if seq >= self.next - window:
            slot = seq % window
            return self.recent[slot] if slot < len(self.recent) else NEVER
        near = seq - self.zero
        return self.head[near] if 0 <= near < len(self.head) else NEVER

    def had(self, seq: int, mark: int, window: int) -> bool:
        return self.mark_of(seq, window) == mark & FINGERPRINT

    def tells(self, seq: int, window: int) -> bool:
        """Return whether a mark is stored that certainly belongs to the event `seq`. Below `floor`, the mark may belong
        to an older event."""
        return seq >= self.floor and self.mark_of(seq, window) != NEVER

    def last_mark(self, window: int) -> int:
        """Return the mark (fingerprint) of the received event with the highest number."""
        seq = self.next - 1
        while at := self._missing_at(seq):
            seq = at.first - 1
        return self.mark_of(seq, window)

    def fallen(self, mark: int, window: int) -> bool:
        """Return whether an event's time lies so far before the stream's last one that it cannot just be late."""
        return far_before(mark, self.last_mark(window))

    def lacks(self, seq: int) -> bool:
        return self._missing_at(seq) is not None

    def _missing_at(self, seq: int) -> SeqRange | None:
        for ranges in (self.holes, self.gaps):
            if (at := find(ranges, seq)) is not None:
                return ranges[at]
        return None

    def suits(self, seq: int, mark: int, window: int) -> bool:
        """Return whether an event's time permits that the event is the missing event `seq`."""
        hole = self._missing_at(seq)
        return hole is not None and not far_before(mark, self.mark_of(hole.first - 1, window))


class CountersState(msgspec.Struct):
    streams: dict[str, StreamCounter] = {}
    seen: int = 0
    duplicates: int = 0
    missing: int = 0
    """Number of missing events: those in holes (may still arrive), and those in gaps (reported)."""
    uncounted: int = 0
    """Number of received events of streams whose numbers are not checked because of a limit."""
    unfollowed: dict[str, int] = {}
    """Streams whose numbers are not checked because of a limit, oldest first, with the number of events since then."""
    others: bool = False
    """Whether there are further streams whose numbers are not checked and whose names are not in `unfollowed`."""
    let_go: int = 0
    """Number of events that were expected in streams until the session stopped checking the streams' numbers."""
    tails: int = 0
    """Number of missing events that were revealed only by the client's goodbyes (final event numbers) or by its total
    of discarded events."""
    tails_refused: bool = False
    """Whether the client stated more missing events than `TAILS_MAX`, so that a gap of unknown size was reported."""
    never_sent: int = 0
    """Number of events that, according to the client, it discarded without sending them."""
    unnumbered: int = 0
    """Number of discarded events that gaps without a sequence number report."""
    unnumbered_before: int = 0
    """Number of discarded events that gaps of earlier sessions report, and that the client's total includes."""
    late: bool = False
    """Whether the input lacks the beginning of the run, so that other inputs may have the lower numbers of a stream."""
    datagrams: int = 0
    """Number of datagrams in which the session's events arrived; 0 for a byte stream."""


def far_before(mark: int, other: int) -> bool:
    """Return whether the end time of an event is certainly less than half that of another event of the stream. Within
    one run of a producer, end times increase, so this shows a restart. A mark is start + end + size, and start <= end,
    so end <= mark <= 2 * end + size."""
    return 4 * (mark & FINGERPRINT) + _SIZES < other


def find(ranges: list[SeqRange], seq: int) -> int | None:
    """Return the index of the range that contains a number; None if no range contains it."""
    at = bisect_right(ranges, seq, key=_first) - 1
    return at if at >= 0 and seq <= ranges[at].last else None


MARK_BYTES = 10
"""Memory (bytes) of one remembered mark (event fingerprint)."""

_heard = attrgetter("heard")


class HeldMarks:
    """Counts the marks (event fingerprints) that the streams of one session hold, and drops marks to save memory."""

    what = Evicted.MARKS

    def __init__(self, streams: Mapping[str, StreamCounter]) -> None:
        self._streams = streams
        self.count = sum(len(s.recent) + len(s.head) for s in streams.values())
        """Number of stored marks (fingerprints) of all streams. `Counters` adds the marks that it stores."""
        self.evicted = 0

    @property
    def held(self) -> int:
        return MARK_BYTES * self.count

    def give_way(self, size: int) -> None:
        """Drop marks (event fingerprints) until `size` bytes are free. Begin with the streams without recent events."""
        goal = max(0, self.held - size)
        for stream in sorted(self._streams.values(), key=_heard):
            if self.held <= goal:
                break
            self.evicted += self.forget(stream)

    def forget(self, stream: StreamCounter) -> int:
        marks = len(stream.recent) + len(stream.head)
        stream.recent, stream.head = Marks(), Marks()
        self.count -= marks
        return marks

    def forget_all(self) -> None:
        for stream in self._streams.values():
            self.forget(stream)


Fit = Literal["same", "near", "old", "far"]
"""How well an event fits a session's streams:

- `same`: the same event already arrived.
- `near`: the event's number is missing, or is expected soon.
- `old`: the number has arrived, but the mark (fingerprint) of its event is no longer remembered.
- `far`: nothing contradicts the event, because its stream is new or its number is far ahead.
"""


class StreamNumbers:
    """Read-only queries about the sequence numbers in one session's streams."""

    def __init__(self, streams: Mapping[str, StreamCounter], window: int, bits: int) -> None:
        self._streams = streams
        self._window = window
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)

    def fits(self, name: str, count: int, mark: int) -> Fit | None:
        """Return how an event's number fits the streams of an ended producer run; None if it contradicts them."""
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
        """Return whether a different event has already arrived under the event's number."""
        stream = self._streams.get(name)
        distance = (count - stream.next) & self._mask if stream and stream.counted else 0
        if stream is None or distance < self._half:
            return False
        seq = stream.next - (self._mask + 1 - distance)
        if seq < stream.base or stream.lacks(seq):
            return False
        return stream.tells(seq, self._window) and not stream.had(seq, mark, self._window)

    def expects(self, name: str, count: int) -> bool:
        """Return whether a number (as sent) is the next one of a stream. A new stream expects 0."""
        stream = self._streams.get(name)
        return count == (stream.next & self._mask if stream else 0)

    def remembered(self) -> Iterator[tuple[str, int, int]]:
        """Yield the stream, number as sent, and mark (fingerprint) of each received event among the last `window`
        numbers."""
        window = self._window
        for name, stream in self._streams.items():
            for seq in range(max(stream.base, stream.next - window), stream.next):
                if not stream.lacks(seq):
                    yield name, seq & self._mask, stream.mark_of(seq, window)

    def ends(self) -> dict[str, tuple[int, int]]:
        """Return the next number of each stream with checked numbers, and the mark (fingerprint) of its received event
        with the highest number. Leave out streams whose next number is 0."""
        window = self._window
        streams = self._streams.items()
        return {name: (s.next, s.last_mark(window)) for name, s in streams if s.counted and s.next}

    def end_of(self, name: str) -> tuple[int, int] | None:
        """Return the next expected number of a stream, and its last mark: the fingerprint of the received event with
        the highest number. All received, missing and discarded numbers are below the next expected number. Return None
        if this number is 0, or if the stream's numbers are not checked."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return None
        following = max([stream.next, *(said.last + 1 for said in stream.discarded)])
        return (following, stream.last_mark(self._window)) if following else None

    def accounts_for(self, name: str) -> range:
        """Return the range of a stream's numbers that this session has received, found missing, or counted as
        discarded."""
        end = self.end_of(name)
        return range(self._streams[name].base, end[0]) if end else range(0)

    def last_mark(self, name: str) -> int:
        """Return the mark (fingerprint) of the received event with the highest number; 0 for an unknown stream."""
        stream = self._streams.get(name)
        return stream.last_mark(self._window) if stream else NEVER
