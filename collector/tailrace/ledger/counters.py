"""Compare the sequence numbers of events with the expected ones, to find missing, late and duplicate events and
restarts of the producer.

A stream's counter starts at 0, increases by 1 per event and wraps, as in Heph (docs/formats/heph.md). Let `d` be the
distance of an event's number from the expected number, modulo the counter's range:

- d = 0: the event is in order.
- d < half the range: `d` events are missing, and their numbers form a *hole*, which late events may still fill. After
  `reorder_events` further events of the stream, or after `reorder_time`, it becomes a *gap*: a row reports the missing
  events.
- Otherwise the event is late. It fills a hole, fills a part of a gap (a row of the kind heal reports this), or repeats
  an earlier number. In the last case, it is a duplicate if its mark (fingerprint: times and size) equals that of the
  earlier event.

A new stream that continues no earlier session begins at 0, or at its first number if that lies in the upper half of the
range: billions of missing events are less plausible than a counter that is about to wrap. An event shows a restart if
its time lies far before the time of the stream's last event and its number does not fit a late event. If several
different events in a row repeat a number, the number is not a counter, and the stream's numbers are no longer checked.

Beyond `streams_max` or `source_streams_max`, a stream is not followed: its events are stored without a number, and a
gap of unknown size is reported for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tailrace.ledger.bounds import Commons
from tailrace.ledger.stream import (
    FINGERPRINT,
    HEAD,
    NEVER,
    CountersState,
    HeldMarks,
    Marks,
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


RESTART = -2
"""Result in place of a sequence number: the event shows that the producer has restarted, and was not counted."""

_NEWS_MAX = 256
"""Maximum number of streams without checked sequence numbers that may wait for an acknowledgement at the same time."""

LATEST = 2**63 - 1
"""Mark (event fingerprint) for an event of which a client's report states only the number. The mark is greater than all
others, so that the event never seems older than another event."""

_REPEATS_OF_NO_COUNTER = 3

STREAM_BYTES = 768


def _nobody(*_: object) -> None:
    """Accept any arguments and return None."""


class Counters:
    """Checks the sequence numbers of all streams of one session, to find missing, duplicate and late events."""

    def __init__(
        self,
        limits: LedgerConfig,
        bits: int,
        state: CountersState,
        commons: Commons,
        *,
        name: str = "",
        report: Callable[[int], None] = _nobody,
    ) -> None:
        """Restore the counters of the session `name` from `state`. `free_places` adds gaps to `findings`, and then
        calls `report` with the current time (ns) of the spool's log, which never goes back."""
        self.state = state
        self.name = name
        self.report = report
        self.earlier: Callable[[str, int, int, int], int | None] = _nobody
        """Called when a stream may continue a stream of an earlier session of the producer. Arguments: name of the
        stream, number (as sent) and fingerprint of its first event, time (ns) of the spool's log. Returns the number
        with which the stream continues, or None if there is no such session."""
        self._limits = limits
        self.window = limits.reorder_events
        self.mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)
        self._commons = commons
        commons.shares.add(self, len(state.streams))
        self.windows = Windows(limits, state, commons)
        self.findings = self.windows.findings
        self.numbers = StreamNumbers(state.streams, self.window, bits)
        self.marks = HeldMarks(state.streams)
        self.announced = False
        """Whether the client states its session's id, which shows restarts, so that the ledger does not infer restarts
        from event times."""
        self.news = dict.fromkeys(state.streams)
        """Streams whose state has changed since the last acknowledgement to the client, in order of the changes."""

    @property
    def account(self) -> Account:
        state, unnumbered = self.state, self.unnumbered
        expected = sum(s.next - s.base + s.extra for s in state.streams.values())
        expected += state.let_go + state.uncounted + unnumbered
        missing = state.missing + unnumbered
        return Account(expected, state.seen, missing, state.duplicates, state.uncounted)

    @property
    def unnumbered(self) -> int:
        """Return the least possible number of discarded events without a sequence number.

        The client states only the total of its discarded events. Each number that has not arrived may belong to one of
        them. So the result is the total, less all these numbers, less the discarded events that gaps of earlier
        sessions report. If the numbers of some streams are not checked, these streams may contain further discarded
        events. The result is then at most the number that is already reported.
        """
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
        self, streams: Sequence[str], counts: Sequence[int], marks: Sequence[int], now: int
    ) -> tuple[list[int | None], bool]:
        """Count events. Return the sequence number (unwrapped to 64 bits) of each one, and whether the producer has
        restarted.

        `counts` are the numbers as sent. A mark is the sum of an event's start, end and size. The list has DUPLICATE
        for a duplicate, and None for an event whose number is not checked. After a restart, the list ends before the
        first event of the restarted producer.
        """
        seqs = self.count(streams, counts, marks, now)
        self.hear(dict.fromkeys(streams), now)
        self.note_seen(streams, len(seqs), now)
        return seqs, len(seqs) < len(streams)

    def count(
        self, streams: Sequence[str], counts: Sequence[int], marks: Sequence[int], now: int
    ) -> list[int | None]:
        """Count events like `observe`, but do not call `hear` and `note_seen`. The caller calls these once for a whole
        chunk, so that estimates from `seen` do not depend on how the chunk is divided into parts."""
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
                        recent[seq % window] = mark & FINGERPRINT
                    else:
                        self._remember(stream, seq, mark)
                    append(seq)
                    continue
            number = self._unexpected(name, stream, count, mark, now)
            if number == RESTART:
                break
            append(number)
        return seqs

    def count_one(self, name: str, count: int, mark: int, now: int) -> int | None:
        """Count one event. Return its sequence number as `observe` does, or `RESTART` if the producer has restarted."""
        stream = self.state.streams.get(name)
        if stream is not None and stream.counted and count == stream.next & self.mask:
            return self._in_order(stream, mark)
        return self._unexpected(name, stream, count, mark, now)

    def hear(self, names: dict[str, None], now: int) -> None:
        """Record that events of the given streams arrived at `now`, and schedule acknowledgements for these streams."""
        for stream in map(self.state.streams.get, names):
            if stream is not None:
                stream.heard = now
        self.news |= names

    def count_block(self, block: Block, now: int) -> Integers | list[int | None]:
        """Count the events of a block, as `count` does. Return the sequence numbers as a column, or as a list if an
        event has no number or is a duplicate, or if the producer restarted."""
        table = self.state.streams
        kernel = InOrder(block, table, self.mask, self.window, HEAD)
        special: dict[int, int | None] = {}
        at = 0
        while (at := kernel.take(at)) < block.rows:
            stream, count, mark = kernel.event(at)
            known, places = stream in table, len(table)
            # Write the stream's state from the compiled kernel back to `table` (the ledger's streams). If the stream is
            # new, write all streams back: the session may have to stop checking another stream, and chooses it by the
            # states in `table`.
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
        """Record that events of a block's streams arrived at `now`, and schedule acknowledgements, as `hear` does. The
        compiled kernel does the work."""
        hear(block.stream, block.rows, self.state.streams, self.news, now)

    def note_seen(self, names: Iterable[str], events: int, now: int) -> None:
        """Add `events` to the number of received events, and report holes (missing numbers) that are due as gaps."""
        self.state.seen += events
        self.windows.heard(names, now)

    def begins_anew(self, name: str, count: int, mark: int) -> bool:
        """Return whether an event shows that the producer has restarted. `count` is its number as sent."""
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
        return count < HEAD and (seq >= stream.base or self.state.late) and not known

    def follow(self, name: str, now: int, *, begins: bool) -> StreamCounter | None:
        """Return the state of the stream `name`. Begin to check a new stream, unless a limit is reached. Return None if
        the stream's numbers are not checked.

        If the names of some unchecked streams are not remembered, an unknown stream counts as one of these. But if
        `begins` states that its event has number 0, the stream is new."""
        state, limits = self.state, self._limits
        if name in state.streams:
            return state.streams[name]
        if name in state.unfollowed or (state.others and not begins):
            return None
        if len(state.streams) >= limits.streams_max:
            self._leave_uncounted(name, "streams_max")
        elif not self._commons.add_stream(self, limits.source_streams_max, now):
            self._leave_uncounted(name, "source_streams_max")
        else:
            state.streams[name] = StreamCounter()
        return state.streams.get(name)

    def _leave_uncounted(self, name: str, limit: str, *, followed: bool = False) -> None:
        """Record that the numbers of the stream `name` are not checked because of the configured limit `limit`, and
        report a gap of unknown size. Beyond `UNFOLLOWED_MAX` names, all further streams share one gap. A stream whose
        numbers were checked before (`followed`) always gets a gap of its own."""
        state, named = self.state, [name] if followed else []
        self._commons.state.uncounted_sessions += not state.unfollowed
        if len(state.unfollowed) < UNFOLLOWED_MAX:
            state.unfollowed[name] = 0
            named = [name]
        elif not state.others:
            state.others = True
            named = ["", *named]
        gap = Finding(Kind.GAP, "", None, 0, Reason.UNCOUNTED, detail=limit)
        self.findings += [gap._replace(stream=each) for each in named]
        self.news[name] = None

    def tell_uncounted(self, name: str) -> None:
        """Schedule an acknowledgement for a stream whose numbers are not checked, unless too many such streams already
        wait for one."""
        if len(self.news) < len(self.state.streams) + _NEWS_MAX:
            self.news[name] = None

    def free_places(self, count: int, now: int) -> None:
        """Stop checking the `count` streams that have had no event for the longest time, so that another session can
        check streams. First report their holes (missing numbers that may still arrive) as gaps."""
        oldest = nsmallest(count, self.state.streams.items(), key=lambda s: (s[1].heard, s[0]))
        for name, stream in oldest:
            self.windows.close_stream(name, stream)
            self.windows.count(-stream.ranges)
            self.marks.forget(stream)
            self.state.let_go += stream.next - stream.base + stream.extra
            del self.state.streams[name]
            self._leave_uncounted(name, "source_streams_max", followed=True)
        self._commons.remove_streams(self, len(oldest))
        self.report(now)

    def begin(self, name: str, stream: StreamCounter, count: int, mark: int, now: int) -> None:
        """Set the first sequence number of a new stream. If the stream continues an earlier session, this is the
        session's next number. Otherwise it is 0, or `count` (as sent) if `count` lies in the upper half of the
        range."""
        following = self.earlier(name, count, mark, now)
        if following is None and count >= self._half:
            following = count
        stream.base = stream.next = following or 0

    def over(self) -> None:
        """End the session. Drop the callbacks, which refer back to this object: otherwise only a garbage collection
        would free the cycle."""
        self.release()
        self.earlier = self.report = _nobody

    def release(self) -> None:
        self._commons.remove_streams(self, len(self.state.streams))
        self._commons.state.uncounted_sessions -= bool(self.state.unfollowed)
        self.windows.count(-self.windows.ranges)

    def _in_order(self, stream: StreamCounter, mark: int) -> int:
        seq = stream.next
        stream.next = seq + 1
        self._remember(stream, seq, mark)
        return seq

    def _remember(self, stream: StreamCounter, seq: int, mark: int) -> None:
        """Store the mark (fingerprint) of the event `seq`, if it is one of the last `window` numbers, or one of the first
        `HEAD` numbers after the newest wrap of the counter."""
        mark &= FINGERPRINT
        if seq >= stream.next - self.window:
            self._put(stream.recent, seq % self.window, mark, self.window)
        if (count := seq & self.mask) < HEAD:
            zero = seq - count
            if zero > stream.zero:
                self.marks.count -= len(stream.head)
                stream.zero, stream.head = zero, Marks()
            if zero == stream.zero:
                self._put(stream.head, count, mark, HEAD)

    def _put(self, marks: Marks, slot: int, mark: int, most: int) -> None:
        """Store a mark (fingerprint) at an index of an array. If the index is `HEAD` or more, extend the array to
        `most` elements at once, because compiled kernels need the full array."""
        more = (slot + 1 if slot < HEAD else most) - len(marks)
        if more > 0:
            marks.frombytes(bytes(marks.itemsize * more))
            self.marks.count += more
        marks[slot] = mark

    def _unexpected(
        self, name: str, stream: StreamCounter | None, count: int, mark: int, now: int
    ) -> int | None:
        is_new = stream is None
        stream = stream or self.follow(name, now, begins=not count)
        if stream is None:
            state = self.state
            state.uncounted += 1
            if name in state.unfollowed:
                state.unfollowed[name] += 1
            if len(self.news) > len(state.streams) + _NEWS_MAX:
                self.news = {known: None for known in self.news if known in state.streams}
            return None
        if stream.fresh:
            self.begin(name, stream, count, mark, now)
            if is_new and count == stream.next & self.mask:
                # An event with the expected number never shows a restart.
                return self._in_order(stream, mark)
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
            self._remember(stream, number, mark)
        else:
            number = self._late(name, stream, stream.next - (self.mask + 1 - distance), mark, now)
        self.windows.count(stream.ranges - before)
        self.windows.keep_bounds(name, stream)
        return number

    def _late(self, name: str, stream: StreamCounter, seq: int, mark: int, now: int) -> int | None:
        if self.windows.fill(name, stream, seq, seq + 1):
            self._remember(stream, seq, mark)
            return seq
        if seq < stream.base:
            return self._before(name, stream, seq, mark, now)
        # The event is a duplicate, unless a different event had this number: the stored mark (fingerprint) of the
        # earlier event then differs. Below `floor`, the event may also be a missing one whose gap was forgotten. But a
        # client that stated the session's id uses no number twice, so such an event is a duplicate.
        known = stream.mark_of(seq, self.window)
        differs = not self.announced if seq < stream.floor else known != NEVER
        if differs and known != mark & FINGERPRINT:
            return self._another(stream, seq)
        self.state.duplicates += 1
        return DUPLICATE

    def _before(
        self, name: str, stream: StreamCounter, seq: int, mark: int, now: int
    ) -> int | None:
        """Count an event below the stream's first number, and move the stream's beginning to this event. Return the
        event's number. Do not move the beginning if the input begins late and numbers lie in between, because another
        input may have these numbers."""
        late = self.state.late and seq + 1 < stream.base
        if seq < 0 or late or stream.next - seq > self.window:
            return self._another(stream, seq)
        if seq + 1 < stream.base:
            hole = SeqRange(seq + 1, stream.base - 1, now, now, Reason.NETWORK)
            self.windows.open(name, stream, hole)
        stream.base = seq
        self._remember(stream, seq, mark)
        return seq

    def _another(self, stream: StreamCounter, seq: int) -> int | None:
        """Count an event whose number a different event already had, or whose number is too far below the stream's
        first one. Return the number, or None if it is negative. If several events in a row repeat the latest number,
        the number is not a counter: stop checking the stream."""
        stream.extra += 1
        stream.repeats = stream.repeats + 1 if seq == stream.next - 1 else 0
        if stream.repeats >= _REPEATS_OF_NO_COUNTER:
            stream.counted = False
        return seq if seq >= 0 else None


def hand_over(counters: Counters) -> list[tuple[str, int, int]]:
    """Remove all counted events, because another run of the producer sent them. Return the stream, number as sent and
    mark (fingerprint) of each event. If not every event is remembered, or a loss or a duplicate was counted, remove
    nothing and return an empty list."""
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
    """Remove missing numbers at the start of a stream that lie in `numbers`, because another session has them."""
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
