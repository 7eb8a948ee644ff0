"""Find out which files earlier imports have read, and how much of each file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio
from msgspec import structs

from tailrace.clock import SystemClock
from tailrace.config.load import Loaded, shared_path, spool_path, store_path
from tailrace.config.schema import MAIN, CollectorConfig
from tailrace.daemon.daemon import Mode, collecting
from tailrace.decoding.formats import FORMATS
from tailrace.errors import StoreError, TailraceError, first_failure
from tailrace.filesystem import spelled
from tailrace.query.engine import Engine
from tailrace.query.filters import quote
from tailrace.rows.schema import IS_OWN
from tailrace.store.presence import directories, find, is_finished, is_import

NAME = "import"
"""Name of the separate collector that an import uses while another collector runs on the store."""


class AsRead(msgspec.Struct, frozen=True):
    """The properties of a file at the time when a session read it. Earlier versions of Tailrace did not store the
    fields that have a default."""

    path: str
    inode: int
    size: int
    device: int | None = None
    crc: int | None = None
    documents: dict[str, int] = {}


class Reading(NamedTuple):
    """A session of an earlier import, whether it has ended, and the file that it has read wholly or in part. `session`
    is its id without the suffix that each restart of the producer adds."""

    source: str
    format: str
    session: str
    file: AsRead
    closed: bool


def beside(loaded: Loaded) -> Loaded:
    """Return the configuration for an import: with the name of a separate collector if another collector is running, or
    if an earlier import with a separate collector did not finish."""
    config = loaded.config
    shared = shared_path(config)
    try:
        own = directories(shared).get(NAME)
    except OSError:
        # Ignore the error: the import reports it when it opens the store's directory.
        return loaded
    if config.collector.name != MAIN or is_import(shared):
        return loaded
    runs = find(shared, [shared, Path(spool_path(config))]) is not None
    if not runs and (own is None or is_finished(own)):
        return loaded
    return loaded._replace(config=structs.replace(config, collector=CollectorConfig(name=NAME)))


def mode(loaded: Loaded) -> Mode:
    """Return the mode of the collector that an import runs: it reads its files once and stops."""
    return Mode(once=True, imports=loaded.config.collector.name == NAME)


def sources_of(name: str) -> tuple[str, ...]:
    """Return the names that the sources of an import may have: `name` itself, and `name` with the name of each format."""
    return name, *(f"{name}_{format_}" for format_ in FORMATS)


def root(session: str) -> str:
    """Return a session's id without the suffix that marks a restart."""
    return session.partition(".")[0]


def readings(loaded: Loaded, source: str, paths: Iterable[str]) -> list[Reading]:
    """Return the sessions, with their files, that earlier imports have left in the table or the spool and that queries
    show. Those that have not read their file to its end come last. First, commit what an interrupted import has left in
    the spool.

    Raise TailraceError if this fails, if the table cannot be read, or if another collector has an unfinished session
    that reads one of `paths`: only its spool shows how much of the file the session has read."""
    wanted = sources_of(source)
    open_ = [reading for reading in _commit_interrupted(loaded) if reading.source in wanted]
    if loaded.config.collector.name == NAME:
        own = {reading.session for reading in open_}
        _refuse_others(loaded, wanted, own, {spelled(path) for path in paths})
    return [*_closed(loaded, wanted), *open_]


def closed(loaded: Loaded) -> list[Reading]:
    """Return the closed sessions of the configured sources, each with the file that it has read. Include sessions of
    copies, which views leave out. First, commit the data that a stopped collector has left in the spool.

    Raise TailraceError if this fails, or if the table cannot be read."""
    _commit_interrupted(loaded)
    return _closed(loaded, tuple(loaded.config.sources), copies=True)


def _refuse_others(
    loaded: Loaded, sources: tuple[str, ...], own: set[str], paths: set[str]
) -> None:
    """Raise StoreError if an open session reads one of `paths`, and is not one of this import's sessions `own`."""
    try:
        engine = Engine(store_path(loaded.config), loaded.config.store.options)
    except StoreError:
        return  # The store has no table yet, so no session reads the files.
    with closing(engine):
        listed = ", ".join(map(quote, sources))
        asked = f"SELECT session, peer FROM sessions WHERE closed IS NULL AND source IN ({listed})"  # noqa: S608 - quoted
        for session, path in engine.rows(asked):
            if path in paths and root(session) not in own:
                raise StoreError(
                    f"{path}: an interrupted import has read a part of this file, and a collector of this store has taken it over;"
                    " if that collector runs, stop it; then repeat the command"
                )


def finished(engine: Engine, source: str) -> set[str]:
    """Return the ids of an import's closed sessions. Sessions that queries do not show are left out."""
    rows = engine.rows(_closes("DISTINCT part.root(session)", sources_of(source)))
    return {session for (session,) in rows}


def _commit_interrupted(loaded: Loaded) -> list[Reading]:
    """Commit the data that an interrupted import has left in the spool. Return the sessions that are still open."""
    if not Path(spool_path(loaded.config)).is_dir():
        return []
    loaded = loaded._replace(config=structs.replace(loaded.config, sources={}))
    with collecting(loaded, SystemClock(), mode(loaded)) as daemon:

        async def main() -> None:
            stop = trio.Event()
            stop.set()
            await daemon.run(stop, started=lambda: None)

        try:
            trio.run(main)
        except* TailraceError as group:
            raise first_failure(group) from None
        open_, found = daemon.ingest.open_sessions(), []
        for number, file in daemon.ingest.files(open_).items():
            info, at = open_[number], file.facts
            read = AsRead(at.path, at.inode, file.offset, at.device, file.crc, file.documents)
            found.append(Reading(info.source, info.format, info.session, read, closed=False))
        return found


def _closed(loaded: Loaded, sources: tuple[str, ...], *, copies: bool = False) -> list[Reading]:
    try:
        engine = Engine(store_path(loaded.config), loaded.config.store.options)
    except StoreError:
        return []  # the store has no table yet
    with closing(engine):
        columns = "DISTINCT source, format, session, attributes ->> '$.file'"
        rows = [*engine.rows(_closes(columns, sources))]
        if copies:
            rows += engine.rows(_closes(columns, sources, _OF_COPIES))
        return [
            Reading(
                source, format_, root(session), msgspec.json.decode(file, type=AsRead), closed=True
            )
            for source, format_, session, file in rows
            if file is not None
        ]


_OF_COPIES = f"""(
  SELECT *, name AS own FROM stored
  WHERE {IS_OWN} AND part.root(session) IN (SELECT session FROM part.copies) AND EXISTS (FROM part.kept_few)
)"""  # noqa: S608 - our own words
"""SQL for the collector's own rows about sessions that read copies. It names `part.kept_few` for one reason: the
catalog then fills `part.copies` as well."""


def _closes(columns: str, sources: tuple[str, ...], rows: str = "part.kept_sessions") -> str:
    """Return a SELECT of the rows that state how much of its file each session has read: its `close` row, or its
    `leave` row if the file contains a goodbye (the packet with which a client ends its session) before its end."""
    listed = ", ".join(map(quote, sources))
    return (
        f"SELECT {columns} FROM {rows}"  # noqa: S608 - quoted
        f" WHERE own IN ('close', 'leave') AND source IN ({listed})"
        " AND contains(attributes, '\"file\"')"
    )
