"""The rows of records that have ids: spans whose begins and ends are records of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from tailrace.ingest.record_rows import RecordRows, add_counts
from tailrace.ingest.span_blocks import match_block
from tailrace.ingest.spans import Spans
from tailrace.ingest.state import Tally
from tailrace.rows.block import Block
from tailrace.rows.fields import KIND, RecordColumns
from tailrace.rows.records import Records


class SpanRows:
    """Writes rows of matched records, and of begins that still wait when rows are taken."""

    def __init__(
        self,
        spans: Spans,
        rows: RecordRows,
        tally: Tally,
        at_last: Callable[[Callable[[], None]], None],
    ) -> None:
        """`at_last` calls a function when rows are taken next."""
        self.spans = spans
        self._rows = rows
        self._tally = tally
        self._at_last = at_last
        self.watch_begins()

    def take(self, chunk: Sequence[Records], now: int) -> None:
        """Take records that have ids and no counter."""
        kinds: Counter[str] = Counter()
        for records in chunk:
            kinds.update(records.kinds)
        begins = chain.from_iterable(records.begin_ids() for records in chunk)
        self.spans.count(kinds, begins)
        for records in chunk:
            records.match(self, now)
        self.watch_begins()

    def watch_begins(self) -> None:
        """Have begins written that still wait for their ends when rows are taken."""
        if self.spans.waiting:
            self._at_last(self.write_begins)

    def write_begins(self) -> None:
        """Write rows of the begins that have none yet."""
        self._rows.write_begins(self.spans.begins())

    def match_block(self, block: Block, now: int) -> None:
        """Match the records of a block, and write the rows."""
        for rows, others in match_block(self.spans, block):
            if rows:
                self._rows.write_block(rows.block, depths=rows.depths, end_offsets=rows.end_offsets)
            if others:
                self.match(others, now)

    def match(self, columns: RecordColumns, now: int) -> None:
        """Match records, and write the rows."""
        rows, flaws = self.spans.take(columns, now)
        add_counts(self._tally.flaws, flaws)
        self._rows.write(rows, [None] * len(rows[KIND]))
