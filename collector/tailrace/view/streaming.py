"""Send answers in parts: news for the open pages, and exports.

Once a second, every open page gets the version of the table, rates of events, and the health of the collectors. A page
that reads slowly gets only the newest message.

An export has the content of a file of `tailrace export`. It is written to a temporary directory, from one snapshot, and
then sent; several files are sent as a ZIP archive.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import zipfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tailrace.errors import TailraceError, UnknownError
from tailrace.export import WRITERS
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Selected, export
from tailrace.query.limits import Limits, make_room
from tailrace.query.live import ask
from tailrace.query.patience import Patience
from tailrace.query.table import TableReader
from tailrace.store.layout import DataFile
from tailrace.view.answers import from_attributes
from tailrace.view.leases import ServedStore, SnapshotLease
from tailrace.view.questions import OfExport
from tailrace.view.wire import CollectorHealth, News, Rate

EVERY_SECONDS = 1.0
KEPT_SECONDS = 120
"""Time for which past rates of events are kept, to be sent to a page."""

QUIET_SECONDS = 15.0
"""After this time without news, a page gets an empty message, which shows whether the connection still exists."""

AWAY_SECONDS = 10.0
"""Time for which no collector is asked again, after a collector has not answered and the attempt took more than a
second."""


class _SourceFields(msgspec.Struct):
    seen_events: int


class _Spool(msgspec.Struct):
    undecoded_bytes: int
    uncommitted_bytes: int


class _HeartbeatFields(msgspec.Struct):
    interval_seconds: float
    age_seconds: float


class CollectorStatus(msgspec.Struct):
    """Those fields of a collector's status page (`figures.Status`) that this module reads."""

    state: str
    conditions: dict[str, str]
    pid: int
    uptime_seconds: float
    sources: dict[str, _SourceFields]
    spool: _Spool
    heartbeat: _HeartbeatFields


class Rates:
    """Computes events per second of each source from the counts in successive statuses of the collectors."""

    def __init__(self) -> None:
        self._last: tuple[set[int], float, Counter[str]] | None = None
        self._rates: dict[str, deque[tuple[float, float]]] = {}

    def add(self, statuses: Collection[CollectorStatus], now: float) -> None:
        sums: Counter[str] = Counter()
        for status in statuses:
            for name, source in status.sources.items():
                sums[name] += source.seen_events
        pids = {status.pid for status in statuses}
        if self._last is not None:
            before_pids, then, before = self._last
            if pids == before_pids and now > then:
                for name, seen in sums.items():
                    kept = self._rates.setdefault(name, deque(maxlen=KEPT_SECONDS))
                    kept.append((now, max(seen - before[name], 0) / (now - then)))
        self._last = pids, now, sums

    def of(self, now: float) -> list[Rate]:
        """Return the rates of the last `KEPT_SECONDS`, with times (seconds) relative to `now`."""
        found = []
        for name, kept in sorted(self._rates.items()):
            recent = [(at, rate) for at, rate in kept if now - at <= KEPT_SECONDS]
            if recent:
                seconds = [round(at - now, 3) for at, _ in recent]
                found.append(
                    Rate(source=name, seconds=seconds, events=[rate for _, rate in recent])
                )
        return found


class LiveWatch:
    """Collects the news of one store (`News`, a message for the open pages) in a thread, once a second, while at least
    one page is open."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store
        self._clock = store.clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._table: TableReader | None = None
        self._statuses: dict[str, CollectorStatus] = {}
        self._unasked = ""
        self._not_before = 0.0
        self._rates = Rates()
        self._number = 0
        self._listeners = 0
        self._news: bytes | None = None
        self._changed = asyncio.Event()
        self._stopped = False
        self._looking: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield `News` about the store as server-sent events to one page, until `close` is called."""
        self._listeners += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on())
        try:
            given = None
            while not self._stopped:
                if self._news is not given and self._news is not None:
                    given = self._news
                    yield given
                    continue
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1

    def close(self) -> None:
        self._stopped = True
        self._changed.set()
        self._thread.shutdown(wait=False)

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        while self._listeners and not self._stopped:
            self._news = await loop.run_in_executor(self._thread, self._message)
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(EVERY_SECONDS)

    def _message(self) -> bytes:
        """Read the table once, ask each collector once, and return the message for the open pages. If an error occurs,
        the message reports the error."""
        version = 0
        files: list[DataFile] = []
        unasked = ""
        try:
            version, files = self._look_at_table()
        except TailraceError as error:
            self._table = None
            unasked = str(error)
        if (began := self._clock.monotonic()) >= self._not_before:
            self._statuses, self._unasked, _ = ask(self._store.loaded.config, CollectorStatus)
            now = self._clock.monotonic()
            if self._statuses:
                self._rates.add(self._statuses.values(), now)
            if self._unasked and now - began > EVERY_SECONDS:
                self._not_before = now + AWAY_SECONDS
        self._number += 1
        progress = self._store.progress
        news = News(
            number=self._number,
            version=version,
            rows=sum(file.rows for file in files),
            files=len(files),
            file_bytes=sum(file.size for file in files),
            preparing=None if progress.rows == progress.of else progress,
            collectors=[_health(name, status) for name, status in self._statuses.items()],
            unasked=unasked or self._unasked,
            rates=self._rates.of(self._clock.monotonic()),
        )
        return b"id: %d\nevent: news\ndata: %b\n\n" % (self._number, msgspec.json.encode(news))

    def _look_at_table(self) -> tuple[int, list[DataFile]]:
        """Return the version of the table, and its data files."""
        if self._table is None:
            self._table = TableReader(self._store.store, self._store.options)
            newer = True
        else:
            newer = self._table.refresh()
        files = self._table.files()
        if newer:
            self._store.note_rows(sum(file.rows for file in files))
        return self._table.version(), files


def _health(name: str, status: CollectorStatus) -> CollectorHealth:
    beats = status.heartbeat.interval_seconds > 0
    return from_attributes(
        CollectorHealth,
        status,
        name=name,
        behind_seconds=status.heartbeat.age_seconds if beats else None,
        undecoded_bytes=status.spool.undecoded_bytes,
        uncommitted_bytes=status.spool.uncommitted_bytes,
    )


COMPLETENESS = "x-tailrace-completeness"
"""Header of an export's response: JSON that states which events are missing, and what the format cannot express."""

EXPORT_LIMITS = Limits(memory=256 * 2**20, spill=2**40, threads=2)
EXPORT_SECONDS = 900.0
"""Maximum time for writing an export."""

PIECE = 2**18

SUFFIXES = {"perfetto": "pftrace", "chrome": "json", "otlp": "jsonl"}
"""File name extensions of the export formats whose extension differs from the name of the format."""

ARCHIVE = "application/zip"
BINARY = "application/octet-stream"


class Written(NamedTuple):
    """A written export: the file, its temporary directory, and a description of what the file lacks (`words`)."""

    directory: Path
    file: Path
    words: dict[str, object]


def write_export(lease: SnapshotLease, asked: OfExport) -> Written:
    """Write an export to a temporary directory. Raise the errors of `export`."""
    if asked.format not in WRITERS:
        raise UnknownError(f"there is no format {asked.format!r}; known: {', '.join(WRITERS)}")

    def select() -> Selected:
        snapshot = lease.own_snapshot(EXPORT_LIMITS)
        patience = Patience(snapshot.engine, None)
        return Selected(snapshot.engine, asked.filters, patience, snapshot.live)

    directory = Path(make_room("view"))
    try:
        main = directory / f"trace.{SUFFIXES.get(asked.format, asked.format)}"
        with Output(str(main)) as output:
            exported = export(WRITERS[asked.format].load(), select, output, RowCount(None))
        if output.names == [main]:
            return Written(directory, main, exported.words)
        archive = directory / f"trace.{asked.format}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as files:
            for name in output.names:
                files.write(name, name.name)
        return Written(directory, archive, exported.words)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


class Download(StreamingResponse):
    """A response that sends a file and then removes the file's directory, even if the client has disconnected."""

    def __init__(self, written: Written) -> None:
        name = written.file.name
        self._written = written
        super().__init__(
            _pieces(written.file),
            media_type=ARCHIVE if name.endswith(".zip") else BINARY,
            headers={
                "cache-control": "no-store",
                "content-disposition": f'attachment; filename="{name}"',
                "content-length": str(written.file.stat().st_size),
                COMPLETENESS: json.dumps(written.words),
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            shutil.rmtree(self._written.directory, ignore_errors=True)


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, PIECE):
            yield piece
