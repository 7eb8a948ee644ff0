"""Merge the stores of a job's nodes into one store.

Each row is added once, even if a merge is repeated or killed. No collector may run on a node's store during the
merge. `finish` first writes to the table what killed collectors had received but not stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.load import own_part
from tailrace.config.schema import MAIN, HeartbeatConfig, JobConfig, StoreConfig
from tailrace.configuration import choose
from tailrace.errors import StoreError
from tailrace.filesystem import refusal_text
from tailrace.query.engine import Engine
from tailrace.query.filters import quote
from tailrace.run.ranks import NAME as RANKS, NodeBegan, read
from tailrace.run.service import read_rest
from tailrace.run.surroundings import tails_of_node
from tailrace.store import presence
from tailrace.store.data_files import DayRows
from tailrace.store.layout import TABLE_NAME
from tailrace.store.merged import MergedTable, by_day, identity
from tailrace.store.presence import DirectoryLock, Entrance


def found(directories: Iterable[Path]) -> list[Path]:
    """Return the paths of all stores among the given directories and their direct subdirectories. Raise StoreError
    if a given directory contains no store."""
    stores: dict[Path, None] = {}
    for directory in directories:
        below = [directory]
        if not _is_store(directory):
            try:
                below = [path for path in directory.iterdir() if path.is_dir()]
            except OSError as error:
                raise StoreError(f"{directory}: {error.strerror}") from error
            below = sorted(filter(_is_store, below))
        if not below:
            raise StoreError(f"{directory}: there is no store in it")
        stores |= dict.fromkeys(path.resolve() for path in below)
    return list(stores)


def finish(store: Path, config: Path | None, clock: Clock) -> bool:
    """Run each killed collector of a store once more, to write the events of its spool to the table and close its
    sessions. The collector of a job's node also reads the trace files of the node's ranks to their end. Return whether
    the store had any killed collectors. Raise StoreError if a collector still runs on the store."""
    try:
        directories = presence.directories(store)
    except OSError as error:
        raise StoreError(f"{store}: {error.strerror}") from error
    for name, directory in directories.items():
        if presence.is_held(directory):
            which = "a collector" if name == MAIN else f"collector {name}"
            raise StoreError(f"{store}: {which} still runs on it")
    left = [name for name, directory in directories.items() if not presence.is_finished(directory)]
    for name in left:
        loaded = choose(config, str(store))
        began = [line for line in read(store) if isinstance(line, NodeBegan)]
        job = JobConfig(id=began[-1].job, node=began[-1].node) if began else loaded.config.job
        changed = structs.replace(
            loaded.config, collector=structs.replace(loaded.config.collector, name=name),
            sources=tails_of_node(own_part(store, name) / "traces"), job=job,
            heartbeat=HeartbeatConfig(interval=None),
        )  # fmt: skip
        read_rest(loaded, changed, clock, last=True)
    return bool(left)


def _is_store(path: Path) -> bool:
    """Return whether a directory is a store: it has a table, or a rank log, which is written before a table."""
    return (path / TABLE_NAME / "_delta_log").is_dir() or (path / RANKS).exists()


BATCH_ROWS = 500_000
"""Maximum number of rows in each data file that a merge writes."""

QUARANTINE = "quarantine"

RANKS_DIRECTORY = "ranks"
"""Name of the directory in a merged store with the rank logs of all stores that were merged into it."""


class MergedStore(NamedTuple):
    """A store whose rows were merged into another store, and the number of rows that this other store lacked."""

    store: Path
    rows: int


def merge(
    stores: Iterable[Path], into: Path, config: StoreConfig, clock: Clock
) -> Iterator[MergedStore]:
    """Merge the rows of `stores` into the store `into`. Yield each store once its rows are durable. Raise StoreError
    if a store cannot be read or written, FullError if the disk is full, LockedError if another program holds the
    lock of `into`."""
    into.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(into), Entrance(into) as entrance:
        if not entrance.alone:
            # Do not make further collectors wait for the end of the merge: the collectors that already run on `into`
            # have repaired its table.
            entrance.admit()
        table = MergedTable.open(into, config, clock)
        for store in stores:
            if store == into.resolve():
                raise StoreError(f"{store}: cannot be merged into itself")
            table_id, version = identity(store)
            count = 0
            if table.merged(table_id) != version:
                count = table.add(_rows(store, into, version), table_id, version)
            _copy_beside(store, into, table_id)
            yield MergedStore(store, count)


def _rows(store: Path, into: Path, version: int) -> Iterator[DayRows]:
    """Yield the rows of the table `store` at version `version` that the table `into` lacks, grouped into data files."""
    with closing(Engine(str(store), version=version)) as theirs, closing(Engine(str(into))) as ours:
        known = _sessions(ours) & _sessions(theirs)
        listed = ", ".join(map(quote, sorted(known))) or "''"
        whole = theirs.connection.sql(f"FROM stored WHERE session NOT IN ({listed})")
        yield from _in_files(whole.to_arrow_reader(BATCH_ROWS))
        for session in sorted(known):
            where = f"FROM stored WHERE session = {quote(session)}"
            yield from _in_files(_lacking(theirs, ours, where))


def _lacking(theirs: Engine, ours: Engine, where: str) -> pa.RecordBatchReader:
    """Return the rows of `theirs` that `ours` lacks. `where` selects one session that both tables contain."""
    connection = duckdb.connect()
    connection.register("theirs", theirs.connection.sql(where).to_arrow_table())
    connection.register("ours", ours.connection.sql(where).to_arrow_table())
    lacking = connection.sql("SELECT * FROM theirs EXCEPT ALL SELECT * FROM ours")
    return lacking.to_arrow_reader(BATCH_ROWS)


def _in_files(reader: pa.RecordBatchReader) -> Iterator[DayRows]:
    for batch in reader:
        yield from by_day(pa.Table.from_batches([batch]))


def _sessions(engine: Engine) -> set[str]:
    return {session for (session,) in engine.rows("SELECT DISTINCT session FROM stored")}


def _copy_beside(store: Path, into: Path, table_id: str) -> None:
    """Copy a store's quarantine files and rank logs into the store `into`. Raise StoreError if a file cannot be read
    or written."""
    try:
        for path in (store / QUARANTINE).glob("*"):
            target = into / QUARANTINE / path.name
            same = target.exists() and target.stat().st_size == path.stat().st_size
            if path.is_file() and not same:
                _copy(path, target)
        if (store / RANKS).exists():
            _copy(store / RANKS, into / RANKS_DIRECTORY / table_id / RANKS)
        for path in (store / RANKS_DIRECTORY).glob(f"*/{RANKS}"):
            _copy(path, into / RANKS_DIRECTORY / path.parent.name / RANKS)
    except OSError as error:
        where = error.filename2 or error.filename or into
        raise StoreError(f"{where}: {refusal_text(error.errno, where)}") from error


def _copy(path: Path, target: Path) -> None:
    """Copy a file. `target` never contains a partial copy, even if the copying is interrupted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.part")
    shutil.copyfile(path, temporary)
    temporary.replace(target)


def rank_logs(store: Path) -> list[Path]:
    """Return the directories with rank logs in a store: the store itself if a node wrote it, and one directory for each
    store that was merged into it."""
    with suppress(OSError):
        merged = sorted(path.parent for path in (store / RANKS_DIRECTORY).glob(f"*/{RANKS}"))
        return [*([store] if (store / RANKS).exists() else []), *merged]
    return []
