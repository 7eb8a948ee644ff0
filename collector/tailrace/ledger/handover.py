"""Moves events between the accounts of two incarnations, when it turns out whose they are.

Either an incarnation gives up all of its events, or a stream begins behind the numbers for which another
session accounts.
"""

from __future__ import annotations

from tailrace.ledger.counters import Counters
from tailrace.ledger.findings import Finding
from tailrace.ledger.stream import NEVER, take
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
        or any(s.next - s.base > window or s.gaps or s.floor or s.extra for s in streams.values())
    ):
        return []
    events = list(counters.numbers.remembered())
    if any(mark == NEVER for _, _, mark in events):
        return []
    counters.release()
    streams.clear()
    counters.marks.count = 0
    state.seen = state.missing = state.tails = 0
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
        hole = take(stream.holes, stream.base)
        gap = None if hole else take(stream.gaps, stream.base)
        if gap:
            counters.findings.append(Finding(Kind.HEAL, name, stream.base, 1, gap.reason))
        if not (hole or gap):
            break
        counters.state.missing -= 1
        stream.base += 1
    counters.windows.count(stream.ranges - before)
