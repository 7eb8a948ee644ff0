"""Counts the events of a block: the kernel those that come in order, the ledger all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.kernels import active
from tailrace.ledger.counters import DUPLICATE, RESTART, Counters
from tailrace.ledger.stream import HEAD
from tailrace.rows.block import Block, Integers

if TYPE_CHECKING or active():
    from tailrace.ledger._observe import InOrder, hear


def count_block(counters: Counters, block: Block, now: int) -> Integers | list[int | None]:
    """Count the events of a block, as `Counters.count` counts those of lists.

    Return their sequence numbers as a column or, where an event has none or was seen before, as a list. A list that
    is shorter than the block ends before the first event of the next incarnation."""
    table = counters.state.streams
    kernel = InOrder(block, table, counters.mask, counters.window, HEAD)
    special: dict[int, int | None] = {}
    at = 0
    while (at := kernel.take(at)) < block.rows:
        stream, count, mark = kernel.event(at)
        known, places = stream in table, len(table)
        # A new stream may take the places of others.
        kernel.write(at) if known else kernel.write_back()
        number = counters.count_one(stream, count, mark, now)
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
    counters.marks.count += kernel.added
    seqs = Integers(kernel.seqs)
    if not special and at == block.rows:
        return seqs
    numbers = seqs.list(at)
    for row, number in special.items():
        numbers[row] = number
    return numbers


def hear_block(counters: Counters, block: Block, now: int) -> None:
    """Call `Counters.hear` for the streams of a block, in the kernel."""
    hear(block.stream, block.rows, counters.state.streams, counters.news, now)
