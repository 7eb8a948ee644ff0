"""The rows of an incarnation's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.ingest.own_rows import ROW_BYTES, Emit
from tailrace.ingest.state import IncarnationState, Tally
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
        the producer's clock does not tell them."""
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            add_counts(self._tally.flaws, flaws)
        state = self._state
        times = times or wall_times(columns[START], state.epoch, state.ticks_per_second)
        size = sum(columns[SIZE]) + ROW_BYTES * len(seqs)
        self._emit(
            state.name,
            [
                columns[STREAM], columns[SUBSTREAM], seqs, columns[KIND], columns[NAME],
                columns[CATEGORY], columns[ID], columns[PARENT], columns[START], columns[END],
                times, attributes, columns[OFFSET],
            ],
            size,
        )  # fmt: skip

    def count(self, kinds: Sequence[str], now: int) -> None:
        """Count records of these kinds."""
        if not self._state.records:
            self._state.began = now
        self._state.records += len(kinds)
        records = self._tally.records
        spans = kinds.count(Kind.SPAN)
        if spans == len(kinds):
            records[Kind.SPAN] = records.get(Kind.SPAN, 0) + spans
        else:
            add_counts(records, Counter(kinds))


def add_counts(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count
