"""Apply a client's statements about its own numbers: discarded events, and the end of each stream.

The statements are described in clients/PROTOCOL.md.

- *Discarded* numbers get the reason `sender`, or `elsewhere` if another collector has acknowledged them. An open hole takes
  the reason directly. A gap heals and is reported again with the new reason. A report alone makes no number missing: only an
  event or a goodbye proves a loss, so a wrong report is harmless. The ledger remembers discarded numbers ahead of the stream,
  up to `DISCARDED_MAX` ranges per stream. If a discarded event arrives after all, the event fills the hole or heals the gap.
- A *goodbye* gives the number of each stream's next event. Missing numbers below this number form an ordinary hole, even in
  a stream without any received event. Events above this number count as usual. If an incarnation ends without a goodbye, the
  discarded numbers state how far each stream went.
- All goodbyes of one session can report at most `TAILS_MAX` missing events. A larger number becomes one gap of unknown size.
- A client also states the total number of events that it discarded without sending (`never_sent`). Some of these events may
  have no number, for example events of threads for which the client had no room. Such events become a gap without a number.
  The gap heals if an event or a goodbye reveals the numbers later.
- A number that is half the counter's range or more ahead counts as lying behind, and says nothing about the stream's end. In a
  stream without any received event, such a number becomes a gap of unknown size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter

from tailrace.ledger.bounds import Commons
from tailrace.ledger.counters import LATEST, Counters
from tailrace.ledger.findings import Finding
from tailrace.ledger.stream import SeqRange, StreamCounter, parts_of
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

DISCARDED_MAX = 8
RANGES_MAX = 4096
"""Maximum number of discarded ranges that the ledger uses from one report. Losses in further ranges get the reason `network`."""

TAILS_MAX = 2**30
"""Maximum number of missing events that goodbyes can report, above 10^9: the fastest client emits as many in some minutes."""

_first, _last = attrgetter("first"), attrgetter("last")


class Statements:
    """Applies the statements of one incarnation's client to the counters."""

    def __init__(self, counters: Counters, bits: int, commons: Commons) -> None:
        self._counters = counters
        self._commons = commons
        self._range = 1 << bits
        self._half = 1 << (bits - 1)

    def discarded(
        self,
        ranges: Iterable[tuple[str, int, int]],
        now: int,
        reason: Reason = Reason.SENDER,
    ) -> None:
        """Apply a client's report of discarded events: stream, first wire number, and length of each range.

        A client reports events that another collector acknowledged only when the collector requests them. Therefore no
        number of such an event lies ahead of its stream."""
        for name, first, count in islice(ranges, RANGES_MAX):
            stream = self._stream(name, now)
            if stream is None or not stream.counted:
                continue
            if stream.fresh:
                self._counters.begin(name, stream, first, LATEST, now)
            before = stream.ranges
            low = self._unwrapped(stream, first)
            high = min(low + count - 1, stream.next + self._range - 1)
            self._name_anew(name, stream, SeqRange(low, high, now, now, reason))
            if high >= stream.next and reason is Reason.SENDER:
                said = SeqRange(max(low, stream.next), high, now, now, Reason.SENDER)
                ahead = [d for d in stream.discarded if d.last >= stream.next]
                stream.discarded = _with(ahead, said)[:DISCARDED_MAX]
            self._changed(name, stream, before, now)

    def never_sent(self, events: int) -> None:
        """Record the number of events that the client has discarded without sending in the session so far. A number
        above the accepted maximum becomes a gap of unknown size."""
        state = self._counters.state
        state.never_sent = max(state.never_sent, min(events, 2 * TAILS_MAX))

    def name_unnumbered(self) -> None:
        """Report a gap for the discarded events that no number represents."""
        state = self._counters.state
        more = self._counters.unnumbered - state.unnumbered
        if more > 0 and state.tails + more > TAILS_MAX:
            self._refuse_tail("")
        elif more > 0:
            self._name_unnumbered(Kind.GAP, more)

    def heal_numbered(self) -> None:
        """Heal the gaps without a number as far as numbers now represent their events."""
        state = self._counters.state
        less = state.unnumbered - self._counters.unnumbered if state.unnumbered else 0
        if less > 0:
            self._name_unnumbered(Kind.HEAL, less)

    def _name_unnumbered(self, kind: str, events: int) -> None:
        state = self._counters.state
        change = events if kind == Kind.GAP else -events
        state.tails += change
        state.unnumbered += change
        self._counters.findings.append(
            Finding(kind, "", None, events, Reason.SENDER, detail="unnumbered")
        )

    def goodbye(self, finals: Mapping[str, int], now: int) -> None:
        """Apply a goodbye: the wire number of each stream's next event."""
        for name, final in finals.items():
            stream = self._counters.state.streams.get(name)
            if stream is None and not self._can_begin(name, final, now):
                if final >= self._half and name not in self._counters.state.unfollowed:
                    self._refuse_tail(name)
                continue
            stream = stream or self._stream(name, now)
            if stream is None or not stream.counted:
                continue
            if stream.fresh:
                self._counters.begin(name, stream, final, LATEST, now)
            before = stream.ranges
            self._reaches(name, stream, self._unwrapped(stream, final), now)
            self._changed(name, stream, before, now)

    def _stream(self, name: str, now: int) -> StreamCounter | None:
        """Return a stream. Return None if there is no place for the stream, or if the stream may have lost its place."""
        stream = self._counters.follow(name, now, begins=False)
        if stream is None:
            self._counters.tell_uncounted(name)
        return stream

    def deny(self, discarded: Iterable[tuple[str, int, int]], finals: Mapping[str, int]) -> bool:
        """Return whether a number arrived that the statements call discarded, or that lies above a stated end.

        Statements that contradict received numbers come from another program."""
        streams = self._counters.state.streams
        said = [(s, first) for name, first, _ in discarded if (s := streams.get(name))]
        if any(s.came(self._unwrapped(s, first)) for s, first in said[:RANGES_MAX]):
            return True
        ends = [(s, final) for name, final in finals.items() if (s := streams.get(name))]
        return any(self._unwrapped(s, final) < s.next for s, final in ends)

    def over(self, now: int, *, comes_back: bool) -> None:
        """End the incarnation without a goodbye. The discarded numbers state how far each stream went.

        A client that `comes_back`, to another collector or with a new session, reports its discarded events there by
        number. Without a goodbye, the number of events without a sequence number stays unknown, and the gap of unknown
        size covers them."""
        if comes_back:
            self._counters.state.never_sent = 0
        for name, stream in self._counters.state.streams.items():
            if stream.discarded:
                before = stream.ranges
                self._reaches(name, stream, stream.discarded[-1].last + 1, now)
                stream.discarded = []
                self._changed(name, stream, before, now)

    def _can_begin(self, name: str, final: int, now: int) -> bool:
        """Return whether a stream without any received event may have reached this number.

        A number in the upper half, or the 0 after a wrap, counts only if an earlier session had the stream."""
        earlier = self._counters.earlier
        return 0 < final < self._half or earlier(name, final, LATEST, now) is not None

    def _unwrapped(self, stream: StreamCounter, number: int) -> int:
        distance = (number - stream.next) % self._range
        return stream.next + distance - (self._range if distance >= self._half else 0)

    def _reaches(self, name: str, stream: StreamCounter, final: int, now: int) -> None:
        """Open a hole up to a stream's final number (exclusive)."""
        state, windows = self._counters.state, self._counters.windows
        short = final - stream.next
        if short <= 0:
            return
        if state.tails + short <= TAILS_MAX:
            state.tails += short
            since = stream.heard or now
            hole = SeqRange(stream.next, final - 1, now, since, Reason.NETWORK)
            windows.open(name, stream, hole)
        else:
            self._refuse_tail(name)

    def _refuse_tail(self, name: str) -> None:
        """Report, once, that a goodbye states more missing events than the ledger accepts."""
        state = self._counters.state
        if not state.tails_refused:
            state.tails_refused = True
            self._counters.findings.append(
                Finding(Kind.GAP, name, None, 0, Reason.NETWORK, detail="goodbye")
            )

    def _name_anew(self, name: str, stream: StreamCounter, said: SeqRange) -> None:
        """Change the reason of the missing numbers in a range to the client's reason."""
        for part in _split(stream.holes, said):
            part.reason = said.reason
        for part in _split(stream.gaps, said):
            if part.reason != said.reason:
                count = part.last - part.first + 1
                self._counters.findings += [
                    Finding(Kind.HEAL, name, part.first, count, part.reason),
                    Finding(Kind.GAP, name, part.first, count, said.reason),
                ]
                part.reason = said.reason

    def _changed(self, name: str, stream: StreamCounter, before: int, now: int) -> None:
        self._counters.windows.count(stream.ranges - before)
        self._counters.windows.keep_bounds(name, stream)
        self._counters.windows.heard({name}, now)
        self._counters.news[name] = None


def _split(ranges: list[SeqRange], said: SeqRange) -> list[SeqRange]:
    """Cut the sorted `ranges` at both ends of another range. Return the parts inside this range."""
    begin = bisect_left(ranges, said.first, key=_last)
    end = bisect_right(ranges, said.last, key=_first)
    parts = [part for hole in ranges[begin:end] for part in parts_of(hole, [said], hole.reason)]
    ranges[begin:end] = parts
    return [part for part in parts if said.first <= part.first and part.last <= said.last]


def _with(ranges: list[SeqRange], one: SeqRange) -> list[SeqRange]:
    """Return sorted ranges with one range added; adjacent ranges are joined."""
    near = [r for r in ranges if r.first <= one.last + 1 and one.first <= r.last + 1]
    first = min([one.first, *(r.first for r in near)])
    last = max([one.last, *(r.last for r in near)])
    rest = [r for r in ranges if r not in near]
    joined = SeqRange(first, last, one.since, one.before, one.reason)
    return sorted([*rest, joined], key=_first)
