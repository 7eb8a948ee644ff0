"""Compare the sequence numbers of events with the expected ones, to find missing, late and duplicate events and
restarts of the producer.

A stream's counter starts at 0, increases by 1 per event and wraps, as in Heph (docs/formats/heph.md). The ledger
unwraps the counter to 64 bits. Let `d` be the distance of an event's number from the expected number, modulo the
counter's range:

- d = 0: the event is in order.
- d < half the range: `d` events are missing. Their numbers form a *hole*, which late events may still fill. After
  `reorder_events` further events of the stream, or after `reorder_time`, the hole becomes a *gap*: a row reports the
  missing events. The reason is `late_join` if the hole begins at 0 in a new stream, `kernel` for events that the
  operating system's kernel dropped (see `bounds`), otherwise `network`.
- Otherwise the event is late. It fills a hole, takes back a part of a gap (a heal), or repeats an earlier number. In
  the last case, it is a duplicate if its mark (fingerprint: times and size) equals that of the earlier event.

Marks are kept for the last `reorder_events` numbers and for the first `HEAD` numbers after each wrap of the counter.

A new stream continues at the number that the callback `earlier` finds in an earlier session of the same producer.
Otherwise it begins at 0, or at its first number if that lies in the upper half of the range: billions of missing events
are less plausible than a counter that is about to wrap.

An event shows a restart of the producer if its time lies far before the time of the stream's last event (`fallen`), and
in one of three cases: its number is above the expected one; its number is missing, but the last event before the hole
has a far later time; its number is near 0, but another event already had it. If several different events in a row
repeat a number, the number is no counter: the stream's numbers are no longer checked.

A session checks the numbers of a stream (follows it) unless `streams_max` or `source_streams_max` is reached. It stores
the events of other streams without a number, reports a gap of unknown size for each, and never follows these streams
later (`Unfollowed`). It remembers their first `UNFOLLOWED_MAX` names; further streams share one gap without a stream
name. After that, it follows only new streams that begin at 0, because any other may be one that shares the gap.

`statements` applies a client's reports about its numbers. `hand_over` and `begin_behind` move numbers to the session to
which they really belong. In `Counters.count_block`, a compiled kernel counts the events in order.

Memory: `STREAM_BYTES` per stream; `stream.MARK_BYTES` for each mark; `windows.RANGE_BYTES` for each of up to
`holes_max` holes and as many gaps. All sessions of a source together have at most `source_streams_max` streams and
`source_holes_max` holes and gaps (see `bounds`). Sessions that hold too many bytes drop state (`ingest.limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tailrace.ledger.bounds import Commons
from tailrace.ledger.stream import (
    HEAD,
    NEVER,
    CountersState,
    HeldMarks,
    SeqRange,
    StreamCounter,
    StreamNumbers,
)
from tailrace.ledger.windows import Windows
from tailrace.model.gap import Account, Finding, Reason
from tailrace.model.record import Kind
from tailrace.rows.block import Block, Integers
from tailrace.rows.records import DUPLICATE

if TYPE_CHECKING or active():
    from tailrace.ledger._observe import InOrder, hear

UNFOLLOWED_MAX = 64
"""Maximum number of streams that a session remembers by name although it does not check their sequence numbers."""


class Unfollowed:
    """Counts the events of streams whose sequence numbers the session does not check, because `streams_max` or
    `source_streams_max` is reached.
    """

    def __init__(self, state: CountersState, commons: Commons, findings: list[Finding]) -> None:
        """Use the session's state. Report missing events (gaps) by appending them to the list `findings`."""
        self._state = state
        self._commons = commons
        self._findings = findings

    def add(self, name: str, limit: str, *, followed: bool = False) -> None:
        """Record that the numbers of the stream `name` are not checked, because the key `limit` allows no more streams.
        Add a gap for the stream to the findings.

        Remember the names of at most `UNFOLLOWED_MAX` such streams. Further streams share one gap without a stream
        name. But a stream whose numbers were checked before (`followed`) always gets a gap of its own."""
        state = self._state
        if not state.unfollowed:
            self._commons.state.uncounted_sessions += 1
        if len(state.unfollowed) < UNFOLLOWED_MAX:
            state.unfollowed[name] = 0
            followed = True
        elif not state.others:
            state.others = True
            self._say("", limit)
        if followed:
            self._say(name, limit)

    def observe(self, name: str) -> None:
        """Count an event of a stream whose sequence numbers are not checked."""
        state = self._state
        state.uncounted += 1
        if name in state.unfollowed:
            state.unfollowed[name] += 1

    def release(self) -> None:
        """Reduce the number of open sessions that have streams with unchecked sequence numbers, if the finished session
        was one of them."""
        self._commons.state.uncounted_sessions -= bool(self._state.unfollowed)

    def _say(self, name: str, limit: str) -> None:
        self._findings.append(Finding(Kind.GAP, name, None, 0, Reason.UNCOUNTED, detail=limit))


RESTART = -2
"""Result in place of a sequence number: the event shows that the producer has restarted, and was not counted."""

_NEWS_MAX = 256
"""Maximum number of streams in the next acknowledgement that informs the client that their numbers are not checked. The
client learns about further such streams when one of their later events has arrived."""

LATEST = 2**63 - 1
"""Mark (event fingerprint) for an event of which a client's report states only the number.

Marks increase with the times of events. This mark is greater than all others, so that such an event never seems older
than another event."""

_REPEATS_OF_NO_COUNTER = 3
_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF

STREAM_BYTES = 768
"""Memory (bytes) of a stream whose sequence numbers are checked, excluding its marks (fingerprints of events) and its
ranges of missing numbers.
"""

EarlierNumber = Callable[[str, int, int, int], int | None]
"""Function that looks for an earlier session of the same producer with the same stream.

It returns the number with which the stream continues after that session, or None if there is no such session. Its
arguments are the stream, the number (as sent) and the fingerprint of the stream's first event, and the log time (ns).
"""


def _nobody(*_: object) -> None:
    """Accept any arguments and return None. This is the default for callbacks."""


class Counters:
    """Checks the sequence numbers of all streams of one session, to find missing, duplicate and late events."""

    def __init__(
        self,
        limits: LedgerConfig,
        bits: int,
        state: CountersState,
        commons: Commons,
        earlier: EarlierNumber = _nobody,
        *,
        name: str = "",
        report: Callable[[int], None] = _nobody,
    ) -> None:
        """Restore the counters of the session `name` from `state`.

        If `source_streams_max` is reached, another session may take places from this session, which then stops checking
        some streams (`free_places`) and adds gaps for them to `findings`. The function `report` is called at the time
        `now` when `findings` has gaps to write."""
        self.state = state
        self.name = name
        self.report = report
        self.earlier = earlier
        self._limits = limits
        self.window = limits.reorder_events
        self.mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)
        self._commons = commons
        commons.take_up(self, len(state.streams))
        self.windows = Windows(limits, state, commons)
        self.findings = self.windows.findings
        self.numbers = StreamNumbers(state.streams, self.window, bits)
        self.marks = HeldMarks(state.streams)
        self._unfollowed = Unfollowed(state, commons, self.findings)
        self.announced = False
        """Whether the session's client announces its restarts.

        If so, the ledger does not infer restarts from event times.
        """
        self.news = dict.fromkeys(state.streams)
        """Streams whose state has changed since the last acknowledgement to the client, in order of the changes."""

    @property
    def account(self) -> Account:
        state = self.state
        expected = sum(s.next - s.base + s.extra for s in state.streams.values())
        expected += state.let_go + state.uncounted
        unnumbered = self.unnumbered
        return Account(
            expected + unnumbered,
            state.seen,
            state.missing + unnumbered,
            state.duplicates,
            state.uncounted,
        )

    @property
    def unnumbered(self) -> int:
        """Return how many of the events that the client discarded have no sequence number, as far as the ledger can
        tell.

        The client reports only the total of its discarded events. Subtract all missing numbers from the total, because
        each of them may belong to a discarded event. Also subtract the events that gaps of earlier sessions report.

        Streams without checked numbers may contain further discarded events. If there are such streams, return at most
        the number that is already reported."""
        state = self.state
        if state.never_sent <= state.missing:
            return 0
        shown = state.missing + sum(stream.base for stream in state.streams.values())
        unnumbered = max(0, state.never_sent - shown - state.unnumbered_before)
        unknown = state.unfollowed or state.others or state.tails_refused
        if unknown or not all(stream.counted for stream in state.streams.values()):
            return min(unnumbered, state.unnumbered)
        return unnumbered

    def observe(
        self,
        streams: Sequence[str],
        counts: Sequence[int],
        marks: Sequence[int],
        now: int,
    ) -> tuple[list[int | None], bool]:
        """Count events. Return the sequence number of each event (unwrapped to 64 bits), and whether the producer has
        restarted.

        `streams`, `counts` (numbers as sent) and `marks` have one item for each event. A mark is the sum of the event's
        start, end and size, and distinguishes events with the same number.

        A duplicate gets the number DUPLICATE. An event gets None if the session does not check its stream, or if the
        stream's numbers do not count its events. After a restart, the list ends before the first event of the restarted
        producer."""
        seqs = self.count(streams, counts, marks, now)
        self.hear(dict.fromkeys(streams), now)
        self.note_seen(streams, len(seqs), now)
        return seqs, len(seqs) < len(streams)

    def count(
        self, streams: Sequence[str], counts: Sequence[int], marks: Sequence[int], now: int
    ) -> list[int | None]:
        """Count events like `observe`, but do not call `hear` and `note_seen`. Return the sequence numbers.

        The caller counts all parts of a chunk, and then calls `hear` and `note_seen` once. The session's number of
        received events, from which missing events per dropped datagram are estimated, then does not depend on the
        division into parts."""
        seqs: list[int | None] = []
        append = seqs.append
        table = self.state.streams
        window, mask = self.window, self.mask
        for name, count, mark in zip(streams, counts, marks, strict=True):
            stream = table.get(name)
            if stream is not None and stream.counted:
                seq = stream.next
                if count == seq & mask:
                    stream.next = seq + 1
                    recent = stream.recent
                    if len(recent) == window and count >= HEAD:
                        recent[seq % window] = mark & _FINGERPRINT
                    else:
                        self.marks.count += stream.remember(seq, count, mark, window)
                    append(seq)
                    continue
            number = self._unexpected(name, stream, count, mark, now)
            if number == RESTART:
                break
            append(number)
        return seqs

    def count_one(self, name: str, count: int, mark: int, now: int) -> int | None:
        """Count one event. Return its sequence number as `observe` does, or `RESTART` if the producer has restarted.

        The caller later calls `hear` and `note_seen` once for all events that it has counted.
        """
        stream = self.state.streams.get(name)
        if stream is not None and stream.counted and count == stream.next & self.mask:
            return self._in_order(stream, count, mark)
        return self._unexpected(name, stream, count, mark, now)

    def hear(self, names: dict[str, None], now: int) -> None:
        """Record for each of the given streams that its last event arrived at `now`, and schedule an acknowledgement
        for it.
        """
        for stream in map(self.state.streams.get, names):
            if stream is not None:
                stream.heard = now
        self.news |= names

    def count_block(self, block: Block, now: int) -> Integers | list[int | None]:
        """Count the events of a block (columns), with the same results as `count`. Return the sequence numbers as a
        column of 64-bit integers.

        Return a list instead if an event has no number or is a duplicate, or if the producer restarted. After a
        restart, the list ends before the first event of the restarted producer."""
        table = self.state.streams
        kernel = InOrder(block, table, self.mask, self.window, HEAD)
        special: dict[int, int | None] = {}
        at = 0
        while (at := kernel.take(at)) < block.rows:
            stream, count, mark = kernel.event(at)
            known, places = stream in table, len(table)
            # Write the stream's state from the compiled kernel back to `table` (the ledger's streams). If the stream is
            # new, write all streams back, because the session may have to stop checking another stream.
            kernel.write(at) if known else kernel.write_back()
            number = self.count_one(stream, count, mark, now)
            if number == RESTART:
                break
            if number is None or number == DUPLICATE:
                special[at] = number
            else:
                kernel.put(at, number)
            if known or (stream in table and len(table) == places + 1):
                kernel.read(at)
            elif stream in table or len(table) != places:
                kernel.read_all()
            at += 1
        kernel.write_back()
        self.marks.count += kernel.added
        seqs = Integers(kernel.seqs)
        if not special and at == block.rows:
            return seqs
        numbers = seqs.list(at)
        for row, number in special.items():
            numbers[row] = number
        return numbers

    def hear_block(self, block: Block, now: int) -> None:
        """Do the work of `hear` for all streams of a block, in the compiled kernel: record when their last events
        arrived."""
        hear(block.stream, block.rows, self.state.streams, self.news, now)

    def note_seen(self, names: Iterable[str], events: int, now: int) -> None:
        """Add `events` to the session's number of received events.

        Then report the holes (missing numbers) that are due at the time `now` as gaps: by `reorder_events` in the
        streams `names`, by `reorder_time` in all streams."""
        self.state.seen += events
        self.windows.heard(names, now)

    def begins_anew(self, name: str, count: int, mark: int) -> bool:
        """Return whether an event shows that the producer has restarted. `count` is its number as sent.

        An event can only show a restart if its time lies far before the time of the stream's last event.
        """
        stream = self.state.streams.get(name)
        if (
            self.announced
            or stream is None
            or not stream.counted
            or not stream.fallen(mark, self.window)
        ):
            return False
        distance = (count - stream.next) & self.mask
        if distance < self._half:
            return distance > 0
        seq = stream.next - (self.mask + 1 - distance)
        if stream.lacks(seq):
            return not stream.suits(seq, mark, self.window)
        known = stream.had(seq, mark, self.window)
        return count < HEAD and seq >= stream.base and not known

    def follow(self, name: str, now: int, *, begins: bool) -> StreamCounter | None:
        """Return the state of the stream `name`, creating it for a new stream. Return None if the stream's numbers are
        not checked, because `streams_max` or `source_streams_max` is reached.

        `begins` states whether the current event has number 0. If not, also return None for an unknown name once the
        session could not remember the names of all unchecked streams (`UNFOLLOWED_MAX`): the name may be one of them.
        """
        state, limits = self.state, self._limits
        if name in state.streams:
            return state.streams[name]
        if name in state.unfollowed or (state.others and not begins):
            return None
        limit = None
        if len(state.streams) >= limits.streams_max:
            limit = "streams_max"
        elif not self._commons.add_stream(self, limits.source_streams_max, now):
            limit = "source_streams_max"
        if limit:
            self._unfollowed.add(name, limit)
            self.news[name] = None
            return None
        stream = state.streams[name] = StreamCounter()
        return stream

    def tell_uncounted(self, name: str) -> None:
        """Schedule an acknowledgement for a stream whose numbers are not checked, unless too many such streams wait."""
        if len(self.news) < len(self.state.streams) + _NEWS_MAX:
            self.news[name] = None

    def free_places(self, count: int, now: int) -> None:
        """Stop checking the numbers of the `count` streams whose last events are the oldest, because another session
        needs to check more streams.

        First report the holes of these streams (missing numbers that may still arrive) as gaps."""
        oldest = nsmallest(count, self.state.streams.items(), key=lambda s: (s[1].heard, s[0]))
        for name, stream in oldest:
            self.windows.close_stream(name, stream)
            self.windows.count(-stream.ranges)
            self.marks.forget(stream)
            self.state.let_go += stream.next - stream.base + stream.extra
            del self.state.streams[name]
            self._unfollowed.add(name, "source_streams_max", followed=True)
            self.news[name] = None
        self._commons.remove_streams(self, len(oldest))
        self.report(now)

    def begin(self, name: str, stream: StreamCounter, count: int, mark: int, now: int) -> None:
        """Set the first sequence number of a new stream. `count` is the number of its first event, as sent.

        If an earlier session of the same producer had the stream, begin where it ended. Otherwise begin at 0, or at
        `count` if it lies in the upper half of the counter's range: the counter is then probably about to wrap."""
        following = self.earlier(name, count, mark, now)
        if following is None and count >= self._half:
            following = count
        stream.base = stream.next = following or 0

    def over(self) -> None:
        """End the session: stop following its streams, and drop the callbacks `earlier` and `report`.

        The callbacks refer back to this object. Without the drop, only a garbage collection would free this cycle."""
        self.release()
        self.earlier = self.report = _nobody

    def release(self) -> None:
        """Subtract the finished session's streams, and its ranges of missing or discarded numbers, from the source's
        totals."""
        self._commons.remove_streams(self, len(self.state.streams))
        self._unfollowed.release()
        self.windows.count(-self.windows.ranges)

    def _in_order(self, stream: StreamCounter, count: int, mark: int) -> int:
        seq = stream.next
        stream.next = seq + 1
        self.marks.count += stream.remember(seq, count, mark, self.window)
        return seq

    def _unexpected(
        self, name: str, stream: StreamCounter | None, count: int, mark: int, now: int
    ) -> int | None:
        is_new = stream is None
        stream = stream or self.follow(name, now, begins=not count)
        if stream is None:
            self._unfollowed.observe(name)
            if len(self.news) > len(self.state.streams) + _NEWS_MAX:
                followed = self.state.streams
                self.news = {known: None for known in self.news if known in followed}
            return None
        if stream.fresh:
            self.begin(name, stream, count, mark, now)
            if is_new and count == stream.next & self.mask:
                return self._in_order(
                    stream, count, mark
                )  # An event with the expected number never shows a restart.
        if not stream.counted:
            stream.extra += 1
            return None
        if self.begins_anew(name, count, mark):
            return RESTART
        before = stream.ranges
        distance = (count - stream.next) & self.mask
        number: int | None
        if distance < self._half:
            number = stream.next + distance
            if distance:
                reason = Reason.NETWORK if stream.next else Reason.LATE_JOIN
                hole = SeqRange(stream.next, number - 1, now, stream.heard or now, reason)
                self.windows.open(name, stream, hole)
            stream.next = number + 1
            self.marks.count += stream.remember(number, number & self.mask, mark, self.window)
        else:
            number = self._late(name, stream, stream.next - (self.mask + 1 - distance), mark, now)
        self.windows.count(stream.ranges - before)
        self.windows.keep_bounds(name, stream)
        return number

    def _late(self, name: str, stream: StreamCounter, seq: int, mark: int, now: int) -> int | None:
        window = self.window
        if self.windows.fill(name, stream, seq, seq + 1):
            self.marks.count += stream.remember(seq, seq & self.mask, mark, window)
            return seq
        if seq < stream.base:
            return self._before(name, stream, seq, mark, now)
        if stream.had(seq, mark, window):
            self.state.duplicates += 1
            return DUPLICATE
        if self._may_be_another(stream, seq):
            return self._another(stream, seq)
        self.state.duplicates += 1
        return DUPLICATE

    def _may_be_another(self, stream: StreamCounter, seq: int) -> bool:
        """Return whether an event may differ from the earlier event with the same number. The caller has found no equal
        mark (fingerprint).

        If a mark is stored for the number, the events differ. Below `floor`, the ledger has forgotten which numbers are
        missing. An event there may be a missing one, unless the client announced its session: such a client uses no
        number twice."""
        if seq < stream.floor:
            return not self.announced
        return stream.mark_of(seq, self.window) != NEVER

    def _before(
        self, name: str, stream: StreamCounter, seq: int, mark: int, now: int
    ) -> int | None:
        """Count an event whose number lies below the stream's first number: the stream now begins at the event's
        number.

        Return the number.
        """
        if seq < 0 or stream.next - seq > self.window:
            return self._another(stream, seq)
        if seq + 1 < stream.base:
            hole = SeqRange(seq + 1, stream.base - 1, now, now, Reason.NETWORK)
            self.windows.open(name, stream, hole)
        stream.base = seq
        self.marks.count += stream.remember(seq, seq & self.mask, mark, self.window)
        return seq

    def _another(self, stream: StreamCounter, seq: int) -> int | None:
        """Count an event whose number another event already had. Return the number, or None if it is negative.

        If several events in a row repeat the stream's latest number, the number is no counter: stop checking the
        stream's numbers."""
        stream.extra += 1
        stream.repeats = stream.repeats + 1 if seq == stream.next - 1 else 0
        if stream.repeats >= _REPEATS_OF_NO_COUNTER:
            stream.counted = False
        return seq if seq >= 0 else None


def hand_over(counters: Counters) -> list[tuple[str, int, int]]:
    """Remove all events from these counters, because another incarnation (run) of the producer sent them. Return
    stream, number as sent and mark (fingerprint) of each event.

    If the counters do not remember every event, or have already reported missing events, remove nothing and return an
    empty list."""
    state, window = counters.state, counters.window
    streams = state.streams
    if (
        state.uncounted
        or state.unfollowed
        or state.duplicates
        or state.unnumbered
        or any(s.next - s.base > window or s.gaps or s.floor or s.extra for s in streams.values())
    ):
        return []
    events = list(counters.numbers.remembered())
    if any(mark == NEVER for _, _, mark in events):
        return []
    counters.release()
    streams.clear()
    counters.marks.count = 0
    state.seen = state.missing = state.tails = state.never_sent = state.unnumbered_before = 0
    counters.windows.forget()
    return events


def begin_behind(counters: Counters, name: str, numbers: range) -> None:
    """Let a stream begin later: remove the missing numbers at its start that lie in `numbers`, because another session
    received these events or reports them as missing.
    """
    stream = counters.state.streams.get(name)
    if stream is None or not stream.counted:
        return
    before = stream.ranges
    while stream.base in numbers:
        count = counters.windows.fill(name, stream, stream.base, numbers.stop)
        if not count:
            break
        stream.base += count
    counters.windows.count(stream.ranges - before)
