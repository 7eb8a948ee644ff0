"""The rows of an incarnation's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.ingest.own_rows import PACKED_ROW_BYTES, ROW_BYTES, Emit
from tailrace.ingest.spans import DEPTH, END_OFFSET, OpenSpan
from tailrace.ingest.state import IncarnationState, Tally
from tailrace.model.block import Block, Values
from tailrace.model.columns import BlockRows
from tailrace.model.record import Kind
from tailrace.normalize import (
    ATTRIBUTES,
    CATEGORY,
    END,
    FLAW,
    ID,
    KIND,
    NAME,
    OFFSET,
    PARENT,
    SIZE,
    START,
    STREAM,
    SUBSTREAM,
    block_times,
    wall_times,
    write_flaws,
)  # fmt: skip


class RecordRows:
    """Writes rows, and counts records and flaws in the source's tally."""

    def __init__(self, state: IncarnationState, tally: Tally, emit: Emit) -> None:
        self._state = state
        self._tally = tally
        self._emit = emit

    def write(
        self,
        columns: Sequence[Sequence[Any]],
        seqs: list[int | None],
        times: list[int | None] | None = None,
    ) -> None:
        """Write the rows of records with their sequence numbers. `times` are the rows' wall times where
        the producer's clock does not tell them. `columns` may have the columns of `spans`, too."""
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            add_counts(self._tally.flaws, flaws)
        state = self._state
        times = times or wall_times(columns[START], state.epoch, state.ticks_per_second)
        size = sum(columns[SIZE]) + ROW_BYTES * len(seqs)
        nothing = [None] * len(seqs)
        of_spans = len(columns) > DEPTH
        depths = columns[DEPTH] if of_spans else nothing
        end_offsets = columns[END_OFFSET] if of_spans else nothing
        self._emit(
            state.name,
            [
                columns[STREAM], columns[SUBSTREAM], seqs, columns[KIND], columns[NAME],
                columns[CATEGORY], columns[ID], columns[PARENT], depths, columns[START], columns[END],
                times, nothing, attributes, columns[OFFSET], end_offsets,
            ],
            size,
        )  # fmt: skip

    def write_begins(self, begins: Sequence[tuple[int, OpenSpan]]) -> None:
        """Write rows of begins that wait for their ends, by their ids.

        The tally leaves them out, since a replay may write fewer of them."""
        if not begins:
            return
        state, rows = self._state, len(begins)
        spans = [span for _, span in begins]
        starts = [span.start for span in spans]
        nothing = [None] * rows
        self._emit(
            state.name,
            [
                [s.stream for s in spans], [s.substream for s in spans], nothing, [Kind.BEGIN] * rows,
                [s.name for s in spans], [s.category for s in spans], [id_ for id_, _ in begins],
                [s.parent for s in spans], [s.depth for s in spans], starts, nothing,
                wall_times(starts, state.epoch, state.ticks_per_second), nothing,
                [s.attributes for s in spans], [s.offset for s in spans], nothing,
            ],
            sum(span.size for span in spans) + ROW_BYTES * rows,
        )  # fmt: skip
        self._tally.rows -= rows

    def write_block(
        self,
        block: Block,
        *,
        seqs: Values = None,
        depths: Values = None,
        end_offsets: Values = None,
    ) -> None:
        """Write the rows of a block: events with their sequence numbers, spans with depths and end offsets."""
        state = self._state
        times = block_times(block, state.epoch, state.ticks_per_second)
        size = block.length + PACKED_ROW_BYTES * block.rows
        self._emit(state.name, BlockRows(block, times, seqs, depths, end_offsets), size)

    def count(self, kinds: Mapping[str, int], now: int) -> None:
        """Count so many records of these kinds."""
        if not self._state.records:
            self._state.began = now
        self._state.records += sum(kinds.values())
        add_counts(self._tally.records, kinds)


def add_counts(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count
