"""Write the table `events`: rows and the spool position, committed together and exactly once.

A Delta commit has a batch of rows and two transactions: `COLLECTOR/spool`, the spool position up to which all rows are
in the table, and `COLLECTOR`, the epoch (Unix ns) of the collector instance. If two instances use one name, the older
one is refused and ends. A commit that raises an exception may have succeeded; the position in the table then shows what
happened.

A commit of few rows takes 6 ms of CPU on a local disk, one of 100,000 rows 32 to 37 ms, and one of 500,000 rows 135 ms
(2026-11-23). All calls block. Two threads may call: one calls `prepare`, the other one all other methods."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sized
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from tailrace.clock import Clock
from tailrace.config.schema import StoreConfig
from tailrace.errors import FencedError, FullError, LockedError, StoreError, SyncError
from tailrace.filesystem import is_local
from tailrace.rows.batch import Batch
from tailrace.store import data_files, durable, layout, schema
from tailrace.store.data_files import DayRows
from tailrace.store.durable import CHECKPOINT_DUE, CHECKPOINT_EVERY, LocalVersions
from tailrace.store.log import Add, DeltaLog
from tailrace.store.recovery import Others, Refills, TableRecovery, recover
from tailrace.store.refusal import is_broken_off, is_conflict, refusal, refusing

RENEW_DUE = 200
"""Number of versions after which a commit opens the table again, so that later commits are faster."""

CONFLICT_TRIES = 5
CONFLICT_DELAY = 0.05
"""Delay (seconds) before the second try of a conflicting commit, doubled for each further try."""

LIBRARY_TRIES = 15
"""Number of times that the Delta library itself retries a commit whose version number another commit has used."""


SAFE_NS = layout.REMOVED_HOURS * 3600 * 10**9 // 2
"""Maximum age (ns) of a data file at its commit. An older file is renamed first. Upkeep removes files without a log
entry once they are `REMOVED_HOURS` old. It could find an older file before the commit, and still remove this file after
the commit."""


class PreparedRows(Sized):
    """The rows of the next commit: in synced files of a local table, or in memory for a table at a URL."""

    def __init__(
        self, count: int, rows: list[DayRows], added: list[Add], root: Path | None, clock: Clock
    ) -> None:
        self._count = count
        self._rows = rows
        self._added = added
        self._root = root
        self._clock = clock
        self._old = False

    def __len__(self) -> int:
        return self._count

    def keep(self) -> None:
        """Update the modification times of the data files, so that no upkeep removes them. Ignore missing files."""
        with suppress(OSError):
            self._touch()

    def renew(self) -> None:
        """Update the modification times of the data files, and rename files that an upkeep may have listed. Raise
        FullError or StoreError if the call may be repeated.

        Raise SyncError if a sync fails, or if a file was removed."""
        if self._root is None:
            return
        try:
            self._touch()
            if self._old:
                for number, add in enumerate(self._added):
                    self._added[number] = data_files.renamed(self._root, add)
                self._old = False
        except OSError as error:
            if isinstance(error, FileNotFoundError) and DeltaLog(self._root).directory.is_dir():
                raise SyncError(
                    f"{self._root}: a file of a commit was removed before it: {error}"
                ) from error
            raise refusal(error, str(self._root), "commit") from error

    def write(self, table: DeltaTable, properties: CommitProperties) -> bool:
        """Write a version of the table with these rows.

        Return False if another writer has added a version since `table` was read: then check that `table` still has
        this collector's newest commit. If the write raises an exception, the version may be in the table nevertheless.
        """
        if self._rows:
            write_deltalake(
                table,
                pa.concat_tables(map(data_files.with_day, self._rows)),
                mode="append",
                writer_properties=layout.writer_properties(),
                post_commithook_properties=durable.NO_HOOKS,
                commit_properties=properties,
            )
            return True
        before = table.version()
        data_files.commit(table, self._added, properties)
        return table.version() == before + 1

    def _touch(self) -> None:
        """Update the modification times of the data files. Set `_old` if a modification time was older than
        `SAFE_NS`."""
        for add in self._added:
            path = (self._root or Path()) / add.path
            if self._clock.wall_ns() - path.stat().st_mtime_ns >= SAFE_NS:
                self._old = True
            os.utime(path)


class Table:
    """A collector's handle for writing to the table. After a SyncError every call raises SyncError."""

    def __init__(self, root: str, options: dict[str, str], collector: str, clock: Clock) -> None:
        self.root = root
        self.recovery = TableRecovery()
        """The repairs that `open` has made to the table."""
        self._options = options
        self._collector = collector
        self._spool_id = f"{collector}/spool"
        self._clock = clock
        self._local = LocalVersions(Path(root)) if is_local(root) else None
        self._table: DeltaTable
        self._opened_at = 0
        """Version of the table when it was last opened."""
        self._seen = 0
        """Version of the table at this collector's last commit, or at its start."""
        self._position: int | None = None
        self._epoch = 0
        # Epoch (Unix ns) of the instance that committed last under this collector's name
        self._fence: int | None = None
        self._unsure = False  # whether a commit whose write failed may be in the table nevertheless
        self._prepared: list[PreparedRows] = []
        """Rows in data files that are not committed yet. Each commit updates the modification times of these files."""
        self._broken: SyncError | None = None

    @classmethod
    def open(
        cls,
        path: str,
        *,
        options: dict[str, str],
        collector: str,
        config: StoreConfig,
        clock: Clock,
        refills: Refills,
        others: Others = MappingProxyType({}),
        alone: bool = True,
    ) -> Self:
        """Open or create the table in the store `path`, a directory or URL. Repair a local table if no other collector
        uses the store (`alone`).

        `collector` is the collector's permanent name in the table. `refills` returns whether this collector's spool
        still has the rows of damaged versions, and `others` has such a function for each other collector. Raise
        StoreError for an unusable table, FullError if the disk is full, or SyncError if a sync fails."""
        self = cls(layout.table_root(path), options, collector, clock)
        with refusing(self.root, "open the table", DeltaError):
            if self._local is not None:
                root = self._local.root
                root.parent.mkdir(parents=True, exist_ok=True)
                if alone:
                    self.recovery = recover(
                        root, collector=collector, refills=refills, others=others, clock=clock
                    )
            layout.open_or_create(self.root, options, config)
            if self._local is not None:
                self._local.sync_newest()
        self._table, self._position, self._fence = self._ask()
        self._opened_at = self._seen = self._table.version()
        self._epoch = max(clock.wall_ns(), (self._fence or 0) + 1)
        if self._local is not None and self._local.since_checkpoint() >= CHECKPOINT_DUE:
            # Shorten the log at the start, too: collectors that end after a few commits would otherwise never shorten
            # it.
            self.checkpoint()
        return self

    def position(self) -> int | None:
        """Return the spool position up to which all rows are in the table, or None before the first commit."""
        return self._position

    def version(self) -> int:
        return self._table.version()

    def prepare(self, batch: Batch) -> PreparedRows:
        """Prepare the rows of the next commit. Another thread may call `land` meanwhile.

        Raise FullError or StoreError if the rows cannot be written: repeat the call. Raise SyncError if a sync fails:
        the process must end. Raise TypeError, OverflowError or UnicodeError for a value that does not fit its column.
        """
        root = self._local.root if self._local else None
        with self._refusing_after_sync_error(), ExitStack() as undo:
            days, added = data_files.to_arrow(batch), list[Add]()
            if root is not None:
                undo.callback(data_files.discard, root, added)
                with refusing(self.root, "commit"):
                    while days:
                        added.append(data_files.write_rows(root, days.pop(0)))
            rows = PreparedRows(len(batch), days, added, root, self._clock)
            self._prepared.append(rows)
            undo.pop_all()
            return rows

    def land(self, rows: PreparedRows, position: int) -> None:
        """Commit `rows`, which `prepare` returned, durably: all rows from the committed spool position to `position`.

        Raise FullError or StoreError if success is unknown: call again with the same rows. Raise FencedError if another
        instance of this collector has committed, or SyncError if a sync fails: the process must end. Raise ValueError
        if there are rows and the position, which identifies the commit, does not advance."""
        with self._refusing_after_sync_error():
            committed = self._position or 0
            if position < committed or (position == committed and len(rows)):
                raise ValueError(f"{len(rows)} rows at {position}, but {committed} is committed")
            if position == committed:
                self._prepared.remove(rows)
                return
            for each in tuple(self._prepared):
                each.keep()
            attempt, landed = 0, self._unsure and self._reopen(position)
            if not landed:
                rows.renew()
            while not landed:
                attempt += 1
                self._unsure = True
                try:
                    if not rows.write(self._table, self._properties(position)):
                        self._check_handle(position)
                    landed = True
                except Exception as error:
                    # After any exception, only the table shows whether the commit succeeded.
                    landed = self._reopen(position)
                    if not landed:
                        if attempt == CONFLICT_TRIES or not is_conflict(error):
                            raise refusal(error, self.root, "commit") from error
                        delay = CONFLICT_DELAY * 2 ** (attempt - 1)
                        time.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            # Until the version is synced, an error must not make a later call write the rows once more.
            self._unsure = True
            version = self._table.version()
            if self._local is not None:
                self._local.sync(version)
            self._unsure = False
            self._position, self._fence = position, self._epoch
            self._prepared.remove(rows)
            self._shorten(version)

    def _shorten(self, version: int) -> None:
        """Shorten the log or reopen the table, so that the next commit takes less time. Ignore failures."""
        # At a URL, count the commits of all collectors, because each collector may end after a few commits.
        before, self._seen = self._seen, version
        if self._local is None and before // CHECKPOINT_DUE != version // CHECKPOINT_DUE:
            self.checkpoint()
        elif version - self._opened_at >= RENEW_DUE:
            with suppress(StoreError, FullError):
                self._reopen()

    @property
    def checkpoint_every(self) -> int:
        """Return the number of commits between two calls of `checkpoint`. At a URL, each call costs requests."""
        return CHECKPOINT_DUE if self._local is None else CHECKPOINT_EVERY

    def checkpoint(self, *, keep: int = durable.LOG_VERSIONS_KEPT) -> bool:
        """Write a checkpoint, keep `keep` log files below it, and return whether the log was shortened.

        The log stays unchanged if the disk is full, or if another process shortens it or has recently done so. Raise
        SyncError if a sync fails, and FencedError if another instance of this collector has written to the table."""
        done = True
        try:
            with self._refusing_after_sync_error():
                if self._local is None:
                    self._table.create_checkpoint()
                    self._table.cleanup_metadata()
                else:
                    done = self._local.checkpoint(self._table, keep=keep)
                self._reopen()
        except (DeltaError, OSError, LockedError, StoreError, FullError):
            return False
        return done

    @property
    def schema_version(self) -> int:
        return schema.version_of(self._table)

    def upgrade(self) -> list[schema.SchemaStep]:
        """Upgrade the table durably to the current schema, with one commit for each step. Return the steps.

        Raise FullError or StoreError if a step fails; the next start continues the upgrade. Raise FencedError if
        another instance of this collector has written to the table, or SyncError if a sync fails: the process must end.
        """
        taken: list[schema.SchemaStep] = []
        attempt = 1
        while step := schema.next_step(self._table):
            try:
                schema.take(step, self._table)
                taken.append(step)
            except (DeltaError, OSError) as error:
                # Try again, because another collector may be upgrading the same table.
                if attempt == CONFLICT_TRIES or not is_conflict(error):
                    raise refusal(error, self.root, "change the schema") from error
                attempt += 1
            self._reopen()
        if self._local is not None:
            with self._refusing_after_sync_error():
                self._local.sync(self._table.version())
        return taken

    def _properties(self, position: int) -> CommitProperties:
        now = self._clock.wall_ns() // 1_000_000
        return CommitProperties(
            max_commit_retries=LIBRARY_TRIES,
            app_transactions=[
                Transaction(self._spool_id, position, now),
                Transaction(self._collector, self._epoch, now),
            ],
        )

    def _reopen(self, position: int | None = None) -> bool:
        """Open the table again. Return whether it has this collector's commit up to `position`. Raise FencedError if
        another instance of this collector has written to the table, or StoreError if it is not readable."""
        # Open the table anew: a commit reads all versions since the table was opened, which takes 7 ms of CPU, and 38
        # ms for each 100 versions.
        table, found, epoch = self._ask()
        if (found, epoch) not in {(position, self._epoch), (self._position, self._fence)}:
            raise self._fenced(found)
        self._table, self._unsure = table, False
        self._opened_at = table.version()
        return (found, epoch) == (position, self._epoch)

    def _ask(self) -> tuple[DeltaTable, int | None, int | None]:
        """Open the table at its newest version. Return the handle, and this collector's position and epoch in this
        version.

        Check position and epoch before a commit with the handle: the library looks for conflicts only in versions that
        are newer than the handle's version."""
        for attempt in range(1, layout.OPEN_TRIES + 1):
            table = layout.open_table(self.root, self._options)
            try:
                return table, *self._stands_at(table)
            # OSError may occur because the Delta library reads the log for each transaction.
            except (DeltaError, OSError) as error:
                again = is_conflict(error) or is_broken_off(error)
                if attempt == layout.OPEN_TRIES or not again:
                    raise refusal(error, self.root, "read the position") from error
        raise AssertionError("the last attempt returns or raises")

    def _check_handle(self, position: int) -> None:
        """Raise FencedError unless the newest commit under this collector's name is of this instance, up to `position`."""
        # The library does not refuse a commit after another instance with this name has committed, so compare the
        # epoch.
        found = self._stands_at(self._table)
        if found != (position, self._epoch):
            raise self._fenced(found[0])

    def _stands_at(self, table: DeltaTable) -> tuple[int | None, int | None]:
        """Return this collector's spool position and the epoch of its last commit; None before the first commit."""
        return table.transaction_version(self._spool_id), table.transaction_version(self._collector)

    def _fenced(self, found: int | None) -> FencedError:
        return FencedError(
            f"{self.root}: another instance of collector {self._collector} has written to the table:"
            f" it stands at {found}, this one had committed {self._position}"
        )

    @contextmanager
    def _refusing_after_sync_error(self) -> Iterator[None]:
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except SyncError as error:
            self._broken = error
            raise
