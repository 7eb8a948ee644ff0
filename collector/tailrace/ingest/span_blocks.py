"""Matches the records of a block: the kernel those that break no rule, `spans` all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.ingest.spans import OpenSpan, Spans
from tailrace.kernels import active
from tailrace.rows.block import ROWS_MIN, Block, Integers
from tailrace.rows.fields import RecordColumns

if TYPE_CHECKING or active():
    from tailrace.ingest._match import Matching


MORE_MAX = 256
"""Records that are given to `Spans.take` at once, at most, where the kernel may go on."""


class Matched(NamedTuple):
    """Rows in a block, and the columns that only spans have: depths and end offsets."""

    block: Block
    depths: Integers | None
    end_offsets: Integers | None


def match_block(
    spans: Spans, block: Block
) -> Iterator[tuple[Matched | None, RecordColumns | None]]:
    """Yield rows of a block, in order, or records that must be given to `Spans.take` before the next rows."""
    if block.id is None and block.parent is None:
        yield Matched(block, None, None), None  # no record refers to another
        return
    matching = Matching(block, spans.open)
    at, more = 0, ROWS_MIN
    while at < block.rows:
        begin, ids = at, spans.ids
        if ids is not None:
            at, last, rows, ended, left = matching.run(at, *ids, spans.room, spans.awaits)
            spans.matched(last, ended, _open_spans(block, left))
            if rows is not None:
                yield Matched(*rows), None
        if at < block.rows:
            # More than one, since so few rows take the kernel longer; and more where it makes few rows each time.
            more = ROWS_MIN if at - begin > 4 * more else min(2 * more, MORE_MAX)
            stop = min(at + more, block.rows)
            yield None, block.columns(stop, at)
            at = stop


def _open_spans(
    block: Block, begins: list[tuple[int, int, int | None]]
) -> Iterator[tuple[int, OpenSpan]]:
    """Yield the begins in some rows of a block, which have these ids and depths."""
    if not begins:
        return
    ids, rows, depths = zip(*begins, strict=True)
    columns = [
        [None] * len(rows) if column is None else column.of_rows(rows)
        for column in (
            block.stream, block.substream, block.name, block.category, block.parent, block.start, block.attributes,
            block.offset, block.size,
        )
    ]  # fmt: skip
    for id_, *values in zip(ids, *columns, depths, strict=True):
        yield id_, OpenSpan(*values)
