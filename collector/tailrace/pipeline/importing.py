"""Finished files through the whole path, once: what `tailrace import` does.

Each format found becomes a source that reads its files to their end. Going on after an interruption
is what a daemon does after a restart; files that are in the table already are left out.
"""

from __future__ import annotations

import glob
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio
from msgspec import structs

from tailrace.clock import SystemClock
from tailrace.config.check import SOURCE_NAME
from tailrace.config.load import Loaded, spool_path, store_path
from tailrace.config.schema import SourceConfig, TailConfig
from tailrace.errors import ConfigError, StoreError, TailraceError
from tailrace.figures import Status
from tailrace.model.spelling import spelled
from tailrace.pipeline.daemon import Daemon
from tailrace.pipeline.service import (
    first_failure,
    raise_descriptor_limit,
    tamed_garbage_collection,
)
from tailrace.pipeline.status import status
from tailrace.query.engine import Engine
from tailrace.query.filters import quote

LOOK_SECONDS = 0.1

END_OF_FILE = "end of file"
"""Why a session of a file that was read once and to its end is closed."""


class Progress(msgspec.Struct):
    """How far an import is: files and bytes read to their end, of how many; rows in the table."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int
    rows: int


class Done(NamedTuple):
    """The last status, and the signal that interrupted the import, or 0."""

    status: Status
    signal: int


def sources(name: str, files: Mapping[str, list[str]], dialect: str) -> dict[str, SourceConfig]:
    """A source for each format; `name` alone if there is one, else `name_format`. Raise ConfigError
    for what is no name."""
    if SOURCE_NAME.fullmatch(name) is None:
        raise ConfigError(
            [f"--source {name}: is no name for a source; allowed: a to z, 0 to 9 and _"]
        )
    return {
        name if len(files) == 1 else f"{name}_{format_}": TailConfig(
            format=format_, paths=[glob.escape(file) for file in paths], dialect=dialect
        )
        for format_, paths in files.items()
    }


def without_imported(
    loaded: Loaded, source: str, found: Mapping[str, list[str]]
) -> tuple[dict[str, list[str]], int]:
    """The files that sources of this name have not read to their end yet, and how many they have.
    Raise TailraceError."""
    _commit_interrupted(loaded)
    known = _imported(loaded, source)
    new = {
        format_: [file for file in files if (spelled(file), Path(file).stat().st_ino) not in known]
        for format_, files in found.items()
    }
    left_out = sum(map(len, found.values())) - sum(map(len, new.values()))
    return {format_: files for format_, files in new.items() if files}, left_out


def _commit_interrupted(loaded: Loaded) -> None:
    """What was read before an interruption and is in the spool only comes into the table, which then
    says which files are read."""
    if not Path(spool_path(loaded.config)).is_dir():
        return
    loaded = loaded._replace(config=structs.replace(loaded.config, sources={}))
    with tamed_garbage_collection(), Daemon(loaded, SystemClock(), once=True) as daemon:

        async def main() -> None:
            stop = trio.Event()
            stop.set()
            await daemon.run(stop, started=lambda: None)

        try:
            trio.run(main)
        except* TailraceError as group:
            raise first_failure(group) from None


def _imported(loaded: Loaded, source: str) -> set[tuple[str, int]]:
    """Path and inode of the files that sources of this name have read to their end."""
    try:
        engine = Engine(store_path(loaded.config), loaded.config.store.options)
    except StoreError:
        return set()  # there is no table yet
    ended = f"""
        SELECT attributes ->> '$.file.path', (attributes ->> '$.file.inode')::BIGINT
        FROM events
        WHERE kind = 'session' AND name = 'close' AND attributes ->> '$.closed' = '{END_OF_FILE}'
          AND (source = {quote(source)} OR starts_with(source, {quote(f"{source}_")}))
    """  # noqa: S608 - quoted
    try:
        return {(path, inode) for path, inode in engine.rows(ended)}
    finally:
        engine.close()


def run(
    loaded: Loaded, found: Mapping[str, SourceConfig], show: Callable[[Progress], None]
) -> Done:
    """Read all files. `show` is called ten times a second.

    Raise TailraceError for what prevents it; what was read by then is in the table or the spool."""
    raise_descriptor_limit()
    loaded = loaded._replace(config=structs.replace(loaded.config, sources=dict(found)))
    with tamed_garbage_collection(), Daemon(loaded, SystemClock(), once=True) as daemon:
        work = _Import(daemon, show)
        trio.run(work.main)
        if work.failure is not None:
            raise work.failure
        return Done(status(daemon), work.signal)


class _Import:
    def __init__(self, daemon: Daemon, show: Callable[[Progress], None]) -> None:
        self.failure: TailraceError | None = None
        self.signal = 0
        self._daemon = daemon
        self._show = show
        self._stop = trio.Event()

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._signals)
            nursery.start_soon(self._progress)
            try:
                await self._daemon.run(self._stop, started=lambda: None)
            except* TailraceError as group:
                self.failure = first_failure(group)
            nursery.cancel_scope.cancel()
        self._tell()

    async def _progress(self) -> None:
        while True:
            self._tell()
            await trio.sleep(LOOK_SECONDS)

    def _tell(self) -> None:
        figures = [source.figures() for source in self._daemon.receiving.sources.values()]
        self._show(
            Progress(
                files=sum(f.files_ended for f in figures),
                files_total=sum(f.files for f in figures),
                bytes=sum(f.raw_bytes for f in figures),
                bytes_total=sum(f.raw_bytes + f.behind_bytes for f in figures),
                rows=self._daemon.figures.rows_committed,
            )
        )

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                if self.signal:
                    os._exit(128 + number)
                self.signal = number
                self._stop.set()
