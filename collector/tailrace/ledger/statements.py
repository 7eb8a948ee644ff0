"""Applies a client's statements about its own numbers: discarded events, and where each stream ended.

The statements are described in clients/PROTOCOL.md.

- *Discarded* numbers get the reason `sender`, and those that another collector has acknowledged `elsewhere`: in a hole, when it opens or while it is open; in a gap, which is
  repaid and named anew. A report makes no number missing that no event and no goodbye shows, so a
  wrong report costs nothing. Numbers ahead of the stream are remembered, up to `DISCARDED_MAX` ranges
  a stream. If such an event comes after all, it fills the hole or repays the gap.
- A *goodbye* gives the number of a stream's next event. Missing numbers below it are a hole like any
  other, also in streams of which nothing came. Events above it count as ever. If
  an incarnation ends without a goodbye, its discarded numbers say how far it went.
- The goodbyes of one session are believed up to `TAILS_MAX` missing events in total. More becomes one gap
  of unknown size.
- A client also states how many events in all it discarded and never sent (`never_sent`). If no number shows some of them, such as
  events of threads for which the client had no room, they become a gap without a number. The gap heals if an event or a goodbye
  shows them later.
- A number that is half the counter's range ahead or more lies behind, and says nothing about the end. For a
  stream of which nothing came, such a number is one of those gaps of unknown size.
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
"""Ranges of one report that are used; losses in further ranges get the reason `network`."""

TAILS_MAX = 2**30
"""More than 10^9 events: what the fastest client emits in some minutes."""

_first, _last = attrgetter("first"), attrgetter("last")


class Statements:
    """The statements of one incarnation's client, applied to its counters."""

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
        """Apply a report of ranges that the client has no more: stream, first number on the wire, and length.

        A client reports events of another collector only when it is asked for them, so none of these numbers lies
        ahead."""
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
        """Note the number of events that the client has discarded in the session so far, and never sent. A larger number
        than is believed becomes a gap of unknown size, however large it is."""
        state = self._counters.state
        state.never_sent = max(state.never_sent, min(events, 2 * TAILS_MAX))

    def name_unnumbered(self) -> None:
        """Name the discarded events that no number shows."""
        state = self._counters.state
        more = self._counters.unnumbered - state.unnumbered
        if more > 0 and state.tails + more > TAILS_MAX:
            self._refuse_tail("")
        elif more > 0:
            self._name_unnumbered(Kind.GAP, more)

    def heal_numbered(self) -> None:
        """Heal the gaps without a number as far as numbers now show their events."""
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
        """Apply a goodbye: the number on the wire of each stream's next event."""
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
        """Return a stream, or None if there is no place for it, or it may have lost its place."""
        stream = self._counters.follow(name, now, begins=False)
        if stream is None:
            self._counters.tell_uncounted(name)
        return stream

    def deny(self, discarded: Iterable[tuple[str, int, int]], finals: Mapping[str, int]) -> bool:
        """Return whether numbers came that the statements call discarded or still to come.

        The statements are then another program's."""
        streams = self._counters.state.streams
        said = [(s, first) for name, first, _ in discarded if (s := streams.get(name))]
        if any(s.came(self._unwrapped(s, first)) for s, first in said[:RANGES_MAX]):
            return True
        ends = [(s, final) for name, final in finals.items() if (s := streams.get(name))]
        return any(self._unwrapped(s, final) < s.next for s, final in ends)

    def over(self, now: int, *, comes_back: bool) -> None:
        """End the incarnation without a goodbye. Its discarded numbers say how far its streams went.

        A client that `comes_back`, to another collector or as a new session, reports its discarded events there by number.
        The number of its events without a number is unknown until its goodbye, so the gap of unknown size covers them."""
        if comes_back:
            self._counters.state.never_sent = 0
        for name, stream in self._counters.state.streams.items():
            if stream.discarded:
                before = stream.ranges
                self._reaches(name, stream, stream.discarded[-1].last + 1, now)
                stream.discarded = []
                self._changed(name, stream, before, now)

    def _can_begin(self, name: str, final: int, now: int) -> bool:
        """Return whether a stream of which nothing came may have reached this number.

        A number in the upper half, or the 0 behind it, counts only if an earlier session had the stream."""
        earlier = self._counters.earlier
        return 0 < final < self._half or earlier(name, final, LATEST, now) is not None

    def _unwrapped(self, stream: StreamCounter, number: int) -> int:
        distance = (number - stream.next) % self._range
        return stream.next + distance - (self._range if distance >= self._half else 0)

    def _reaches(self, name: str, stream: StreamCounter, final: int, now: int) -> None:
        """Open a hole up to a stream's final number, which is not included."""
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
        """Name once that more is missing than a goodbye is believed."""
        state = self._counters.state
        if not state.tails_refused:
            state.tails_refused = True
            self._counters.findings.append(
                Finding(Kind.GAP, name, None, 0, Reason.NETWORK, detail="goodbye")
            )

    def _name_anew(self, name: str, stream: StreamCounter, said: SeqRange) -> None:
        """Give the missing numbers in a range the client's reason."""
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
    """Cut ranges, which are in order, at both ends of another range. Return the parts inside it."""
    begin = bisect_left(ranges, said.first, key=_last)
    end = bisect_right(ranges, said.last, key=_first)
    parts = [part for hole in ranges[begin:end] for part in parts_of(hole, [said], hole.reason)]
    ranges[begin:end] = parts
    return [part for part in parts if said.first <= part.first and part.last <= said.last]


def _with(ranges: list[SeqRange], one: SeqRange) -> list[SeqRange]:
    """Return ranges in order with one more; ranges that touch are joined."""
    near = [r for r in ranges if r.first <= one.last + 1 and one.first <= r.last + 1]
    first = min([one.first, *(r.first for r in near)])
    last = max([one.last, *(r.last for r in near)])
    rest = [r for r in ranges if r not in near]
    joined = SeqRange(first, last, one.since, one.before, one.reason)
    return sorted([*rest, joined], key=_first)
