"""Keep rows of data files from around the last windows, so that a window beside or inside of these reads nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.rollups.pieces import NONE, FrameTexts, Pieces, coded, numbers
from tailrace.rollups.places import Longs

ROWS_KEPT = 200_000
"""The most rows that are kept, in one block or in several. A row takes about 120 bytes."""

BLOCK_ROWS = 60_000
"""About how many rows a block has at most. To read more at once would take longer than it saves."""

_MARGINS = (8, 4, 2, 1)
"""How much more than a window is read before and behind it, in lengths of the window: the first margin with which a
block has at most about `BLOCK_ROWS` rows."""

_BOUND = 2**62

LaneName = tuple[str, str, str, int | None]


class Since(NamedTuple):
    """Since when, and before when, rows of a lane are read, in times or in ticks. `number` is the lane's in the frame."""

    number: int
    timed: bool
    since: int
    before: int

    def widened(self, margin: int) -> Since:
        """Return the range with `margin` times its length more on both sides."""
        more = margin * (self.before - self.since)
        since, before = max(self.since - more, -_BOUND), min(self.before + more, _BOUND)
        return self._replace(since=min(since, self.since), before=max(before, self.before))


Ranges = Mapping[tuple[LaneName, bool], Since]
"""Ranges of times (True) and of ticks, by lane."""


class CodedRows(NamedTuple):
    """Rows whose texts are codes of dictionaries, `NONE` for those that are not there."""

    pieces: Pieces
    labels: pa.Array
    members: pa.Array
    kinds: pa.Array

    @classmethod
    def of(cls, rows: pa.Table) -> CodedRows:
        """Return rows as the database answers with them."""
        column = {name: rows.column(name) for name in rows.column_names}
        label, member, kind = (coded(column[name]) for name in ("label", "member", "kind"))
        pieces = Pieces(
            number=numbers(column["number"]),
            what=numbers(column["what"]),
            timed=numbers(column["timed"]),
            depth=numbers(column["depth"], NONE),
            edge=numbers(column["edge"]),
            spot=numbers(column["spot"]),
            start=numbers(column["start"]),
            events=numbers(column["count"]),
            busy=numbers(column["busy"]),
            longest=numbers(column["longest"]),
            label=label[0].astype(np.int64),
            member=member[0].astype(np.int64),
            offset=numbers(column["offset"]),
            kind=kind[0].astype(np.int64),
            least=numbers(column["least"]),
            most=numbers(column["most"]),
            latest=numbers(column["latest"]),
            open=np.zeros(rows.num_rows, np.bool_),
        )
        return cls(pieces, label[1], member[1], kind[1])

    def numbered(self, texts: FrameTexts) -> Pieces:
        """Return the rows with the numbers that their texts have in a frame."""
        pieces = self.pieces
        return pieces._replace(
            label=texts.numbered(pieces.label, self.labels),
            member=texts.numbered(pieces.member, self.members),
            kind=texts.numbered(pieces.kind, self.kinds),
        )


class RowBlock:
    """Rows of some files, in a range of times or ticks for each lane. A row has the number of its lane in the frame for
    which the block was read."""

    def __init__(
        self,
        paths: Collection[str],
        ranges: Ranges,
        rows: CodedRows,
    ) -> None:
        self.rows = rows
        self._paths = frozenset(paths)
        self._ranges = ranges

    def has(self, paths: Collection[str], asked: Ranges) -> bool:
        """Return whether all rows in these ranges of these files are here."""
        if self._paths != frozenset(paths):
            return False
        found = ((self._ranges.get(name), each) for name, each in asked.items())
        return all(
            known is not None and known.since <= each.since and each.before <= known.before
            for known, each in found
        )

    def within(self, asked: Ranges) -> CodedRows:
        """Return the rows in these ranges, with the numbers that their lanes have there."""
        pieces = self.rows.pieces
        size = 2 * (1 + max((each.number for each in self._ranges.values()), default=0))
        number, since, before = np.full(size, NONE, np.int32), *np.zeros((2, size), np.int64)
        for name, each in asked.items():
            at = 2 * self._ranges[name].number + each.timed
            number[at], since[at], before[at] = each.number, each.since, each.before
        of: Longs = 2 * pieces.number.astype(np.int64) + pieces.timed
        chosen = np.flatnonzero((pieces.spot >= since[of]) & (pieces.spot < before[of]))
        return self.rows._replace(pieces=pieces.take(chosen)._replace(number=number[of[chosen]]))


class KeptBlocks:
    """The blocks that were used last."""

    def __init__(self) -> None:
        self._blocks: list[RowBlock] = []

    def with_all(self, paths: Collection[str], asked: Ranges) -> RowBlock | None:
        """Return a block with all rows in these ranges, None if there is none."""
        for place, block in enumerate(self._blocks):
            if block.has(paths, asked):
                self._blocks.append(self._blocks.pop(place))
                return block
        return None

    def keep(self, block: RowBlock) -> None:
        """Keep a block, and forget those that were not used for longest."""
        self._blocks.append(block)
        while sum(each.rows.pieces.rows for each in self._blocks) > ROWS_KEPT:
            del self._blocks[0]


def margin_of(rows: float) -> int:
    """Return the margin for a window that has about so many rows; 0 if it has too many."""
    return next((each for each in _MARGINS if rows * (1 + 2 * each) <= BLOCK_ROWS), 0)


def by_lane(near: Iterable[Since], lanes: Sequence[LaneName]) -> Ranges:
    """Return ranges by the names of their lanes."""
    return {(lanes[each.number], each.timed): each for each in near}
