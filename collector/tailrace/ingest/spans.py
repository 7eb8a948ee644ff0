"""Match ends to begins: a span is one row, which is written when its end comes.

A begin waits in the session's state. Where it still waits when a commit is taken, it gets a row of its own,
once, so that open spans are visible; the row of the whole span, with the same offset, supersedes that row.
The rules that need a session's earlier record ids are checked here (docs/formats/jets.md explains each).
`match_block` matches the records of a block: the kernel those that break no rule, `Spans` all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
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
"""The columns that rows of spans have beyond the fields of records."""


class OpenSpan(msgspec.Struct, array_like=True):
    """A begin that waits for its end; `attributes` have its flaw.

    `size` is that of its record, `texts` what its texts take beyond `SPAN_BYTES`. `written`: it has a row."""

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
"""Upper bound on the memory of an open span with short texts."""


class ForgottenSpans(msgspec.Struct, omit_defaults=True):
    """The open spans that were evicted: how many, and their lowest and highest id."""

    count: int = 0
    first: int = 0
    last: int = -1

    def add(self, id_: int) -> None:
        self.first = min(self.first, id_) if self.count else id_
        self.last = max(self.last, id_) if self.count else id_
        self.count += 1


class Spans:
    """The open spans of one session whose records have ids."""

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
        """Return whether some begin has no row yet."""
        last = next(reversed(self.open.values()), None)
        return bool(self._left) or (last is not None and not last.written)

    def give_way(self, size: int) -> None:
        """Evict the spans that began first, until `size` bytes are free."""
        goal = self.held - size
        for id_, span in list(islice(self.open.items(), max(0, -(-size // SPAN_BYTES)))):
            if self.held <= goal:
                break
            self._leave(id_, span)
            self.evicted += 1
            self._forgotten.add(id_)

    def begins(self) -> list[tuple[int, OpenSpan]]:
        """Return, by id, the begins that have no row yet, in the order in which they came. They get one now."""
        found, self._left = self._left, []
        late = []
        for id_, span in reversed(self.open.items()):
            if span.written:  # and so have all before it
                break
            late.append((id_, span))
        found += reversed(late)
        for _, span in found:
            span.written = True
        return found

    def count(self, kinds: Mapping[str, int], begun: Iterable[int | None]) -> None:
        """Count records of these kinds, whose begins have the ids `begun`, before they are taken."""
        for kind in (*EVENTS, Kind.END):
            if records := kinds.get(kind):
                self._references.count(kind, records, begun if kind == Kind.BEGIN else ())

    def take(self, columns: RecordColumns, now: int) -> tuple[RecordColumns, Counter[str]]:
        """Match ends to begins and check references. Return the columns of the rows to write now, and the
        number of flaws that are written in them, or in begins that wait."""
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

    @property
    def ids(self) -> tuple[int, int] | None:
        """Return the first and the last of the newest ids that are defined; None where there is none."""
        return self._references.newest

    @property
    def awaits(self) -> tuple[Container[int], ...]:
        """Return the ids of which `take` must be given the begins."""
        return self._references.awaits

    @property
    def room(self) -> int:
        """Return how many more spans may be open."""
        return max(0, self._limit - len(self.open))

    def matched(
        self, last: int, ended: Iterable[OpenSpan], left: Iterable[tuple[int, OpenSpan]]
    ) -> None:
        """Take note that begins up to the id `last` came and spans have `ended`, which `open` has no more; `left` are
        the begins that wait."""
        self._references.define_up_to(last)
        self._texts -= sum(span.texts for span in ended)
        for id_, span in left:
            self._open(id_, span)

    def _begin(self, columns: RecordColumns, i: int, now: int, flaws: Counter[str]) -> bool:
        """Take a begin; return whether it waits for its end."""
        id_, parent = columns[ID][i], columns[PARENT][i]
        if id_ is None:
            return False
        broken = self._references.define(id_)
        flaw = columns[FLAW][i] or broken
        depth: int | None = 0
        if parent is not None:
            outer = self.open.get(parent)
            depth = None if outer is None or outer.depth is None else outer.depth + 1
            if outer is None:
                orphan = self._orphan(id_, parent, now)
                flaw = flaw or orphan
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

    def _orphan(self, id_: int, parent: int, now: int) -> str | None:
        """Return the flaw of a record whose parent is not open, if that is one."""
        if parent == id_:
            return "self_parent"
        return None if self._references.refer(parent, now) else "orphan"

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
            columns[FLAW][i] = None  # written here
        columns[ATTRIBUTES][i] = united(with_flaw(columns[ATTRIBUTES][i], flaw), begun.attributes)
        columns[KIND][i], columns[START][i], columns[NAME][i] = Kind.SPAN, start, begun.name
        columns[CATEGORY][i], columns[PARENT][i] = begun.category, begun.parent
        columns[SIZE][i] += begun.size
        columns[OFFSET][i], columns[END_OFFSET][i] = begun.offset, columns[OFFSET][i]
        columns[DEPTH][i] = begun.depth

    def _leave(self, id_: int, span: OpenSpan) -> None:
        """Let go of an open span. Its begin keeps a row of its own."""
        del self.open[id_]
        self._texts -= span.texts
        if not span.written:
            self._left.append((id_, span))

    def _refer(self, columns: RecordColumns, i: int, id_: int, now: int) -> bool:
        """Note a reference; return whether the record it names is unknown, which becomes the row's flaw."""
        if self._references.refer(id_, now):
            return False
        columns[FLAW][i] = columns[FLAW][i] or "orphan"
        return True


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
