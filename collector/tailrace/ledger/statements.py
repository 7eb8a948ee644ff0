"""Apply a client's statements about its own numbers: which events it discarded, and where each stream ends
(clients/PROTOCOL.md).

- *Discarded* numbers get the reason `sender`, or `elsewhere` if another collector has acknowledged them. If such a
  number is in a hole (it may still arrive), the hole takes this reason. If it is in a gap (a row reported it), a heal
  takes the gap back, and a new gap has this reason.
- A report of discarded events does not make their numbers missing. Only a later event or a goodbye does, so that a
  wrong report does no harm. The ledger remembers up to `DISCARDED_MAX` ranges of discarded numbers that the stream has
  not reached yet. A discarded event that arrives after all fills the hole or heals the gap.
- A *goodbye* packet gives the number of each stream's next event. Lower numbers that have not arrived form a hole, even
  in a stream without any received event. Later events with higher numbers count as usual.
  Without a goodbye, the discarded numbers show how far each stream went.
- All goodbyes of one session together can report at most `TAILS_MAX` missing events. A greater number becomes one gap
  of unknown size.
- A client also states the total number of events that it discarded without sending them (`never_sent`). Some of them
  may have no number, for example events of threads for which the client had no room. They become a gap without a
  number. This gap heals if an event or a goodbye reveals the numbers later.
- A final number that is half the counter's range or more ahead of the stream counts as a number behind it, and shows
  nothing about the stream's end. In a stream without any received event, it becomes a gap of unknown size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter

from tailrace.ledger.bounds import Commons
from tailrace.ledger.counters import LATEST, Counters
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.ledger.windows import parts_of
from tailrace.model.gap import Finding, Reason
from tailrace.model.record import Kind

DISCARDED_MAX = 8
RANGES_MAX = 4096
"""Maximum number of discarded ranges that the ledger takes from one report.

Events in further ranges, if missing, get the reason `network`.
"""

TAILS_MAX = 2**30
"""Maximum number of missing events that the goodbyes (statements of the streams' ends) of one session can report.

It is above 10^9, because the fastest client emits so many events within minutes.
"""

_first, _last = attrgetter("first"), attrgetter("last")


class Statements:
    """Applies the statements of one client about its sequence numbers to the counters of its session, during one
    incarnation (program run) of the client.
    """

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
        """Apply a client's report of discarded events. Each range has a stream, the first number as sent and the number
        of events.

        `reason` is `elsewhere` for events that another collector acknowledged. The client reports them only if this
        collector has requested them as missing, so their numbers are below the stream's next number."""
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
        """Report a gap without numbers if the client discarded more events than sequence numbers are missing."""
        state = self._counters.state
        more = self._counters.unnumbered - state.unnumbered
        if more > 0 and state.tails + more > TAILS_MAX:
            self._refuse_tail("")
        elif more > 0:
            self._name_unnumbered(Kind.GAP, more)

    def heal_numbered(self) -> None:
        """Take back a part of the gap without numbers that `name_unnumbered` reported. Numbers that were found missing
        since then may belong to the same discarded events, which must not count twice."""
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
        """Apply a client's goodbye, the statement that its session ends. `finals` maps each stream to the number (as
        sent) that its next event would have.
        """
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
        """Return the state of a stream, creating it for a new stream.

        Return None if the session does not check the stream's numbers (`Counters.follow`). In this case, schedule an
        acknowledgement that informs the client."""
        stream = self._counters.follow(name, now, begins=False)
        if stream is None:
            self._counters.tell_uncounted(name)
        return stream

    def deny(self, discarded: Iterable[tuple[str, int, int]], finals: Mapping[str, int]) -> bool:
        """Return whether a client's statements contradict the received events: an event arrived with a number that the
        client calls discarded, or with a number above the end that the client states.

        Such statements come from another program than the events.
        """
        streams = self._counters.state.streams
        said = [(s, first) for name, first, _ in discarded if (s := streams.get(name))]
        if any(s.came(self._unwrapped(s, first)) for s, first in said[:RANGES_MAX]):
            return True
        ends = [(s, final) for name, final in finals.items() if (s := streams.get(name))]
        return any(self._unwrapped(s, final) < s.next for s, final in ends)

    def over(self, now: int, *, comes_back: bool) -> None:
        """End an incarnation (program run of the client) without a goodbye packet. If the client discarded events after
        the last received event of a stream, count all numbers up to the last discarded number as missing.

        `comes_back` states that the client continues, at another collector or in a new session. It then reports the
        discarded events there by number, so their total no longer counts here."""
        if comes_back:
            self._counters.state.never_sent = 0
        for name, stream in self._counters.state.streams.items():
            if stream.discarded:
                before = stream.ranges
                self._reaches(name, stream, stream.discarded[-1].last + 1, now)
                stream.discarded = []
                self._changed(name, stream, before, now)

    def _can_begin(self, name: str, final: int, now: int) -> bool:
        """Return whether the final number (as sent) in a client's goodbye is plausible for a stream from which no event
        arrived.

        A final number of 0, or in the upper half of the counter's range, is plausible only if an earlier session had
        the stream."""
        earlier = self._counters.earlier
        return 0 < final < self._half or earlier(name, final, LATEST, now) is not None

    def _unwrapped(self, stream: StreamCounter, number: int) -> int:
        distance = (number - stream.next) % self._range
        return stream.next + distance - (self._range if distance >= self._half else 0)

    def _reaches(self, name: str, stream: StreamCounter, final: int, now: int) -> None:
        """Count the numbers from a stream's next number up to `final` (exclusive) as missing (a hole: they may still
        arrive). If these are too many events, report a gap of unknown size instead."""
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
        """Report a gap of unknown size, because the client's goodbyes or its total of discarded events imply more than
        `TAILS_MAX` missing events. Report it once per session.
        """
        state = self._counters.state
        if not state.tails_refused:
            state.tails_refused = True
            self._counters.findings.append(
                Finding(Kind.GAP, name, None, 0, Reason.NETWORK, detail="goodbye")
            )

    def _name_anew(self, name: str, stream: StreamCounter, said: SeqRange) -> None:
        """Give all missing numbers in the range `said` the reason that the client states.

        If they were already reported in a gap with another reason, take this gap back and report it again with the new
        reason."""
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
    """Cut the sorted `ranges` before the first and after the last number of the range `said`.

    Return those parts that lie in `said`.
    """
    begin = bisect_left(ranges, said.first, key=_last)
    end = bisect_right(ranges, said.last, key=_first)
    parts = [part for hole in ranges[begin:end] for part in parts_of(hole, [said], hole.reason)]
    ranges[begin:end] = parts
    return [part for part in parts if said.first <= part.first and part.last <= said.last]


def _with(ranges: list[SeqRange], one: SeqRange) -> list[SeqRange]:
    """Return the sorted ranges after adding the range `one` to them.

    Join it with ranges that overlap it or are adjacent to it.
    """
    near = [r for r in ranges if r.first <= one.last + 1 and one.first <= r.last + 1]
    first = min([one.first, *(r.first for r in near)])
    last = max([one.last, *(r.last for r in near)])
    rest = [r for r in ranges if r not in near]
    joined = SeqRange(first, last, one.since, one.before, one.reason)
    return sorted([*rest, joined], key=_first)
