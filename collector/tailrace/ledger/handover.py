"""Moves events between the accounts of two incarnations, when it turns out whose they are.

Either an incarnation gives up all of its events, or a stream begins behind the numbers for which another
session accounts.
"""

from __future__ import annotations

from tailrace.ledger.counters import Counters
from tailrace.ledger.findings import Finding
from tailrace.ledger.stream import NEVER, take_from
from tailrace.model.record import Kind


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
