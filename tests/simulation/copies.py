"""Decide which datagrams count as copies, if their producer writes no numbers (`docs/decisions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.config.schema import LedgerConfig


def without_copies(
    datagrams: Iterable[tuple[int, bytes]], limits: LedgerConfig, readable: Callable[[bytes], bool]
) -> list[bytes]:
    """Return the datagrams, given with their times (ns), that are no copies.

    A datagram is a copy if it equals one of the last `reorder_events` datagrams, which arrived less than `reorder_time`
    before. Copies of datagrams that are not `readable` are returned, too.
    """
    kept: list[bytes] = []
    known: dict[bytes, int] = {}
    for time, datagram in datagrams:
        if known.get(datagram, time - limits.reorder_time.ns) > time - limits.reorder_time.ns:
            continue
        if readable(datagram):
            known.pop(datagram, None)
            known[datagram] = time
        if len(known) > limits.reorder_events:
            recent = [each for each, at in known.items() if at > time - limits.reorder_time.ns]
            known = {each: known[each] for each in recent[-limits.reorder_events :]}
        kept.append(datagram)
    return kept
