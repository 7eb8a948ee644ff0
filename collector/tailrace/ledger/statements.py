"""Apply a client's statements about its own numbers: which events it discarded, and where each stream ends
(clients/PROTOCOL.md).

- *Discarded* numbers get the reason `sender`, or `elsewhere` if another collector has acknowledged them. They count as
  missing only after a later event, a goodbye (see below) or the end of the session, so that a wrong report does little
  harm.
- A *goodbye* states the number of each stream's next event. Lower numbers that have not arrived form a hole (missing
  numbers that may still arrive).
- `never_sent` is the client's total of discarded events. Those without a number become a gap without a number, which is
  taken back if the numbers are revealed later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter

from tailrace.ledger.counters import LATEST, Counters
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.ledger.windows import parts_of
from tailrace.model.gap import Finding, Reason
from tailrace.model.record import Kind

DISCARDED_MAX = 8
RANGES_MAX = 4096
"""Maximum number of discarded ranges that the ledger takes from one report. Events in further ranges, if missing,
get the reason `network`."""

TAILS_MAX = 2**30
"""Maximum number of missing events that the goodbyes (reports of the next event number of each stream) of one session
can reveal. The fastest client emits 10^9 events within minutes."""

_first, _last = attrgetter("first"), attrgetter("last")


class Statements:
    """Applies the statements of one client about its sequence numbers to the counters of its session."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._range = counters.mask + 1
        self._half = self._range // 2

    def discarded(
        self, ranges: Iterable[tuple[str, int, int]], now: int, reason: Reason = Reason.SENDER
    ) -> None:
        """Apply a report of discarded events: ranges of stream, first number as sent, number of events. `reason` is
        `elsewhere` for events that another collector acknowledged."""
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
        """Record how many events the client has discarded without sending, in this session so far."""
        state = self._counters.state
        state.never_sent = max(state.never_sent, min(events, 2 * TAILS_MAX))

    def name_unnumbered(self) -> None:
        """Report a gap without numbers if the client discarded more events than there are missing sequence numbers."""
        state = self._counters.state
        more = self._counters.unnumbered - state.unnumbered
        if more > 0 and state.tails + more > TAILS_MAX:
            self._refuse_tail("")
        elif more > 0:
            self._change_unnumbered(Kind.GAP, more)

    def heal_numbered(self) -> None:
        """Reduce the gap without numbers: some of its events may be those whose sequence numbers were found missing
        after the gap was reported."""
        state = self._counters.state
        less = self._counters.unnumbered - state.unnumbered if state.unnumbered else 0
        if less < 0:
            self._change_unnumbered(Kind.HEAL, less)

    def _change_unnumbered(self, kind: str, change: int) -> None:
        state = self._counters.state
        state.tails += change
        state.unnumbered += change
        finding = Finding(kind, "", None, abs(change), Reason.SENDER, detail="unnumbered")
        self._counters.findings.append(finding)

    def goodbye(self, finals: Mapping[str, int], now: int) -> None:
        """Apply a client's goodbye, sent when its session ends. `finals` maps each stream to the number (as sent) that
        its next event would have had."""
        counters = self._counters
        for name, final in finals.items():
            stream = counters.state.streams.get(name)
            # A stream without any event can have the next number `final`. If `final` is 0 or in the upper half of the
            # range, this is possible only if an earlier session had the stream.
            plain = stream is not None or 0 < final < self._half
            if not plain and counters.earlier(name, final, LATEST, now) is None:
                if final >= self._half and name not in counters.state.unfollowed:
                    self._refuse_tail(name)
                continue
            stream = stream or self._stream(name, now)
            if stream is None or not stream.counted:
                continue
            if stream.fresh:
                counters.begin(name, stream, final, LATEST, now)
            before = stream.ranges
            self._reaches(name, stream, self._unwrapped(stream, final), now)
            self._changed(name, stream, before, now)

    def _stream(self, name: str, now: int) -> StreamCounter | None:
        """Return the state of a stream. If its numbers are not checked, schedule an acknowledgement that states this,
        and return None."""
        stream = self._counters.follow(name, now, begins=False)
        if stream is None:
            self._counters.tell_uncounted(name)
        return stream

    def deny(self, discarded: Iterable[tuple[str, int, int]], finals: Mapping[str, int]) -> bool:
        """Return whether a client's statements contradict the events: the first number of a discarded range has
        arrived, or a stream has reached numbers at or above its stated end. Another program then sent the
        statements."""
        streams = self._counters.state.streams
        said = [(s, first) for name, first, _ in discarded if (s := streams.get(name))]
        for stream, first in said[:RANGES_MAX]:
            number = self._unwrapped(stream, first)
            if stream.base <= number < stream.next and not stream.lacks(number):
                return True
        ends = [(s, final) for name, final in finals.items() if (s := streams.get(name))]
        return any(self._unwrapped(s, final) < s.next for s, final in ends)

    def over(self, now: int, *, comes_back: bool) -> None:
        """End a run of a client that sent no goodbye (final numbers): in each stream, the numbers up to the last
        discarded one become missing. `comes_back` states that the client continues elsewhere, and reports its discarded
        events there by number."""
        if comes_back:
            self._counters.state.never_sent = 0
        for name, stream in self._counters.state.streams.items():
            if stream.discarded:
                before = stream.ranges
                self._reaches(name, stream, stream.discarded[-1].last + 1, now)
                stream.discarded = []
                self._changed(name, stream, before, now)

    def _unwrapped(self, stream: StreamCounter, number: int) -> int:
        distance = (number - stream.next) % self._range
        return stream.next + distance - (self._range if distance >= self._half else 0)

    def _reaches(self, name: str, stream: StreamCounter, final: int, now: int) -> None:
        """Count the numbers from a stream's next number up to `final` (exclusive) as missing."""
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
        """Report a gap of unknown size, once per session, because the client's statements imply more than `TAILS_MAX`
        missing events."""
        state = self._counters.state
        if not state.tails_refused:
            state.tails_refused = True
            self._counters.findings.append(
                Finding(Kind.GAP, name, None, 0, Reason.NETWORK, detail="goodbye")
            )

    def _name_anew(self, name: str, stream: StreamCounter, said: SeqRange) -> None:
        """Give all missing numbers in the range `said` the reason that the client stated. If a gap row states another
        reason, take this gap back and report it again."""
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
        windows = self._counters.windows
        windows.count(stream.ranges - before)
        windows.keep_bounds(name, stream)
        windows.heard({name}, now)
        self._counters.news[name] = None


def _split(ranges: list[SeqRange], said: SeqRange) -> list[SeqRange]:
    """Cut the sorted `ranges` at both ends of the range `said`. Return the parts that lie in `said`."""
    begin = bisect_left(ranges, said.first, key=_last)
    end = bisect_right(ranges, said.last, key=_first)
    parts = [part for hole in ranges[begin:end] for part in parts_of(hole, [said], hole.reason)]
    ranges[begin:end] = parts
    return [part for part in parts if said.first <= part.first and part.last <= said.last]


def _with(ranges: list[SeqRange], one: SeqRange) -> list[SeqRange]:
    near = [r for r in ranges if r.first <= one.last + 1 and one.first <= r.last + 1]
    first = min([one.first, *(r.first for r in near)])
    last = max([one.last, *(r.last for r in near)])
    rest = [r for r in ranges if r not in near]
    joined = SeqRange(first, last, one.since, one.before, one.reason)
    return sorted([*rest, joined], key=_first)
