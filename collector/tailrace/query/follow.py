"""Follow a table: yield each row once, when it is committed.

A follower reads the table's log to learn the files of each new version. Upkeep deletes the log entry of a version
after a quarter of an hour. A follower that was stopped for longer reads a snapshot instead, and yields the rows
after its *marks*, the positions in the sessions' bytes up to which it has yielded rows. Only gap rows that were
found late and lie before the mark may be left out. A merge of files also creates a version, but adds no rows: its
log entries have `dataChange` false (Delta transaction log protocol, "Add File and Remove File")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types

from tailrace.errors import StoreError
from tailrace.query.engine import Engine
from tailrace.query.table import AddedFile, TableReader
from tailrace.rows.schema import COLUMNS
from tailrace.store.log import decode

PAGE_ROWS = 2000

FollowedRow = tuple[Any, ...]
"""A row with the stored values of all COLUMNS. The column `day` is a date."""


class Commit(NamedTuple):
    """The changes of one version of the table: the files with new rows, and the paths of added and removed files."""

    new: list[AddedFile]
    added: list[str]
    removed: list[str]


_STORED = [column.name for column in COLUMNS if column.name != "day"]


class Commits:
    """Reads the log and the data files of the Delta table at `root`, a path or URL."""

    def __init__(self, root: str, options: dict[str, str]) -> None:
        self._root = root
        self._files = PyFileSystem(DeltaStorageHandler(root, options or None))

    def read(self, version: int) -> Commit | None:
        """Return the changes of a version; None if it does not exist yet, or upkeep has deleted its log entry."""
        path = f"_delta_log/{version:020}.json"
        try:
            with self._files.open_input_file(path) as file:
                actions = decode(file.read())
            adds = [action.add for action in actions if action.add]
            new = [
                AddedFile(unquote(add.path), date.fromisoformat(str(add.partition_values["day"])))
                for add in adds
                if add.data_change
            ]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"{self._root}/{path}: cannot be read: {error}") from error
        removed = [unquote(action.remove.path) for action in actions if action.remove]
        return Commit(new, [unquote(add.path) for add in adds], removed)

    def rows(self, file: AddedFile) -> Iterator[list[FollowedRow]]:
        """Yield the rows of a data file page by page. Raise FileNotFoundError if upkeep has deleted it."""
        try:
            with ParquetFile(self._files.open_input_file(file.path)) as parquet:
                for batch in parquet.iter_batches(PAGE_ROWS, columns=_STORED):
                    columns = (batch.column(name).to_pylist() for name in _STORED)
                    yield [(file.day, *row) for row in zip(*columns, strict=True)]
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise StoreError(f"{self._root}/{file.path}: cannot be read: {error}") from error


SOURCE, SESSION, KIND, OFFSET, END_OFFSET = (
    [column.name for column in COLUMNS].index(name)
    for name in ("source", "session", "kind", "offset", "end_offset")
)

_GROUPS = {"gap": "derived", "heal": "derived", "session": "derived", "begin": "begin"}
"""The group of each kind of row; all kinds that are not listed form one more group. Within a group, a later row never
has a smaller offset than an earlier one. Across groups, this is not so: a gap row, a session row, and a heal row (about
missing events that arrived later) have the number of bytes received so far as their offset, and begin rows of open
spans are written at a commit, after records with greater offsets."""

_HASHED = [i for i, column in enumerate(COLUMNS) if column.name not in {"day", "wall"}]
"""Indices of the columns by which rows are compared: all but `day` and `wall`, for which DuckDB and pyarrow return
different types."""

LOOK_EVERY = 16
"""Number of calls of `poll` without a next version, after which the newest version is looked up."""

ATTEMPTS = 5

FollowedKey = tuple[str, str, str]
"""The source and the id of a session, and a group of kinds of rows (`_GROUPS`)."""


class Follower:
    """Yields the rows committed from now on or, with `from_start`, all rows. `notices` has lines for the user."""

    def __init__(self, store: str, options: dict[str, str], *, from_start: bool = False) -> None:
        self.notices: list[str] = []
        self._marks: dict[FollowedKey, tuple[int, list[int]]] = {}
        """For each key (a session and a group of kinds of rows), the mark up to which rows were yielded: the greatest
        offset, and the hashes of the rows at this offset, because several rows can have one offset."""
        self._misses = 0
        self._known: set[str] = set()
        if from_start:
            self._table = TableReader(store, options)
            self._backlog = self._table.files_by_age()
        else:
            engine = Engine(store, options)
            answer = engine.ask(_AT_MARKS)
            while page := answer.next_page():
                for row in page:
                    self._mark(row)
            engine.close()
            self._table = engine.table
            self._backlog = []
            self._known = {file.path for file in self._table.files_by_age()}
        self._commits = Commits(self._table.root, options)
        self._next = self._table.version() + 1

    def poll(self) -> Iterator[list[FollowedRow]]:
        """Yield the rows committed since the last call, page by page. The caller must exhaust the iterator."""
        backlog, self._backlog = self._backlog, []
        try:
            yield from self._give(backlog)
            while (commit := self._commits.read(self._next)) is not None:
                yield from self._give(commit.new)
                self._known.difference_update(commit.removed)
                self._known.update(commit.added)
                self._next += 1
                self._misses = 0
        except FileNotFoundError:
            yield from self._catch_up()
            return
        # From time to time, check whether the log lacks the next version although it has later ones.
        self._misses += 1
        if self._misses % LOOK_EVERY == 0:
            self._table.refresh()
            if self._table.version() >= self._next and self._commits.read(self._next) is None:
                yield from self._catch_up()

    def _give(self, files: list[AddedFile]) -> Iterator[list[FollowedRow]]:
        for file in files:
            for page in self._commits.rows(file):
                for row in page:
                    self._mark(row)
                yield page
            self._known.add(file.path)

    def _mark(self, row: FollowedRow) -> None:
        key, offset = _key(row), _place(row)
        marked, hashes = self._marks.get(key, (-1, []))
        if offset > marked:
            self._marks[key] = offset, [_hash(row)]
        elif offset == marked:
            hashes.append(_hash(row))

    def _catch_up(self) -> Iterator[list[FollowedRow]]:
        """Yield the rows of the newest snapshot that lie after the marks (positions up to which rows were yielded),
        because upkeep has deleted a log entry or files."""
        for _ in range(ATTEMPTS):
            self._table.refresh()
            files = self._table.files_by_age()
            given = {
                key: (offset, Counter(hashes)) for key, (offset, hashes) in self._marks.items()
            }
            try:
                for file in files:
                    if file.path in self._known:
                        continue
                    for page in self._commits.rows(file):
                        new = [row for row in page if _is_new(row, given)]
                        for row in new:
                            self._mark(row)
                        if new:
                            yield new
            except FileNotFoundError:
                continue
            self.notices.append(
                f"versions {self._next} to {self._table.version()} were merged or deleted before this"
                " command read them; it continued from a snapshot"
            )
            self._known = {file.path for file in files}
            self._next = self._table.version() + 1
            return
        raise self._table.too_fast()


def _is_new(row: FollowedRow, given: dict[FollowedKey, tuple[int, Counter[int]]]) -> bool:
    """Return whether a row lies after the mark of its key. `given` has the mark of each key: the greatest offset of the
    yielded rows, and the hashes of the yielded rows at this offset. A row at this offset is new unless its hash is
    among them. The hash is then removed, because each hash stands for only one row."""
    offset, hashes = given.get(_key(row), (-1, Counter()))
    if (place := _place(row)) != offset:
        return place > offset
    if (hash_ := _hash(row)) not in hashes:
        return True
    hashes[hash_] -= 1
    if not hashes[hash_]:
        del hashes[hash_]
    return False


def _key(row: FollowedRow) -> FollowedKey:
    return row[SOURCE], row[SESSION], _GROUPS.get(row[KIND], "")


def _place(row: FollowedRow) -> int:
    """Return the position of a row in the session's bytes: the offset of the record that ends a span or, for any other
    row, of its only record."""
    place: int = row[OFFSET] if row[END_OFFSET] is None else row[END_OFFSET]
    return place


def _hash(row: FollowedRow) -> int:
    return hash(tuple(row[i] for i in _HASHED))


_AT_MARKS = """
WITH rows AS (
  SELECT *, coalesce(end_offset, "offset") AS place,
    CASE WHEN kind IN ('gap', 'heal', 'session') THEN 'derived' WHEN kind = 'begin' THEN 'begin' ELSE '' END AS part
  FROM stored
),
marks AS (
  SELECT source, session, part, max(place) AS place
  FROM rows
  GROUP BY source, session, part
)
SELECT * EXCLUDE (place, part)
FROM rows SEMI JOIN marks USING (source, session, part, place)
"""
