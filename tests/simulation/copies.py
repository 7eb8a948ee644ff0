"""Which datagrams are copies, of a producer that numbers nothing (`docs/decisions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.config.schema import LedgerConfig


def without_copies(
    datagrams: Iterable[tuple[int, bytes]], limits: LedgerConfig, readable: Callable[[bytes], bool]
) -> list[bytes]:
    """Return the datagrams, given with their times (ns), without those equal to one that came less than
    `reorder_time` before and is among the last `reorder_events`. Copies of what is not `readable` stay."""
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
