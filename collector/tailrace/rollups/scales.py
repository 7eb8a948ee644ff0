"""The scales of a frame's lanes as columns: its buckets on each lane's clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from tailrace.export.clocks import LATEST
from tailrace.rollups.pieces import Pieces
from tailrace.rollups.places import NOWHERE, Floats, Longs, Truths, durations, ends, places
from tailrace.rollups.scale import Buckets, Scale

SPARE = 3
"""A frame may turn out to need buckets that are 2 ** `SPARE` times as wide; what it reads is enough for these."""


class Scales:
    """A scale for each lane, by the numbers of the lanes."""

    def __init__(self, scales: Sequence[Scale], log: int) -> None:
        self.log = log
        self.short = np.array([each.short for each in scales], np.int64)
        self.placed = np.array([each.zero is not None for each in scales], np.bool_)
        self._offset = np.array([each.offset for each in scales], np.int64)
        self._zero = np.array([each.zero or 0 for each in scales], np.int64)
        self.rate: Floats = np.array([each.rate for each in scales], np.float64)
        self._rates = sorted({each.rate for each in scales})
        self.begin = np.array([each.timed.begin for each in scales], np.int64)
        self.end = np.array([each.timed.end for each in scales], np.int64)
        self._buckets = {
            True: [each.timed for each in scales],
            False: [each.ticks for each in scales],
        }

    @cached_property
    def ranges(self) -> dict[bool, tuple[Longs, Longs]]:
        """Return where the window begins, and where it ends, in times (True) and in ticks: whole buckets of the widest
        kind."""
        return {timed: _pairs(map(_range, buckets)) for timed, buckets in self._buckets.items()}

    @cached_property
    def _bounds(self) -> dict[bool, tuple[Longs, Longs]]:
        """Return the first and the last bucket of each lane."""
        return {
            timed: _pairs((each.first, each.behind - 1) for each in buckets)
            for timed, buckets in self._buckets.items()
        }

    def inside(self, pieces: Pieces) -> tuple[Longs, Truths]:
        """Return the buckets of pieces, and which of these are in the window."""
        width = np.where(pieces.timed, self.log, self.short[pieces.number])
        bucket = pieces.edge >> width
        low, high = (
            np.where(pieces.timed, of_times[pieces.number], of_ticks[pieces.number])
            for of_times, of_ticks in zip(self._bounds[True], self._bounds[False], strict=True)
        )  # fmt: skip
        return bucket, (bucket >= low) & (bucket <= high)

    def place(self, pieces: Pieces, at: Longs) -> Longs:
        """Return the times of times or ticks that belong to pieces; `NOWHERE` for those without a place."""
        found = np.where(pieces.timed, np.maximum(at, NOWHERE), NOWHERE)
        for rate, rows in self._by_rate(pieces, ~pieces.timed & self.placed[pieces.number]):
            of = pieces.number[rows]
            found[rows] = places(at[rows], self._offset[of], self._zero[of], rate)
        return found

    def edges(self, pieces: Pieces, bucket: Longs) -> tuple[Longs, Longs]:
        """Return where buckets begin and end: in sight, and at most at `LATEST`."""
        width = np.where(pieces.timed, self.log, self.short[pieces.number])
        low = bucket << width
        high = np.where(bucket >= LATEST >> width, LATEST, (bucket + 1) << width)
        closes = self.place(pieces, high)
        return np.maximum(self.place(pieces, low), 0), np.where(closes < 0, LATEST, closes)

    def finish(self, pieces: Pieces, begin: Longs) -> Longs:
        """Return when single spans end that begin at some times."""
        found = begin.copy()
        for rate, rows in self._by_rate(pieces, np.ones(pieces.rows, np.bool_)):
            found[rows] = ends(begin[rows], pieces.start[rows], pieces.longest[rows], rate)
        return found

    def busy(self, pieces: Pieces) -> Longs:
        """Return the durations in nanoseconds, added up."""
        found = pieces.busy.copy()
        for rate, rows in self._by_rate(pieces, np.ones(pieces.rows, np.bool_)):
            found[rows] = durations(pieces.busy[rows], rate)
        return found

    def _by_rate(self, pieces: Pieces, chosen: Truths) -> list[tuple[float, Longs]]:
        """Return the chosen rows by the rates of their clocks."""
        if len(self._rates) == 1:
            rows = np.flatnonzero(chosen)
            return [(self._rates[0], rows)] if len(rows) else []
        rates = self.rate[pieces.number]
        found = [(rate, np.flatnonzero(chosen & (rates == rate))) for rate in self._rates]
        return [(rate, rows) for rate, rows in found if len(rows)]


def _range(buckets: Buckets) -> tuple[int, int]:
    first = buckets.first >> SPARE << SPARE
    behind = (((buckets.behind - 1) >> SPARE) + 1) << SPARE
    return first << buckets.log, behind << buckets.log


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Longs, Longs]:
    clipped = [[min(max(each, -LATEST), LATEST) for each in pair] for pair in pairs]
    columns = np.array(clipped, np.int64).reshape(-1, 2)
    return columns[:, 0].copy(), columns[:, 1].copy()
