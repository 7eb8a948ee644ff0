"""Compares a producer's own counters with the events that came: holes, late events, duplicates, restarts.

A stream's counter starts at 0, adds 1 an event and wraps, as in Heph (docs/formats/heph.md). It is
followed unwrapped in 64 bits. With `d`, the counter's distance from the expected value modulo its range:

- d = 0: in order.
- d < half the range: `d` events are missing, a *hole*. Late events may fill it for `reorder_events`
  further events of its stream or for `reorder_time`, whichever ends first.
  Then it becomes a gap. A hole that reaches down to 0 in a new stream is `late_join`; in other holes, events that the
  kernel dropped are `kernel` (see `bounds`) and the rest `network`. A new stream begins where an
  earlier session of the same producer left it, if `earlier` knows one.
  A new stream whose first number lies in the upper half begins there: it may be about to wrap, and
  billions missing is never true.
- Otherwise the event is late. It fills an open hole, repays a gap (a heal), or was seen before: it is a
  duplicate if its mark (times and size) is the one seen under its number. Marks are remembered for
  the last `reorder_events` numbers and for the first `HEAD`, anew each time the counter wraps.
- An event whose time lies far before the stream's last one (`fallen`) shows a restart of its producer if
  its number is ahead, or missing with a later time below it, or near 0 and another event's.
- A number that repeats again and again is no counter: such a stream is stored and not counted.
- `statements` applies a client's own words about its numbers (discarded, last).
- `hand_over` and `begin_behind` move numbers between sessions, when they turn out to be another's.
- A stream for which a limit leaves no place is not followed (`Unfollowed`): its events are stored without a number, a gap of
  unknown size names it, and it is never followed again. The first `UNFOLLOWED_MAX` such streams of a session are
  remembered. Further ones share one gap without a stream; from then on a new stream is followed only from its number 0
  on, since any other number may belong to a stream that lost its place.
- `Counters.count_block` counts a block: the kernel the events that come in order, the ledger all others.

Memory: `STREAM_BYTES` a stream; `stream.MARK_BYTES` for each of `reorder_events` numbers and of the first
`HEAD`; `holes_max` holes and as many closed gaps of `windows.RANGE_BYTES`. All sessions of a source together have
`source_streams_max` streams and `source_holes_max` holes and gaps (see `bounds`), and give way if
they hold more bytes than they may (`ingest.limits`). Forgotten gaps cannot heal any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tailrace.ledger.bounds import Commons
from tailrace.ledger.findings import Account, Finding
from tailrace.ledger.stream import (
    HEAD,
    NEVER,
    CountersState,
    HeldMarks,
    SeqRange,
    StreamCounter,
    StreamNumbers,
    take,
    take_from,
)
from tailrace.ledger.windows import Windows
from tailrace.model.gap import Reason
from tailrace.model.record import Kind
from tailrace.rows.block import Block, Integers
from tailrace.rows.records import DUPLICATE

if TYPE_CHECKING or active():
    from tailrace.ledger._observe import InOrder, hear

UNFOLLOWED_MAX = 64
"""Streams without room that a session remembers by name."""


class Unfollowed:
    """The streams of one session that are not followed."""

    def __init__(self, state: CountersState, commons: Commons, findings: list[Finding]) -> None:
        """Take the list `findings`, to which gaps are appended."""
        self._state = state
        self._commons = commons
        self._findings = findings

    def add(self, name: str, limit: str, *, followed: bool = False) -> None:
        """Note that a stream has no place because of a limit. A stream that was `followed`, or is
        remembered, gets a gap of its own."""
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
        """Count an event of a stream that is not followed."""
        state = self._state
        state.uncounted += 1
        if name in state.unfollowed:
            state.unfollowed[name] += 1

    def release(self) -> None:
        """Take the session out of the source's figure, because the session is over."""
        self._commons.state.uncounted_sessions -= bool(self._state.unfollowed)

    def _say(self, name: str, limit: str) -> None:
        self._findings.append(Finding(Kind.GAP, name, None, 0, Reason.UNCOUNTED, detail=limit))


RESTART = -2
"""In place of a sequence number: the event is the first of a new incarnation, and not counted."""

_NEWS_MAX = 256
"""Streams without a place whose clients are still to be told; further ones are told when they are heard again."""

LATEST = 2**63 - 1
"""A mark later than all events."""

_REPEATS_OF_NO_COUNTER = 3
_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF

STREAM_BYTES = 768
"""Bytes of a stream without its marks, holes and gaps."""

EarlierNumber = Callable[[str, int, int, int], int | None]
"""Returns the number with which a stream continues an earlier session's, or None if it begins here. The arguments
are the stream, the number on the wire and the mark of its first event here, and the time (Unix ns)."""


def _nobody(*_: object) -> None:
    """Return nothing: there is nobody to ask or to tell."""


class Counters:
    """The counters of one session."""

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
        """`name` is the session's. `report(now)` is called when findings arise without an event of
        the session."""
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
        """Whether the client announces its restarts, so that none is guessed."""
        self.news = dict.fromkeys(state.streams)
        """Streams with news that the client was not told, in the order in which the news came."""

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
        """Count the events that the client reports as discarded and that no number shows.

        Every missing number counts as such an event, since the network's losses look the same. If some numbers are not
        followed, a gap of unknown size covers them, and the count only falls any more: as numbers show events of it."""
        state = self.state
        if state.never_sent <= state.missing:
            return 0
        shown = state.missing + sum(stream.base for stream in state.streams.values())
        unnumbered = max(0, state.never_sent - shown)
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
        """Count events. Return their unwrapped numbers, and whether a restart stopped the count early.

        `marks` tell events apart and grow with their times (start + end + size). A duplicate gets
        the number DUPLICATE, an event of an uncounted stream None. After a restart, the
        first event of the new incarnation and all later ones are not counted.
        """
        seqs, restart = self.count(streams, counts, marks, now)
        self.hear(dict.fromkeys(streams), now)
        self.note_seen(streams, len(seqs), now)
        return seqs, restart

    def count(
        self, streams: Sequence[str], counts: Sequence[int], marks: Sequence[int], now: int
    ) -> tuple[list[int | None], bool]:
        """Count events as `observe` does; call `hear` and `note_seen` afterwards, once for all parts of a chunk.

        The estimate of what the kernel dropped rests on the number of events seen. So the number may not depend on how
        a chunk is parted."""
        seqs: list[int | None] = []
        append = seqs.append
        table = self.state.streams
        window, mask = self.window, self.mask
        restart = False
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
                restart = True
                break
            append(number)
        return seqs, restart

    def count_one(self, name: str, count: int, mark: int, now: int) -> int | None:
        """Count an event; call `hear` and `note_seen` afterwards. Return its number, or `RESTART`."""
        stream = self.state.streams.get(name)
        if stream is not None and stream.counted and count == stream.next & self.mask:
            return self._in_order(stream, count, mark)
        return self._unexpected(name, stream, count, mark, now)

    def hear(self, names: dict[str, None], now: int) -> None:
        """Set the time at which these streams were last heard, and let the next answer to the client name them."""
        for stream in map(self.state.streams.get, names):
            if stream is not None:
                stream.heard = now
        self.news |= names

    def count_block(self, block: Block, now: int) -> Integers | list[int | None]:
        """Count the events of a block, as `count` counts those of lists.

        Return their sequence numbers as a column or, where an event has none or was seen before, as a list. A list that
        is shorter than the block ends before the first event of the next incarnation."""
        table = self.state.streams
        kernel = InOrder(block, table, self.mask, self.window, HEAD)
        special: dict[int, int | None] = {}
        at = 0
        while (at := kernel.take(at)) < block.rows:
            stream, count, mark = kernel.event(at)
            known, places = stream in table, len(table)
            # A new stream may take the places of others.
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
        """Do the same as `hear` for the streams of a block, in the kernel."""
        hear(block.stream, block.rows, self.state.streams, self.news, now)

    def note_seen(self, names: Iterable[str], events: int, now: int) -> None:
        """Add events to those that were seen, and close the windows of these streams that have passed."""
        self.state.seen += events
        self.windows.heard(names, now)

    def begins_anew(self, name: str, count: int, mark: int) -> bool:
        """Return whether an event would count as a restart."""
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
        """Return a stream, made if it is new, or None if there is no place for it.

        `begins`: whether its number 0 has come. Nothing else shows that a stream never had a place before, where
        not all that lost theirs are remembered."""
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
        """Let the client be told of a stream that has no place, unless very many others are to be told."""
        if len(self.news) < len(self.state.streams) + _NEWS_MAX:
            self.news[name] = None

    def free_places(self, count: int, now: int) -> None:
        """Give up the places of the longest silent streams, because another session needs so many.

        Their known losses become gaps."""
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
        """Let a stream begin where an earlier session left it, at this number if it is in the upper
        half of the range, or else at 0."""
        following = self.earlier(name, count, mark, now)
        if following is None and count >= self._half:
            following = count
        stream.base = stream.next = following or 0

    def over(self) -> None:
        """Take nothing more: the session is over. Let go of those that are asked and told, which have these counters
        themselves: Python frees a circle late, and finds it by looking at all objects."""
        self.release()
        self.earlier = self.report = _nobody

    def release(self) -> None:
        """Free the session's part of the source's bounds, because the session is over."""
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
                return self._in_order(stream, count, mark)  # nothing can show a restart
        if not stream.counted:
            stream.extra += 1
            return None
        if self.begins_anew(name, count, mark):
            return RESTART
        before = stream.ranges
        distance = (count - stream.next) & self.mask
        number: int | None
        if distance < self._half:
            number = self._ahead(name, stream, distance, mark, now)
        else:
            number = self._late(name, stream, stream.next - (self.mask + 1 - distance), mark, now)
        self.windows.count(stream.ranges - before)
        self.windows.keep_bounds(name, stream)
        return number

    def _ahead(self, name: str, stream: StreamCounter, distance: int, mark: int, now: int) -> int:
        seq = stream.next + distance
        if distance:
            reason = Reason.NETWORK if stream.next else Reason.LATE_JOIN
            hole = SeqRange(stream.next, seq - 1, now, stream.heard or now, reason)
            self.windows.open(name, stream, hole)
        stream.next = seq + 1
        self.marks.count += stream.remember(seq, seq & self.mask, mark, self.window)
        return seq

    def _late(self, name: str, stream: StreamCounter, seq: int, mark: int, now: int) -> int | None:
        window = self.window
        filled = take(stream.holes, seq)
        healed = None if filled else take(stream.gaps, seq)
        if filled or healed:
            self.state.missing -= 1
            self.marks.count += stream.remember(seq, seq & self.mask, mark, window)
            if healed:
                self.findings.append(Finding(Kind.HEAL, name, seq, 1, healed.reason))
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
        """Return whether an event that is not missing may differ from the one that came under its number.

        Below the floor, nobody knows which numbers came. A client that announced its session uses no
        number twice, so its event is a copy, or lies in a gap that stays."""
        if seq < stream.floor:
            return not self.announced
        return stream.mark_of(seq, self.window) != NEVER

    def _before(
        self, name: str, stream: StreamCounter, seq: int, mark: int, now: int
    ) -> int | None:
        """Move a stream's beginning down to an event older than the first one seen."""
        if seq < 0 or stream.next - seq > self.window:
            return self._another(stream, seq)
        if seq + 1 < stream.base:
            hole = SeqRange(seq + 1, stream.base - 1, now, now, Reason.NETWORK)
            self.windows.open(name, stream, hole)
        stream.base = seq
        self.marks.count += stream.remember(seq, seq & self.mask, mark, self.window)
        return seq

    def _another(self, stream: StreamCounter, seq: int) -> int | None:
        """Keep a different event under a number that was seen, and stop counting if that goes on."""
        stream.extra += 1
        stream.repeats = stream.repeats + 1 if seq == stream.next - 1 else 0
        if stream.repeats >= _REPEATS_OF_NO_COUNTER:
            stream.counted = False
        return seq if seq >= 0 else None


def hand_over(counters: Counters) -> list[tuple[str, int, int]]:
    """Give up all events, which belong to another incarnation from now on. Return them as
    `Numbers.remembered` does.

    Return nothing, and give up nothing, if not all events are remembered, or if events were reported missing."""
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
    state.seen = state.missing = state.tails = state.never_sent = 0
    counters.windows.forget()
    return events


def begin_behind(counters: Counters, name: str, numbers: range) -> None:
    """Let a stream begin behind the missing ones of these numbers, because another session
    accounts for them."""
    stream = counters.state.streams.get(name)
    if stream is None or not stream.counted:
        return
    before = stream.ranges
    while stream.base in numbers:
        hole = take_from(stream.holes, stream.base, numbers.stop)
        gap = None if hole else take_from(stream.gaps, stream.base, numbers.stop)
        missing = hole or gap
        if missing is None:
            break
        count = missing.last - missing.first + 1
        if gap:
            counters.findings.append(Finding(Kind.HEAL, name, gap.first, count, gap.reason))
        counters.state.missing -= count
        stream.base += count
    counters.windows.count(stream.ranges - before)
