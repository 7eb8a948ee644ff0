"""Read what the table's log states of each data file, and choose which files a question needs by that.

A file is left out only where the log says that none of its rows can match. Columns without statistics, of files that
other writers made or with texts too long to state, leave no file out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deltalake import DeltaTable

Value = int | str


class Bounds(NamedTuple):
    """The values that a column of matching rows has: from `least` to `most`, both inclusive; None for no bound."""

    least: Value | None = None
    most: Value | None = None

    def both(self, other: Bounds) -> Bounds:
        """Return the bounds of what is within both."""
        leasts = [b.least for b in (self, other) if b.least is not None]
        mosts = [b.most for b in (self, other) if b.most is not None]
        return Bounds(max(leasts, default=None), min(mosts, default=None))

    def either(self, *others: Bounds) -> Bounds:
        """Return the bounds of what is within any of them."""
        leasts, mosts = zip(self, *others, strict=True)
        least = None if None in leasts else min(leasts)
        return Bounds(least, None if None in mosts else max(mosts))


Region = Mapping[str, Bounds]
"""Columns of matching rows with their bounds; rows match within all of them."""


def started_in(regions: Sequence[Region] | None, *, timed: bool) -> str:
    """Return a condition on the starts of rows of these regions, as SQL: by `time` if all rows have one, or by `start`."""
    conditions = []
    for region in regions or ():
        column = "time" if timed and "time" in region else "start"
        bounds = region.get(column, Bounds())
        ends = [
            f"{column} {sign} {value:d}"
            for sign, value in ((">=", bounds.least), ("<=", bounds.most))
            if isinstance(value, int)
        ]
        if not ends:
            return "true"
        conditions.append(f"({' AND '.join(ends)})")
    return " OR ".join(conditions) or "true"


class FileStatistics:
    """The data files of one version of the table, by their number in the order of the log."""

    def __init__(self, table: DeltaTable) -> None:
        actions = table.get_add_actions(flatten=True)
        self._columns = {name: number for number, name in enumerate(actions.schema.names)}
        self._actions = actions
        self._read: dict[str, list[Any]] = {}
        self.paths: list[str] = list(actions.column("path").to_pylist())
        """The files' paths below the table, percent-encoded."""

    def numbers(self, regions: Sequence[Region], *, timed: bool = False) -> list[int]:
        """Return the files that may hold a row of one of these regions.

        Unless rows are known to be `timed`, a row without a time may get one from its clock."""
        found: set[int] = set()
        for region in regions:
            found |= self._within(region, timed=timed)
        return sorted(found)

    @property
    def untimed(self) -> int | None:
        """Return how many rows have no time; None where the log does not say."""
        nulls = self._column("null_count.time")
        return None if None in nulls else sum(nulls)

    def _within(self, region: Region, *, timed: bool) -> set[int]:
        left = set(range(len(self.paths)))
        for column, bounds in region.items():
            left = {n for n in left if self._may_match(n, column, bounds, timed=timed)}
        return left

    def _may_match(self, number: int, column: str, bounds: Bounds, *, timed: bool) -> bool:
        nulls = self._column(f"null_count.{column}")[number]
        if column == "time" and nulls != 0 and not timed:
            return True
        if nulls is not None and nulls == self._column("num_records")[number]:
            return False
        low, high = (self._column(f"{end}.{column}")[number] for end in ("min", "max"))
        if low is None or high is None:
            return True
        least, most = bounds
        return (most is None or low <= most) and (least is None or high >= least)

    def _column(self, name: str) -> list[Any]:
        """Return what the log states of each file, or None for each."""
        if name not in self._read:
            number = self._columns.get(name)
            values = (
                [None] * len(self.paths)
                if number is None
                else list(self._actions.column(number).to_pylist())
            )
            self._read[name] = values
        return self._read[name]
