"""The rows of records that have ids: spans whose begins and ends are records of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tailrace.ingest.parts import Part, begun_in
from tailrace.ingest.record_rows import RecordRows, add_counts
from tailrace.ingest.span_blocks import match_block
from tailrace.ingest.spans import Spans
from tailrace.ingest.state import Tally
from tailrace.rows.block import Block
from tailrace.rows.fields import KIND, RecordColumns


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

    def take(self, parts: Sequence[Part], now: int) -> None:
        """Take records that have ids and no counter."""
        kinds: Counter[str] = Counter()
        for part in parts:
            kinds.update(part.kinds)
        self.spans.count(kinds, begun_in(parts))
        for part in parts:
            part.match(self, now)
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
