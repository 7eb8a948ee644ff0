"""Match the end of each span to its begin by id, and check that the ids to which records refer exist
(docs/formats/jets.md).

A span becomes one row, which is written when its end arrives. If a span is still open at a commit, its begin gets a
row of its own. The later row of the whole span has the same offset and supersedes the begin's row. The compiled
kernel `_match` matches the records of a block that break no rule, and `Spans` matches all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress, islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tailrace.ledger.references import References
from tailrace.model.holding import SHORT, Evicted, cost
from tailrace.model.record import Kind, Record
from tailrace.rows.block import ROWS_MIN, Block, Integers
from tailrace.rows.fields import (
    ATTRIBUTES,
    CATEGORY,
    END,
    EVENTS,
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
    united,
    with_flaw,
)

if TYPE_CHECKING or active():
    from tailrace.ingest._match import Matching


END_OFFSET, DEPTH = len(Record._fields), len(Record._fields) + 1
"""Indexes of the two columns that rows of spans have in addition to the fields of a record."""


class OpenSpan(msgspec.Struct, array_like=True):
    """The begin of a span without its end. `size` is its record's size (bytes), `texts` the memory (bytes) of its
    long texts. `written` is true if it has a row of its own. `attributes` include its flaw."""

    stream: str
    substream: int | None
    name: str | None
    category: str | None
    parent: int | None
    start: int | None
    attributes: str | None
    offset: int
    size: int
    depth: int | None
    texts: int = 0
    written: bool = False


SPAN_BYTES = 640
"""Upper bound on the memory (bytes) of an open span without its long texts."""


class ForgottenSpans(msgspec.Struct, omit_defaults=True):
    """The open spans that were evicted because of a memory limit: their number, and the lowest and highest of their
    ids."""

    count: int = 0
    first: int = 0
    last: int = -1

    def add(self, id_: int) -> None:
        self.first = min(self.first, id_) if self.count else id_
        self.last = max(self.last, id_) if self.count else id_
        self.count += 1


MORE_MAX = 256
"""Maximum number of records that `Spans.match_block` passes to `take` at once, before the compiled kernel continues."""


class Matched(NamedTuple):
    """Rows of a block that the compiled kernel has matched, with the depths and end offsets of spans."""

    block: Block
    depths: Integers | None
    end_offsets: Integers | None


class Spans:
    """Manages the open spans of one session whose records have ids."""

    what = Evicted.SPANS

    def __init__(
        self,
        limits: LedgerConfig,
        references: References,
        state: dict[int, OpenSpan],
        forgotten: ForgottenSpans,
    ) -> None:
        self.open = state
        self.evicted = 0
        self._forgotten = forgotten
        self._references = references
        self._limit = limits.open_spans_max
        self._texts = sum(span.texts for span in state.values())
        self._left: list[tuple[int, OpenSpan]] = []

    @property
    def held(self) -> int:
        return SPAN_BYTES * len(self.open) + self._texts

    @property
    def waiting(self) -> bool:
        """Return whether any open span has no row yet."""
        last = next(reversed(self.open.values()), None)
        return bool(self._left) or (last is not None and not last.written)

    def give_way(self, size: int) -> None:
        """Evict the oldest open spans until `size` bytes of memory are free."""
        goal = self.held - size
        for id_, span in list(islice(self.open.items(), max(0, -(-size // SPAN_BYTES)))):
            if self.held <= goal:
                break
            self._leave(id_, span)
            self.evicted += 1
            self._forgotten.add(id_)

    def begins(self) -> list[tuple[int, OpenSpan]]:
        """Return the begins of open and evicted spans that have no row yet, in order of arrival. Mark these spans as
        written."""
        found, self._left = self._left, []
        late = []
        for id_, span in reversed(self.open.items()):
            if span.written:  # spans get their begin rows in order of arrival, so all earlier spans have a row, too
                break
            late.append((id_, span))
        found += reversed(late)
        for _, span in found:
            span.written = True
        return found

    def count(self, kinds: Mapping[str, int], begun: Iterable[int | None]) -> None:
        """Count records by kind before `take` matches ends to begins. `begun` has the ids of the begin records."""
        for kind in (*EVENTS, Kind.END):
            if records := kinds.get(kind):
                self._references.count(kind, records, begun if kind == Kind.BEGIN else ())

    def take(self, columns: RecordColumns, now: int) -> tuple[RecordColumns, Counter[str]]:
        """Match the ends of spans to their begins by id, and check that each record's parent exists. Return the columns
        of the rows to write now, and how often records broke each rule. Begins that wait for their ends have no row
        yet."""
        kinds, parents = columns[KIND], columns[PARENT]
        rows = len(kinds)
        columns += [None] * rows, [None] * rows
        now_written = [True] * rows
        flaws: Counter[str] = Counter()
        opened = self.open
        for i, kind in enumerate(kinds):
            if kind == Kind.BEGIN:
                now_written[i] = not self._begin(columns, i, now, flaws)
            elif kind == Kind.END:
                self._end(columns, i, now, flaws)
            else:
                parent = parents[i]
                if parent is not None and parent not in opened:
                    self._refer(columns, i, parent, now)
        if not all(now_written):
            columns = [list(compress(column, now_written)) for column in columns]
        return columns, flaws

    def match_block(self, block: Block) -> Iterator[tuple[Matched | None, RecordColumns | None]]:
        """Match the begin and end records of a block, in the block's order. Each item is either a batch of matched
        rows, or records that the caller must pass to `take` before it asks for the next item."""
        if block.id is None and block.parent is None:
            # No row has an id or a parent, so there is no begin or end of a span to match.
            yield Matched(block, None, None), None
            return
        references = self._references
        matching = Matching(block, self.open)
        at, more = 0, ROWS_MIN
        while at < block.rows:
            begin, ids = at, references.newest
            if ids is not None:
                room = max(0, self._limit - len(self.open))
                at, last, rows, ended, left = matching.run(at, *ids, room, references.awaits)
                references.define_up_to(last)
                self._texts -= sum(span.texts for span in ended)
                for id_, span in _open_spans(block, left):
                    self._open(id_, span)
                if rows is not None:
                    yield Matched(*rows), None
            if at < block.rows:
                # Each call of the kernel has a fixed cost, so pass several records at once to the caller before the
                # next call. Pass more records if the last call has matched only few.
                more = ROWS_MIN if at - begin > 4 * more else min(2 * more, MORE_MAX)
                stop = min(at + more, block.rows)
                yield None, block.columns(stop, at)
                at = stop

    def _begin(self, columns: RecordColumns, i: int, now: int, flaws: Counter[str]) -> bool:
        """Process the begin of a span. Return whether the begin waits for the end of the span."""
        id_, parent = columns[ID][i], columns[PARENT][i]
        if id_ is None:
            return False
        broken = self._references.define(id_)
        flaw = columns[FLAW][i] or broken
        depth: int | None = 0
        if parent is not None:
            outer = self.open.get(parent)
            depth = None if outer is None or outer.depth is None else outer.depth + 1
            if parent == id_ and outer is None:
                flaw = flaw or "self_parent"
            elif outer is None and not self._references.refer(parent, now):
                flaw = flaw or "orphan"
        if flaw:
            flaws[flaw] += 1
        if len(self.open) >= self._limit:
            self.give_way(self.held // 8)
        if id_ in self.open:
            self._leave(id_, self.open[id_])
        self._open(id_, OpenSpan(
            columns[STREAM][i], columns[SUBSTREAM][i], columns[NAME][i], columns[CATEGORY][i], parent,
            columns[START][i], with_flaw(columns[ATTRIBUTES][i], flaw), columns[OFFSET][i], columns[SIZE][i], depth,
        ))  # fmt: skip
        return True

    def _open(self, id_: int, span: OpenSpan) -> None:
        for text in (span.stream, span.name, span.category, span.attributes):
            if text is not None and len(text) > SHORT:
                span.texts += cost(text)
        self._texts += span.texts
        self.open[id_] = span

    def _end(self, columns: RecordColumns, i: int, now: int, flaws: Counter[str]) -> None:
        id_ = columns[ID][i]
        begun = self.open.pop(id_, None)
        if begun is None:
            if id_ is not None and not self._refer(columns, i, id_, now):
                forgotten = self._forgotten.first <= id_ <= self._forgotten.last
                flaw = "begin_forgotten" if forgotten else "second_end"
                columns[FLAW][i] = columns[FLAW][i] or flaw
            return
        self._texts -= begun.texts
        start, end, flaw = begun.start, columns[END][i], columns[FLAW][i]
        if end is not None and start is not None and end < start:
            flaw = flaw or "end_before_start"
        if flaw:
            flaws[flaw] += 1
            # remove the flaw (broken rule), so that `write_flaws` does not add it to the attributes again
            columns[FLAW][i] = None
        columns[ATTRIBUTES][i] = united(with_flaw(columns[ATTRIBUTES][i], flaw), begun.attributes)
        columns[KIND][i], columns[START][i], columns[NAME][i] = Kind.SPAN, start, begun.name
        columns[CATEGORY][i], columns[PARENT][i] = begun.category, begun.parent
        columns[SIZE][i] += begun.size
        columns[OFFSET][i], columns[END_OFFSET][i] = begun.offset, columns[OFFSET][i]
        columns[DEPTH][i] = begun.depth

    def _leave(self, id_: int, span: OpenSpan) -> None:
        """Remove an open span whose end is no longer expected. If its begin has no row, the next commit writes one."""
        del self.open[id_]
        self._texts -= span.texts
        if not span.written:
            self._left.append((id_, span))

    def _refer(self, columns: RecordColumns, i: int, id_: int, now: int) -> bool:
        """Register a reference to an id. If no record has it, mark the row as `orphan` and return True."""
        if self._references.refer(id_, now):
            return False
        columns[FLAW][i] = columns[FLAW][i] or "orphan"
        return True


def _open_spans(
    block: Block, begins: list[tuple[int, int, int | None]]
) -> Iterator[tuple[int, OpenSpan]]:
    """Convert begins in a block (id, row and depth of each) to open spans, with their ids."""
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
