"""Open one version of the table for DuckDB, and find the files of this version that a statement needs to read.

A file is left out only if its statistics in the table's log prove that none of its rows can match. A column lacks
statistics if another program wrote the file, or if its texts are too long."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.errors import StoreError
from tailrace.filesystem import is_local
from tailrace.store.layout import TABLE_NAME, TableSnapshot, open_table, table_root
from tailrace.store.log import DeltaLog
from tailrace.store.presence import directories, is_held
from tailrace.store.refusal import line
from tailrace.store.schema import SCHEMA, check_readable

if TYPE_CHECKING:
    import pyarrow.dataset  # type: ignore[import-untyped]  # it has no types


StatedValue = int | str


class Bounds(NamedTuple):
    """The range of values of one column, from `least` to `most`, both inclusive. None stands for no limit."""

    least: StatedValue | None = None
    most: StatedValue | None = None

    def both(self, other: Bounds) -> Bounds:
        leasts = [b.least for b in (self, other) if b.least is not None]
        mosts = [b.most for b in (self, other) if b.most is not None]
        return Bounds(max(leasts, default=None), min(mosts, default=None))

    def either(self, *others: Bounds) -> Bounds:
        """Return the smallest range that contains this range and all ranges in `others`."""
        leasts, mosts = zip(self, *others, strict=True)
        least = None if None in leasts else min(leasts)
        return Bounds(least, None if None in mosts else max(mosts))


Region = Mapping[str, Bounds]
"""A region of the table: the bounds of columns, by column name. A row lies in the region if each of its values lies
within the bounds of its column."""


def started_in(regions: Sequence[Region] | None, *, timed: bool) -> str:
    """Return an SQL condition that all rows in `regions` meet. For each region, it limits the column `time` if every row
    has a time (`timed`) and the region limits the time, otherwise the column `start`. Return the SQL `true` if a region
    does not limit this column."""
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
    """The statistics in the table's log about the data files of one version, numbered by their position in the log."""

    def __init__(self, table: DeltaTable) -> None:
        actions = table.get_add_actions(flatten=True)
        self._columns = {name: number for number, name in enumerate(actions.schema.names)}
        self._actions = actions
        self._read: dict[str, list[Any]] = {}
        self.paths: list[str] = list(actions.column("path").to_pylist())
        """Paths of the table's data files, relative to the table and percent-encoded."""

    def numbers(self, regions: Sequence[Region], *, timed: bool = False) -> list[int]:
        """Return the numbers of the files that may have a row in one of `regions`. A range of time never excludes a
        file that has rows without a stored time, unless `timed` states that the snapshot has no such rows."""
        found: set[int] = set()
        for region in regions:
            left = set(range(len(self.paths)))
            for column, bounds in region.items():
                left &= self._matching(column, bounds, timed=timed)
            found |= left
        return sorted(found)

    @property
    def untimed(self) -> int | None:
        """Number of rows without a stored time, or None if the table's log does not state it."""
        nulls = self._column("null_count.time")
        return None if None in nulls else sum(nulls)

    def _matching(self, column: str, bounds: Bounds, *, timed: bool) -> set[int]:
        names = f"null_count.{column}", "num_records", f"min.{column}", f"max.{column}"
        files = zip(*map(self._column, names), strict=True)
        least, most = bounds
        found = set()
        for number, (nulls, rows, low, high) in enumerate(files):
            untimed = column == "time" and nulls != 0 and not timed
            empty = nulls is not None and nulls == rows
            known = low is not None and high is not None
            outside = known and (
                (most is not None and low > most) or (least is not None and high < least)
            )
            if untimed or not (empty or outside):
                found.add(number)
        return found

    def _column(self, name: str) -> list[Any]:
        """Return the statistic `name`, such as `min.time`, with a value for each file; None if the log does not state
        it."""
        if name not in self._read:
            number = self._columns.get(name)
            lacking = [None] * len(self.paths)
            found = lacking if number is None else self._actions.column(number).to_pylist()
            self._read[name] = list(found)
        return self._read[name]


class AddedFile(NamedTuple):
    """A Parquet file of the table with the rows of one day. `path` is relative to the table."""

    path: str
    day: date


class TableReader(TableSnapshot):
    """Reads one version of a store's table. Methods raise StoreError with the table's path. Upkeep keeps the files of a
    version for at least an hour after a newer version has replaced them; a longer statement may find them gone."""

    def __init__(self, store: str, options: dict[str, str], version: int | None = None) -> None:
        """Open version `version` of the table, or the newest one if this is None or can no longer be read."""
        root = table_root(store)
        self.local = is_local(root)
        self.root = str(Path(root).absolute()) if self.local else root
        self.seen_at = self.root
        """Path under which DuckDB opens the files of a local table."""
        super().__init__(open_table(self.root, options, check_readable))
        if version is not None and version != self._table.version():
            try:
                self._table.load_as_version(version)
            except (DeltaError, OSError):
                self._table.update_incremental()
        self._log = DeltaLog(Path(self.root)) if self.local else None
        self._checked: int | None = None
        """Version up to which no log file is damaged. None before the first check."""
        self._check_log()
        self._statistics = self._table.version(), FileStatistics(self._table)

    def refresh(self) -> bool:
        before = self._table.version()
        newer = super().refresh()
        try:
            self._check_log()
        except StoreError:
            # The library would not read the log file again after its repair.
            with suppress(DeltaError, OSError):
                self._table.load_as_version(before)
            raise
        return newer

    def _check_log(self) -> None:
        """Raise StoreError if a log file of a local table is damaged. The Delta library reads an empty one as a version
        without changes, and the rows of that version would be missing without a trace."""
        if self._log is None:
            return
        newest = self._table.version()
        if self._checked is None:
            checkpoints = self._log.checkpoints()
            self._checked = max((each for each in checkpoints if each <= newest), default=-1)
        for version in range(self._checked + 1, newest + 1):
            try:
                self._log.read(version)
            except FileNotFoundError:
                pass  # upkeep has deleted the file, because a checkpoint replaces it
            except (OSError, ValueError) as error:
                path = self._log.path(version)
                raise StoreError(f"{path}: cannot be read: {error}") from error
            self._checked = version

    def enter(self, room: str) -> None:
        """Make the private directory `room` the working directory, and link a local table there."""
        os.chdir(room)
        if self.local:
            Path(TABLE_NAME).symlink_to(self.root)
            self.seen_at = TABLE_NAME

    @property
    def watched(self) -> bool:
        """Whether a running collector uses the store, or may use it because this is unknown."""
        watchers = self.watchers
        return watchers is None or bool(watchers)

    @property
    def watchers(self) -> list[str] | None:
        """Names of the collectors that run on the store. None if they are unknown, as for a store at a URL."""
        if not self.local:
            return None
        try:
            found = directories(Path(self.root).parent)
            return [name for name, directory in found.items() if is_held(directory)]
        except OSError:
            return None

    @property
    def statistics(self) -> FileStatistics:
        """The statistics in the table's log about the files of this version, read once for each version."""
        if self._statistics[0] != self._table.version():
            self._statistics = self._table.version(), FileStatistics(self._table)
        return self._statistics[1]

    def file_uris(self) -> list[str]:
        """Return the paths or URLs of the files that make up this version."""
        if not self.local:
            return super().file_uris()
        return [f"{self.seen_at}/{unquote(path)}" for path in self.statistics.paths]

    def picked(self, regions: Sequence[Region], *, timed: bool = False) -> list[str]:
        """Return the files of a local table that may contain rows in one of the regions. If there are none, return one
        file, from which DuckDB can find out the columns. `timed` states that all rows have times."""
        uris, numbers = self.file_uris(), self.statistics.numbers(regions, timed=timed)
        return [uris[number] for number in numbers] or uris[:1]

    def files_by_age(self) -> list[AddedFile]:
        """Return the files of this version, ordered by day and then by modification time."""
        actions = self._table.get_add_actions(flatten=True)
        columns = ("partition.day", "modification_time", "path")
        rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
        return [AddedFile(path, day) for day, _, path in sorted(rows)]

    def missing_files(self) -> list[str]:
        """Return those files of this version that no longer exist; an empty list for a table at a URL."""
        if not self.local:
            return []
        return [file for file in self.file_uris() if not Path(file).exists()]

    def overtaken(self) -> bool:
        """Move to the newest version if files of this version were deleted. Return whether the version has changed.
        Raise StoreError if a file is missing that also belongs to the newest version."""
        missing = self.missing_files()
        if self.local and not missing:
            return False
        newer = self.refresh()
        if missing and not newer:
            raise StoreError(f"{missing[0]}: belongs to the table, but does not exist")
        return newer

    def too_fast(self) -> StoreError:
        return StoreError(f"{self.root}: files are deleted faster than they can be read")

    def unreadable(self, error: Exception) -> StoreError:
        return StoreError(f"{self.root}: cannot be read: {line(error)}")

    def lacking(self) -> set[str]:
        """Return the names of columns that this table lacks, because an older version of Tailrace created the table."""
        return {field.name for field in SCHEMA.fields} - {
            field.name for field in self._table.schema().fields
        }

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return this version as a pyarrow dataset. Raise StoreError if the table cannot be read."""
        try:
            dataset = self._table.to_pyarrow_dataset()
        except (DeltaError, OSError) as error:
            raise self.unreadable(error) from error
        if not self.lacking():
            return dataset
        import pyarrow  # noqa: PLC0415 - only an old table at a URL needs it here

        return dataset.replace_schema(pyarrow.schema(SCHEMA))
