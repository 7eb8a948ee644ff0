"""Write the rows of the records of an incarnation (producer run), with their wall times. If a span has separate records
for its begin and its end, one row is written for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

from tailrace.ingest.own_rows import PACKED_ROW_BYTES, ROW_BYTES, Emit
from tailrace.ingest.spans import DEPTH, END_OFFSET, OpenSpan, Spans, match_block
from tailrace.ingest.state import IncarnationState, Tally
from tailrace.kernels import active
from tailrace.model.record import Kind, Record
from tailrace.rows.batch import BlockRows
from tailrace.rows.block import Block, Integers, Values
from tailrace.rows.fields import (
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
    RecordColumns,
    with_flaw,
    write_flaws,
)  # fmt: skip
from tailrace.rows.records import Records
from tailrace.rows.schema import Row

if TYPE_CHECKING or active():
    from tailrace.rows._columns import shifted


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class RecordRows:
    """Writes the rows of the records of an incarnation (producer run), and counts the records and their flaws in the
    sums of the source.
    """

    def __init__(self, state: IncarnationState, tally: Tally, emit: Emit) -> None:
        self._state = state
        self._tally = tally
        self._emit = emit

    def write(
        self,
        columns: Sequence[Sequence[Any]],
        seqs: list[int | None],
    ) -> None:
        """Write the rows of records with their sequence numbers. `columns` has the fields of the records, and may also
        have the columns `DEPTH` and `END_OFFSET` of spans."""
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            add_counts(self._tally.flaws, flaws)
        state = self._state
        times = wall_times(columns[START], state.epoch, state.ticks_per_second)
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
        self._tally.rows += len(seqs)

    def write_one(self, record: Record, time: int | None = None) -> None:
        """Write the row of a record without a sequence number. `time` is the row's wall time if the producer's clock
        does not provide one."""
        if record.flaw:
            add_counts(self._tally.flaws, {record.flaw: 1})
        state = self._state
        if time is None and record.start is not None:
            (time,) = wall_times((record.start,), state.epoch, state.ticks_per_second)
        row = Row(
            record.stream, record.substream, None, record.kind, record.name, record.category, record.id, record.parent,
            None, record.start, record.end, time, None, with_flaw(record.attributes, record.flaw), record.offset, None,
        )  # fmt: skip
        self._emit(state.name, row, record.size + ROW_BYTES)
        self._tally.rows += 1

    def write_begins(self, begins: Sequence[tuple[int, OpenSpan]]) -> None:
        """Write rows of spans that have begun and not ended yet; `begins` contains each of them with its id.

        The source's count of rows leaves these rows out, because their number depends on the times of commits, which
        differ in a replay."""
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

    def write_block(
        self,
        block: Block,
        *,
        seqs: Values = None,
        depths: Values = None,
        end_offsets: Values = None,
    ) -> None:
        """Write the rows of a block of decoded records. `seqs` are the sequence numbers of events. `depths` and
        `end_offsets` are the depths and end offsets of the rows that are spans."""
        if block.flaw is not None:
            flaws = Counter(block.flaw.list(block.rows))
            add_counts(self._tally.flaws, {flaw: n for flaw, n in flaws.items() if flaw})
        state = self._state
        times = block_times(block, state.epoch, state.ticks_per_second)
        size = block.length + PACKED_ROW_BYTES * block.rows
        self._emit(state.name, BlockRows(block, times, seqs, depths, end_offsets), size)
        self._tally.rows += block.rows

    def count(self, kinds: Mapping[str, int], now: int) -> None:
        """Count records by kind, and remember the time of the first record."""
        if not self._state.records:
            self._state.began = now
        self._state.records += sum(kinds.values())
        add_counts(self._tally.records, kinds)


def add_counts(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count


def wall_times(
    starts: Sequence[int | None], epoch: int | None, ticks_per_second: float | None
) -> list[int | None]:
    """Convert start times in ticks to Unix nanoseconds. A time is None if it is unknown or does not fit into 64 bits."""
    if epoch is None or not ticks_per_second:
        return [None] * len(starts)
    if ticks_per_second == 1e9:
        times = [None if start is None else epoch + start for start in starts]
    else:
        times = [_scale(start, epoch, ticks_per_second) for start in starts]
    known = times if None not in times else [time for time in times if time is not None]
    if known and (max(known) > INT64_MAX or min(known) < INT64_MIN):  # type: ignore[type-var, operator] # no None in it
        return [time if time is not None and _fits(time) else None for time in times]
    return times


def block_times(block: Block, epoch: int | None, ticks_per_second: float | None) -> Values:
    """Convert the start times of a block's rows to Unix nanoseconds, as `wall_times` does."""
    starts = block.start
    if epoch is None or not ticks_per_second or starts is None:
        return None
    if 1e9 % ticks_per_second == 0 and ticks_per_second.is_integer() and _fits(epoch):
        times = shifted(starts.values, block.rows, epoch, 10**9 // int(ticks_per_second))
        if times is not None:
            return Integers(times, starts.valid)
    return Integers.of(wall_times(starts.list(block.rows), epoch, ticks_per_second))


def _scale(start: int | None, epoch: int, ticks_per_second: float) -> int | None:
    if start is None:
        return None
    if ticks_per_second.is_integer():
        return epoch + start * 1_000_000_000 // int(ticks_per_second)
    nanoseconds = start * (1e9 / ticks_per_second)
    return epoch + round(nanoseconds) if isfinite(nanoseconds) else None


def _fits(time: int) -> bool:
    return INT64_MIN <= time <= INT64_MAX


class SpanRows:
    """Writes one row for the begin and the end of each span, matched by id. At each commit, also writes a row for each
    span that is still open."""

    def __init__(
        self,
        spans: Spans,
        rows: RecordRows,
        tally: Tally,
        at_last: Callable[[Callable[[], None]], None],
    ) -> None:
        """Prepare rows for the spans of one session. `at_last` schedules a function call before the next commit."""
        self.spans = spans
        self._rows = rows
        self._tally = tally
        self._at_last = at_last
        self.watch_begins()

    def take(self, chunk: Sequence[Records], now: int) -> None:
        """Match end records to begin records by id, and write the rows. Use this for a producer that gives ids to
        spans, but no numbers to events."""
        kinds: Counter[str] = Counter()
        for records in chunk:
            kinds.update(records.kinds)
        begins = chain.from_iterable(records.begin_ids() for records in chunk)
        self.spans.count(kinds, begins)
        for records in chunk:
            records.match(self, now)
        self.watch_begins()

    def watch_begins(self) -> None:
        """Before the next commit, write a row for each span that is still open then and has no row."""
        if self.spans.waiting:
            self._at_last(self.write_begins)

    def write_begins(self) -> None:
        """Write a row for each open span that has no row yet."""
        self._rows.write_begins(self.spans.begins())

    def match_block(self, block: Block, now: int) -> None:
        """Match the begins and ends of spans in a block, and write the rows of the records."""
        for rows, others in match_block(self.spans, block):
            if rows:
                self._rows.write_block(rows.block, depths=rows.depths, end_offsets=rows.end_offsets)
            if others:
                self.match(others, now)

    def match(self, columns: RecordColumns, now: int) -> None:
        """Match the begins and ends of spans in columns of records, and write the rows of the records."""
        rows, flaws = self.spans.take(columns, now)
        add_counts(self._tally.flaws, flaws)
        self._rows.write(rows, [None] * len(rows[KIND]))
