"""Read finished trace files once through the whole pipeline, for `tailrace import`.

Each detected format becomes a source, which reads its files to their end. An interrupted import continues like a
restarted daemon.
"""

from __future__ import annotations

import glob
import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio
from msgspec import structs

from tailrace.clock import SystemClock
from tailrace.config.check import SOURCE_NAME
from tailrace.config.load import Loaded
from tailrace.config.schema import SourceConfig, TailConfig
from tailrace.daemon.daemon import Daemon, collecting, raise_descriptor_limit
from tailrace.daemon.status import source_status, status
from tailrace.errors import ConfigError, TailraceError, first_failure
from tailrace.figures import SourceStatus, Status
from tailrace.filesystem import find_spelled
from tailrace.importing.choosing import TakenFile, choose
from tailrace.importing.discover import find
from tailrace.importing.readings import Reading, beside, closed, mode, readings
from tailrace.importing.summary import Summary, summary
from tailrace.sources.tail.watch import Chosen
from tailrace.store.presence import IMPORT

LOOK_SECONDS = 0.1

logger = logging.getLogger(__name__)

SUMS = (
    "received_bytes", "decoded_bytes", "malformed_bytes", "rows", "expected_events", "seen_events",
    "missing_events", "duplicate_events", "unknown_gaps", "sessions_opened",
)  # fmt: skip
SUMS_BY_REASON = ("gap_events", "heal_events")
"""Names of the counters of a source that have one number for each reason of a gap. The numbers include earlier imports
into the same table: a summary subtracts these."""


class ImportProgress(msgspec.Struct):
    """The numbers of files and bytes read so far, of all files and bytes, and of rows committed to the table."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int
    rows: int


class ImportDone(NamedTuple):
    """The result of reading the files: the collector's last status, which counts this import alone, and the number of
    the signal that interrupted the import (0 for none)."""

    status: Status
    signal: int


class Wanted(NamedTuple):
    """The files and directories to import, and how. If `format` is None, the format of each file is recognised. If
    `unreadable` is true, files that cannot be read are left out; otherwise they are an error."""

    paths: tuple[Path, ...]
    source: str = "import"
    format: str | None = None
    dialect: str = "auto"
    again: bool = False
    unreadable: bool = False


def take(
    loaded: Loaded,
    wanted: Wanted,
    progress: Callable[[], AbstractContextManager[Callable[[ImportProgress], None]]],
) -> tuple[Summary, ImportDone | None]:
    """Import files. Return the summary, and the result of reading the files: None if no file had to be read. Raise
    ConfigError for unreadable paths or an impossible source name, and TailraceError if the import fails."""
    if SOURCE_NAME.fullmatch(wanted.source) is None:
        problem = "is not a valid name for a source; allowed: a to z, 0 to 9 and _"
        raise ConfigError([f"--source {wanted.source}: {problem}"])
    loaded = beside(loaded)
    found = find(wanted.paths, wanted.format, unreadable=wanted.unreadable)
    traces = [path for files in found.traces.values() for path in files]
    before = readings(loaded, wanted.source, traces) if traces else []
    choice = choose(found.traces, before, again=wanted.again)
    done = None
    if choice.taken:
        chosen = sources(wanted.source, choice.taken, wanted.dialect, formats=len(found.traces))
        with progress() as show:
            done = run(loaded, chosen, choice.taken, found.within, show)
    return summary(
        loaded, wanted.source, choice, found.left_out, before=before,
        last=done.status if done else None, interrupted=bool(done and done.signal),
    ), done  # fmt: skip


def read_before(loaded: Loaded) -> dict[str, Chosen]:
    """Return a choice of files for each source with closed sessions:

    - the files to leave out, because these sessions have read them to their ends
    - the sessions that a file replaces, because it has grown since they read it

    Raise TailraceError if the table or the spool cannot be read."""
    by_source: dict[str, list[Reading]] = {}
    for reading in closed(loaded):
        by_source.setdefault(reading.source, []).append(reading)
    found = {}
    for source, readings_ in by_source.items():
        paths = {reading.file.path for reading in readings_}
        files = sorted(filter(None, map(find_spelled, paths)))
        choice = choose({readings_[0].format: files}, readings_, again=False)
        left_out = frozenset(files).difference(file.path for file in choice.taken)
        replaces = {file.path: file.replaces for file in choice.taken if file.replaces}
        if left_out:
            logger.info(
                "source %s: files that earlier sessions have read to their ends, and that are left out: %d",
                source, len(left_out), extra={"source": source},
            )  # fmt: skip
        found[source] = Chosen(replaces, left_out=left_out)
    return found


def sources(
    source: str, taken: Iterable[TakenFile], dialect: str, *, formats: int
) -> dict[str, SourceConfig]:
    """Return the configuration of a source for each format.

    If there is one format, its source has the name `source`, otherwise `<source>_<format>`. A file that an interrupted
    import has begun to read stays in the source of that import."""
    files: dict[tuple[str, str], list[str]] = {}
    for file in taken:
        own = source if formats == 1 else f"{source}_{file.format}"
        files.setdefault((file.source or own, file.format), []).append(glob.escape(file.path))
    return {
        name: TailConfig(format=format_, paths=paths, dialect=dialect)
        for (name, format_), paths in files.items()
    }


def run(
    loaded: Loaded,
    found: Mapping[str, SourceConfig],
    taken: Iterable[TakenFile],
    within: Mapping[str, str],
    show: Callable[[ImportProgress], None],
) -> ImportDone:
    """Read all files, and call `show` with the progress ten times a second. `within` maps the path of each file that
    was found in a directory to the directory that the user gave.

    Raise TailraceError if the import fails. All data that was read before the error is in the table or the spool."""
    raise_descriptor_limit()
    loaded = loaded._replace(config=structs.replace(loaded.config, sources=dict(found)))
    facts = Chosen({file.path: file.replaces for file in taken}, within)
    work = _Import(show)
    chosen = dict.fromkeys(found, facts)
    with collecting(
        loaded, SystemClock(), mode(loaded), chosen=chosen, replayed=work.replayed
    ) as daemon:
        marks = daemon.marks
        marks.begin(IMPORT)
        trio.run(work.main, daemon)
        if work.signal:
            marks.begin(IMPORT)
        if work.failure is not None:
            raise work.failure
        last = status(daemon)
        last.sources = {
            name: _since(work.before.get(name, now), now) for name, now in last.sources.items()
        }
        return ImportDone(last, work.signal)


def _since(before: SourceStatus, after: SourceStatus) -> SourceStatus:
    """Return the status of this import alone: the later status `after` of a source less the counts of `before`.

    Sessions that were open in `before`, and the bytes of their unfinished records, count for this import, which
    continues to read them."""
    changes = {name: getattr(after, name) - getattr(before, name) for name in SUMS}
    changes["received_bytes"] += before.pending_bytes
    # Missing events count as expected, too. An event that an earlier import counted as missing and that this import has
    # read does not change the number of expected events. Count it as expected in this import, too.
    changes["expected_events"] -= min(changes["missing_events"], 0)
    for name in ("missing_events", "unknown_gaps"):
        changes[name] = max(changes[name], 0)
    changes["sessions_opened"] += before.sessions_opened - before.sessions_closed
    by_reason: dict[str, object] = {}
    for name in SUMS_BY_REASON:
        earlier = getattr(before, name)
        by_reason[name] = {
            reason: count - earlier.get(reason, 0) for reason, count in getattr(after, name).items()
        }
    return structs.replace(after, **changes, **by_reason)


class _Import:
    def __init__(self, show: Callable[[ImportProgress], None]) -> None:
        self.failure: TailraceError | None = None
        self.signal = 0
        self.before: dict[str, SourceStatus] = {}
        """The status of each source before this import. Its counts are those of earlier imports."""
        self._show = show
        self._stop = trio.Event()

    async def main(self, daemon: Daemon) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._signals)
            nursery.start_soon(self._progress, daemon)
            try:
                await daemon.run(self._stop, started=lambda: None)
            except* TailraceError as group:
                self.failure = first_failure(group)
            nursery.cancel_scope.cancel()
        self._tell(daemon)

    def replayed(self, daemon: Daemon) -> None:
        """Remember the status of each source before this import, which has the counts of earlier imports."""
        for name, config in daemon.config.sources.items():
            self.before[name] = deepcopy(source_status(daemon, name, config))

    async def _progress(self, daemon: Daemon) -> None:
        while True:
            self._tell(daemon)
            await trio.sleep(LOOK_SECONDS)

    def _tell(self, daemon: Daemon) -> None:
        figures = [source.figures() for source in daemon.sources.values()]
        self._show(
            ImportProgress(
                files=sum(f.files_ended for f in figures),
                files_total=sum(f.files for f in figures),
                bytes=sum(f.raw_bytes for f in figures),
                bytes_total=sum(f.raw_bytes + f.behind_bytes for f in figures),
                rows=daemon.figures.rows_committed,
            )
        )

    async def _signals(self) -> None:
        chosen = [signal.SIGTERM, signal.SIGINT]
        # Under nohup, SIGHUP is ignored and must stay so.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            chosen.append(signal.SIGHUP)
        with trio.open_signal_receiver(*chosen) as signals:
            async for number in signals:
                if self.signal:
                    os._exit(128 + number)
                self.signal = number
                self._stop.set()
