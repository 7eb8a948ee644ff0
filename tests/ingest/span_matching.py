"""Match the open spans of two sessions: one gets records as lists, the other the same records in blocks.

Both must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.spans import DEPTH, END_OFFSET, ForgottenSpans, Spans
from tailrace.ledger.references import References, ReferencesState
from tailrace.model.record import Kind, Record
from tailrace.rows.block import Block
from tailrace.rows.fields import COUNTER, DETAIL, FLAW, SIZE

ROW = [name for i, name in enumerate(Record._fields) if i not in {SIZE, COUNTER, FLAW, DETAIL}]
ADDED = ["depth", "end_offset"]
APART = {Kind.SESSION, Kind.MALFORMED, Kind.GAP, Kind.HEAL}


class Side:
    """The open spans of a session, and what became of its records."""

    def __init__(self, limits: LedgerConfig) -> None:
        self.state = ({}, ReferencesState(), ForgottenSpans())
        opened, referred, forgotten = self.state
        self.references = References(limits, referred)
        self.spans = Spans(limits, self.references, opened, forgotten)
        self.flaws: Counter[str] = Counter()
        self.by_kernel = 0

    def listed(self, columns: Iterable[Any]) -> list[Any]:
        """Match records given as lists. Return their rows."""
        found, flaws = self.spans.take([list(column) for column in columns], 5)
        self.flaws.update(flaws)
        rows = [found[Record._fields.index(name)] for name in ROW]
        return list(zip(*rows, found[FLAW], found[DEPTH], found[END_OFFSET], strict=True))

    def packed(self, block: Block) -> list[Any]:
        """Match records given in a block. Return their rows."""
        found = []
        for part, others in self.spans.match_block(block):
            if part:
                columns = dict(zip(Record._fields, part.block.columns(), strict=True))
                added = part.depths, part.end_offsets
                columns |= dict(zip(ADDED, map(part.block.column, added), strict=True))
                found += zip(*(columns[name] for name in [*ROW, "flaw", *ADDED]), strict=True)
                self.by_kernel += part.block.rows
            if others:
                found += self.listed(others)
        return found

    def expire(self) -> None:
        self.references.expire(10**18)


class Sides:
    """A side that gets lists, and one that gets blocks."""

    def __init__(self, **limits: int) -> None:
        self.lists, self.blocks = Side(LedgerConfig(**limits)), Side(LedgerConfig(**limits))

    def take(self, units: Iterable[Block | Record]) -> None:
        """Match blocks and the records between them on both sides. Compare rows, flaws and states."""
        expected, found = [], []
        for unit in units:
            if isinstance(unit, Block):
                expected += self.lists.listed(unit.columns())
                found += self.blocks.packed(unit)
            elif unit.kind not in APART:
                one = [(value,) for value in unit]
                expected += self.lists.listed(one)
                found += self.blocks.listed(one)
        assert found == expected
        self.compare()

    def compare(self) -> None:
        """Compare what the sides keep after a chunk."""
        one, two = self.lists, self.blocks
        assert two.flaws == one.flaws
        assert list(two.state[0]) == list(one.state[0])
        assert msgspec.msgpack.encode(two.state) == msgspec.msgpack.encode(one.state)
        assert two.references.findings == one.references.findings
        assert (two.spans.held, two.spans.evicted) == (one.spans.held, one.spans.evicted)
        assert two.spans.begins() == one.spans.begins()
