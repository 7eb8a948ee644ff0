"""Per-stream event counters: holes, late events, duplicates, restarts, wrap-around.

A stream's counter starts at 0, adds 1 an event and wraps (Heph specification, "stream event
counter"; formats/heph.md: first value and wrap as real writers do it). It is followed unwrapped in
64 bits. What a counter says of an event, `d` being its distance from the expected value modulo the
counter's range:

- d = 0: in order.
- d < half the range: `d` events are missing: a *hole*. A hole stays open for `reorder_events`
  further events of its stream or `reorder_time`, whichever ends first, for late events to fill.
  Then it is a gap. A hole that reaches down to 0 in a new stream is `late_join`, others `network`.
  A new stream whose first number lies in the upper half is taken to begin there: it cannot be told
  from one that is about to wrap, and billions missing is never the truth.
- else the event is late. It fills an open hole; or repays a gap (a heal); or it was seen before: a
  duplicate when its times and size are those seen under that number, which is remembered for the
  last `reorder_events` numbers.
- A number near 0 whose times lie far before the stream's last ones is a restart of the producer.
- A number that repeats and repeats is no counter: such a stream is stored but not counted on.

Blind spots: the tail of a stream and a stream of which nothing came (a counter has no end); a
restart whose times and numbers continue; a run repeated to the nanosecond from the same socket.

Memory: about 40 bytes for each of `reorder_events` numbers a stream, `holes_max` holes and as many
closed gaps; gaps beyond that can no longer be healed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.findings import Finding
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

DUPLICATE = -1
"""In place of a sequence number: this event was seen before."""

_RESTART_BELOW = 16
_REPEATS_OF_NO_COUNTER = 3
_FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF


class Hole(msgspec.Struct, array_like=True):
    """Numbers `first` to `last` have not come; `since` is when that was noticed (Unix ns)."""

    first: int
    last: int
    since: int
    reason: str


class StreamCounter(msgspec.Struct, omit_defaults=True):
    base: int = 0
    """The first number counted on."""
    next: int = 0
    counted: bool = True
    repeats: int = 0
    extra: int = 0
    """Events beyond the counter: different ones under one number."""
    floor: int = 0
    """Below this, closed gaps are no longer remembered."""
    recent: list[int] = []
    holes: list[Hole] = []
    gaps: list[Hole] = []


class Account(msgspec.Struct):
    """Events by what became of them: expected = seen + missing - duplicates."""

    expected: int = 0
    seen: int = 0
    missing: int = 0
    duplicates: int = 0

    @property
    def imbalance(self) -> int:
        return self.expected - (self.seen + self.missing - self.duplicates)


class CountersState(msgspec.Struct):
    streams: dict[str, StreamCounter] = {}
    seen: int = 0
    duplicates: int = 0
    missing: int = 0
    """In open holes and unhealed gaps."""
    uncounted: int = 0
    """Events of streams past `streams_max`."""


class Counters:
    """The counters of one session."""

    def __init__(self, limits: LedgerConfig, bits: int, state: CountersState) -> None:
        self.state = state
        self.findings: list[Finding] = []
        self._limits = limits
        self._window = limits.reorder_events
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)
        self._open = {name for name, stream in state.streams.items() if stream.holes}

    @property
    def account(self) -> Account:
        state = self.state
        expected = sum(s.next - s.base + s.extra for s in state.streams.values())
        return Account(expected + state.uncounted, state.seen, state.missing, state.duplicates)

    def observe(
        self,
        streams: Sequence[str],
        counts: Sequence[int],
        marks: Sequence[int],
        now: int,
    ) -> tuple[list[int | None], bool]:
        """Take events; give their unwrapped numbers, and whether a restart ended it early.

        `marks` tell events apart and grow with their times (start + end + size). A duplicate's
        number is DUPLICATE, that of an event of an uncounted stream None. After a restart the
        events from that one on have not been taken.
        """
        seqs: list[int | None] = []
        append = seqs.append
        table = self.state.streams
        window, mask = self._window, self._mask
        restart = False
        for name, count, mark in zip(streams, counts, marks, strict=True):
            stream = table.get(name)
            if stream is not None and stream.counted:
                seq = stream.next
                if count == seq & mask:
                    stream.next = seq + 1
                    recent = stream.recent
                    if len(recent) == window:
                        recent[seq % window] = mark & _FINGERPRINT
                    else:
                        self._remember(stream, seq, mark)
                    append(seq)
                    continue
            number = self._unexpected(name, stream, count, mark, now)
            if number == _RESTART:
                restart = True
                break
            append(number)
        self.state.seen += len(seqs)
        if self._open:
            self.expire(now)
        return seqs, restart

    def expire(self, now: int) -> None:
        """Close the holes whose window has passed."""
        oldest = now - self._limits.reorder_time.ns
        for name in sorted(self._open):
            stream = self.state.streams[name]
            horizon = stream.next - self._window
            keep = []
            for hole in stream.holes:
                if hole.last < horizon or hole.since <= oldest:
                    self._close(name, stream, hole)
                else:
                    keep.append(hole)
            stream.holes = keep
            if not keep:
                self._open.discard(name)

    def close(self) -> None:
        """Close all holes: nothing late will come, or nobody wants to wait for it."""
        for name in sorted(self._open):
            stream = self.state.streams[name]
            for hole in stream.holes:
                self._close(name, stream, hole)
            stream.holes = []
        self._open.clear()

    @property
    def waiting(self) -> bool:
        """Whether time alone can close a hole."""
        return bool(self._open)

    def _unexpected(
        self, name: str, stream: StreamCounter | None, count: int, mark: int, now: int
    ) -> int | None:
        if stream is None:
            if len(self.state.streams) >= self._limits.streams_max:
                self.state.uncounted += 1
                return None
            first = count if count >= self._half else 0
            stream = self.state.streams[name] = StreamCounter(base=first, next=first)
        if not stream.counted:
            stream.extra += 1
            return None
        distance = (count - stream.next) & self._mask
        if distance < self._half:
            return self._ahead(name, stream, distance, mark, now)
        seq = stream.next - (self._mask + 1 - distance)
        return self._late(name, stream, seq, count, mark, now)

    def _ahead(self, name: str, stream: StreamCounter, distance: int, mark: int, now: int) -> int:
        seq = stream.next + distance
        if distance:
            reason = Reason.LATE_JOIN if stream.next == stream.base else Reason.NETWORK
            stream.holes.append(Hole(stream.next, seq - 1, now, reason))
            self.state.missing += distance
            self._open.add(name)
            if len(stream.holes) > self._limits.holes_max:
                self._close(name, stream, stream.holes.pop(0))
        stream.next = seq + 1
        self._remember(stream, seq, mark)
        return seq

    def _late(
        self, name: str, stream: StreamCounter, seq: int, count: int, mark: int, now: int
    ) -> int | None:
        filled = _take(stream.holes, seq)
        healed = None if filled else _take(stream.gaps, seq)
        if filled or healed:
            self.state.missing -= 1
            self._remember(stream, seq, mark)
            if healed:
                self.findings.append(Finding(Kind.HEAL, name, seq, 1, healed))
            elif not stream.holes:
                self._open.discard(name)
            return seq
        if seq < stream.base:
            return self._before(name, stream, seq, mark, now)
        known = seq >= stream.next - self._window
        if known and self._recall(stream, seq) == mark & _FINGERPRINT:
            self.state.duplicates += 1
            return DUPLICATE
        if count < _RESTART_BELOW and mark < self._recall(stream, stream.next - 1) // 2:
            return _RESTART
        if known or seq < stream.floor:
            return self._another(stream, seq)
        self.state.duplicates += 1
        return DUPLICATE

    def _before(
        self, name: str, stream: StreamCounter, seq: int, mark: int, now: int
    ) -> int | None:
        """An event older than the first one seen: the stream began there."""
        if seq < 0 or stream.next - seq > self._window:
            return self._another(stream, seq)
        if seq + 1 < stream.base:
            stream.holes.insert(0, Hole(seq + 1, stream.base - 1, now, Reason.NETWORK))
            self.state.missing += stream.base - seq - 1
            self._open.add(name)
        stream.base = seq
        self._remember(stream, seq, mark)
        return seq

    def _another(self, stream: StreamCounter, seq: int) -> int | None:
        """A different event under a number that was seen: keep it, and notice when all are so."""
        stream.extra += 1
        stream.repeats = stream.repeats + 1 if seq == stream.next - 1 else 0
        if stream.repeats >= _REPEATS_OF_NO_COUNTER:
            stream.counted = False
        return seq if seq >= 0 else None

    def _remember(self, stream: StreamCounter, seq: int, mark: int) -> None:
        recent, window = stream.recent, self._window
        slot = seq % window
        if slot >= len(recent):
            recent.extend([_NEVER] * (slot + 1 - len(recent)))
        recent[slot] = mark & _FINGERPRINT

    def _recall(self, stream: StreamCounter, seq: int) -> int:
        slot = seq % self._window
        return stream.recent[slot] if slot < len(stream.recent) else _NEVER

    def _close(self, name: str, stream: StreamCounter, hole: Hole) -> None:
        """Make a hole a gap; one that continues the stream's last gap for the same reason still is
        a finding of its own, but is remembered with it."""
        count = hole.last - hole.first + 1
        self.findings.append(Finding(Kind.GAP, name, hole.first, count, hole.reason))
        stream.gaps.append(hole)
        if len(stream.gaps) > self._limits.holes_max:
            stream.floor = max(stream.floor, stream.gaps.pop(0).last + 1)


_NEVER = 0
_RESTART = -2


def _take(ranges: list[Hole], seq: int) -> str | None:
    """Remove one number from the range that holds it; give that range's reason, None if none does."""
    for index, hole in enumerate(ranges):
        if hole.first <= seq <= hole.last:
            parts = []
            if hole.first < seq:
                parts.append(Hole(hole.first, seq - 1, hole.since, hole.reason))
            if seq < hole.last:
                parts.append(Hole(seq + 1, hole.last, hole.since, hole.reason))
            ranges[index : index + 1] = parts
            return hole.reason
    return None
