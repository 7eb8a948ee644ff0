"""Lease snapshots of stores to requests.

An engine (a database connection with a snapshot) serves one request at a time, and is used again by later requests. At
most `SLOTS` requests are answered at the same time; others wait in order of arrival.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.config.load import Loaded, store_path
from tailrace.errors import TailraceError, UnknownError
from tailrace.query.completeness import Completeness, Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition
from tailrace.query.limits import Limits
from tailrace.query.live import NOBODY, Live, beside, look
from tailrace.query.names import ProgramNames
from tailrace.query.remote import RemoteEngine
from tailrace.query.unknown_names import checked_completeness
from tailrace.rollups.building import SidecarWriter
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.rows import SAMPLE_ROWS
from tailrace.rollups.sidecar import RollupProgress, Sidecars
from tailrace.rollups.snapshot import TimelineSnapshot
from tailrace.store.notes import NoteStore

SLOTS = 3
LIMITS = Limits(seconds=30, memory=512 * 2**20, threads=2)
"""Limits on each SQL statement that the viewer itself runs."""

FRESH_SECONDS = 1.0
"""Time for which a snapshot, and the collectors' reports on its version of the table, are used before they are read
again."""

TEND_SECONDS = 30.0
"""Maximum time (seconds) between two searches for data files without roll-ups. After this time, roll-ups of deleted
files are removed, and roll-ups that could not be written are tried again."""

EVERY_ROW = RowCondition("true")

UNANSWERED_SECONDS = 15.0
"""Time for which no collector is asked again after one of them has not answered."""


WAIT_SECONDS = 0.2


class LeftError(TailraceError):
    """Raised when the client of a request has disconnected, or the time of the request is over."""


class LeasedSnapshot(NamedTuple):
    """One version of a store's table, the number of events for which running collectors still wait, and how many rows
    have roll-ups. `leased` is the version with which the snapshot was leased."""

    engine: Engine
    live: Live = NOBODY
    progress: RollupProgress = RollupProgress()
    leased: int = -1

    @property
    def version(self) -> int:
        return self.engine.version

    def whole(self, scope: Scope) -> Completeness:
        """Return how complete the rows in `scope` are. Raise UnknownError if `scope` has a name that does not exist."""
        return checked_completeness(self.engine, scope, self.live)

    @property
    def state(self) -> tuple[object, ...]:
        """Return a value that changes whenever an answer from this snapshot may change."""
        watchers = self.engine.table.watchers
        return self.version, self.live, self.progress, None if watchers is None else tuple(watchers)


class TimelineCache:
    """Keeps the timeline of the newest snapshot of a store. Only one request at a time may use it."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._cache: FileCache | None = None
        self._known: TimelineSnapshot | None = None
        self._progress = RollupProgress()

    def of(self, engine: Engine, progress: RollupProgress) -> TimelineSnapshot:
        """Return the timeline of the snapshot that `engine` reads. If `progress` has changed since the last call, the
        timeline takes up the new roll-ups. The caller must hold `ServedStore.timeline_lock` as long as the timeline is
        used."""
        if self._cache is None:
            self._cache = FileCache(Sidecars(self._store))
        if self._known is None or self._known.version != engine.version:
            # Forget the old timeline before the new one is constructed, because the constructor may fail
            self._known = None
            self._known = TimelineSnapshot(engine, self._cache)
        elif self._progress != progress:
            self._known.take_up()
        self._progress = progress
        self._known.engine = engine
        return self._known


class ServedStore:
    """A store that this server shows, and its idle engines (database connections).

    `name` is the argument on the command line. If it was a run certificate, `sessions` are those of the run.
    """

    def __init__(
        self,
        loaded: Loaded,
        clock: Clock,
        name: str | None = None,
        sessions: Sequence[str] = (),
    ) -> None:
        self.store = store_path(loaded.config)
        self.sessions = list(sessions)
        self.name = name or self.store
        self.loaded = loaded
        self.options = loaded.config.store.options
        self.clock = clock
        self.notes = NoteStore(self.store, self.options)
        self._lock = threading.Lock()
        self._idle: list[tuple[Engine, float]] = []
        self._newest = 0
        # Locks of `timelines`, `names` and `live`. Only a `SnapshotLease` takes them: it stops waiting for another request
        # if its client has left.
        self.timeline_lock, self.names_lock, self.live_lock = (threading.Lock() for _ in range(3))
        self.timelines = TimelineCache(self.store)
        self._names: tuple[object, ProgramNames] | None = None
        self._live: tuple[int, float, Live] | None = None
        self._writer: SidecarWriter | None = None
        self._writer_until = 0.0
        self.lacking = threading.Event()
        """Set when so many rows have no roll-ups that a timeline would be drawn from a sample of them."""

    @property
    def progress(self) -> RollupProgress:
        """How many rows of the table have roll-ups, as of the last call of `tend`."""
        return RollupProgress() if self._writer is None else self._writer.progress

    def note_rows(self, rows: int) -> None:
        """Record the number of rows in a newer version of the table. If only a few of them lack roll-ups, wait for the
        next periodic search. Otherwise, a viewer that follows a program would write roll-ups all the time."""
        if rows - self.progress.rows > SAMPLE_ROWS:
            self.lacking.set()

    def take(self) -> Engine:
        """Return an idle or new engine. Its snapshot was the newest version of the table at most `FRESH_SECONDS` ago.
        Raise StoreError if the table cannot be read."""
        with self._lock:
            engine, looked = self._idle.pop() if self._idle else (None, 0.0)
        if engine is None:
            engine = Engine(self.store, self.options, LIMITS)
        elif engine.version < self._newest or self.clock.monotonic() - looked > FRESH_SECONDS:
            try:
                engine.refresh()
            except TailraceError:
                engine.close()
                raise
        self._newest = max(self._newest, engine.version)
        return engine

    def give_back(self, engine: Engine) -> None:
        with self._lock:
            self._idle.append((engine, self.clock.monotonic()))

    def live(self, engine: Engine) -> Live:
        """Return which events the collectors still await, at the version of the engine's snapshot. If the table gets a
        newer version meanwhile, the snapshot moves to that version."""
        if self._live is not None:
            version, until, live = self._live
            holds = version == engine.version or bool(live.unasked)
            if holds and self.clock.monotonic() < until:
                return live
        live = beside(engine, lambda: look(self.loaded.config))
        patience = UNANSWERED_SECONDS if live.unasked else FRESH_SECONDS
        self._live = engine.version, self.clock.monotonic() + patience, live
        return live

    def names(self, engine: Engine) -> ProgramNames:
        """Return the names of all sessions and threads in an engine's snapshot. Keep the last result until the version or
        the running collectors change, because these determine which sessions are alive."""
        if self._names is None or self._names[0] != (engine.version, engine.watchers):
            read = ProgramNames.read(lambda *asked: list(engine.rows(*asked)), EVERY_ROW)
            self._names = (engine.version, engine.watchers), read
        return self._names[1]

    def tend(self, still: Callable[[], bool], pause: Callable[[], object] = lambda: None) -> None:
        """Write roll-ups (precomputed sums) for large data files that have none, until `still` returns False. Call
        `pause` before each batch of rows. Raise StoreError if the table cannot be read."""
        now = self.clock.monotonic()
        if self._writer is None or now > self._writer_until:
            self._writer = SidecarWriter(self.store, self.options, Sidecars(self.store))
            self._writer_until = now + TEND_SECONDS
        for _ in self._writer.write(pause):
            if not still():
                return

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()


class SnapshotLease:
    """All snapshots and engines (database connections) that one request uses, until `end` is called. Only `interrupt`
    may be called from another thread."""

    def __init__(self, stores: Sequence[ServedStore]) -> None:
        self.stores = stores
        self._taken: dict[int, LeasedSnapshot] = {}
        self._remote: list[RemoteEngine] = []
        self._own: list[Engine] = []
        self._timeline: TimelineSnapshot | None = None
        self._locked: threading.Lock | None = None
        self._left = threading.Event()
        self._giving_back = threading.Lock()
        """Lock that prevents `interrupt` from stopping an engine that serves another request by now."""

    def snapshot(self, store: int = 0) -> LeasedSnapshot:
        """Return the snapshot of a store, always the same one for one request. Raise StoreError if the table cannot be
        read, and UnknownError if there is no store with this number."""
        self.still_wanted()
        if store not in self._taken:
            if not 0 <= store < len(self.stores):
                most = len(self.stores) - 1
                raise UnknownError(f"there is no store {store}; the numbers are 0 to {most}")
            served = self.stores[store]
            engine = served.take()
            self._taken[store] = LeasedSnapshot(engine)
            live = self._live(served, engine)  # may move the engine to another version
            self._taken[store] = LeasedSnapshot(engine, live, served.progress, engine.version)
        return self._taken[store]

    def names(self) -> ProgramNames:
        """Return the names of the sessions and threads in the first store's snapshot."""
        store, engine = self.stores[0], self.snapshot().engine
        self._acquire(store.names_lock)
        try:
            return store.names(engine)
        finally:
            store.names_lock.release()

    def timeline(self) -> TimelineSnapshot:
        """Return the timeline of the first store's snapshot, once no other request uses it."""
        snapshot = self.snapshot()
        if self._timeline is None:
            store = self.stores[0]
            self._acquire(store.timeline_lock)
            self._locked = store.timeline_lock
            self._timeline = store.timelines.of(snapshot.engine, snapshot.progress)
        return self._timeline

    def own_snapshot(self, limits: Limits) -> LeasedSnapshot:
        """Return the newest snapshot of the first store, with a new engine, which the caller must close."""
        self.still_wanted()
        store = self.stores[0]
        engine = Engine(store.store, store.options, limits)
        self._own.append(engine)
        return LeasedSnapshot(engine, self._live(store, engine))

    def in_own_process(self, snapshot: LeasedSnapshot, limits: Limits) -> RemoteEngine:
        """Return an engine that runs statements on the version of the snapshot, each in a separate process."""
        self.still_wanted()
        remote = RemoteEngine(snapshot.engine, limits)
        self._remote.append(remote)
        return remote

    def same(self) -> bool:
        """Return whether all snapshots still have the version with which they were leased."""
        return all(snapshot.version == snapshot.leased for snapshot in self._taken.values())

    def still_wanted(self) -> None:
        """Raise LeftError if the request was interrupted."""
        if self._left.is_set():
            raise LeftError("the client has left")

    def _acquire(self, lock: threading.Lock) -> None:
        """Wait for a lock that another request holds. Raise LeftError if this request is interrupted meanwhile."""
        while not lock.acquire(timeout=WAIT_SECONDS):
            self.still_wanted()

    def _live(self, store: ServedStore, engine: Engine) -> Live:
        self._acquire(store.live_lock)
        try:
            return store.live(engine)
        finally:
            store.live_lock.release()

    def interrupt(self) -> None:
        """Interrupt the request's SQL statements, and let it start no further ones."""
        with self._giving_back:
            self._left.set()
            used: list[Engine | RemoteEngine | TimelineSnapshot] = [*self._own, *self._remote]
            used += [snapshot.engine for snapshot in list(self._taken.values())]
            if (timeline := self._timeline) is not None:
                used.append(timeline)
            for each in used:
                # Ignore the error, because the request's thread may be closing the engine at the same moment.
                with suppress(Exception):
                    each.interrupt()

    def end(self, *, good: bool) -> None:
        """Give all engines back to their stores. If `good` is false, close them: an interrupt may still reach them."""
        with self._giving_back:
            remotes, self._remote = self._remote, []
            taken, self._taken = self._taken, {}
            self._timeline = None
            good = good and not self._left.is_set()
        for remote in remotes:
            remote.close()
        if self._locked is not None:
            self._locked.release()
            self._locked = None
        for store, snapshot in taken.items():
            if good:
                self.stores[store].give_back(snapshot.engine)
            else:
                snapshot.engine.close()
