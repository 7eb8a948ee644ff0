"""Lease snapshots of stores to requests, so that each engine serves one request at a time.

An engine, which has a database of its own, is opened on demand and reused by later requests. Few questions
run at once, whatever the number of pages; other questions wait in order. If the client of a question leaves,
or the question takes too long, the question is interrupted.
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
from tailrace.query.limits import Limits
from tailrace.query.live import NOBODY, Live, beside, look
from tailrace.query.remote import RemoteEngine, StoreVersion
from tailrace.query.unknown_names import checked_completeness
from tailrace.rollups.building import tend
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.sidecar import Sidecars
from tailrace.rollups.snapshot import TimelineSnapshot
from tailrace.store.notes import NoteStore

SLOTS = 3
"""Number of questions that run at a time."""

LIMITS = Limits(seconds=30, memory=512 * 2**20, threads=2)
"""Limits of a statement of the viewer's own. To sort texts of 10 MB takes about 100 MB of memory."""

FRESH_SECONDS = 1.0
"""Time (seconds) for which a snapshot counts as the newest, and an answer of the collectors as current."""

UNANSWERED_SECONDS = 15.0
"""Time (seconds) for which collectors are not asked again after one gave no answer. A request to a collector
that gives no answer takes `admin.ANSWER_SECONDS`."""


WAIT_SECONDS = 0.2


class LeftError(TailraceError):
    """Raised when the client has disconnected, so that the answer is unwanted."""


class LeasedSnapshot(NamedTuple):
    """One version of a store's table, and the events that running collectors still await."""

    engine: Engine
    live: Live

    @property
    def version(self) -> int:
        return self.engine.version

    def whole(self, scope: Scope) -> Completeness:
        """Return the completeness of an answer. Raise UnknownError if the scope contains an unknown name."""
        return checked_completeness(self.engine, scope, self.live)

    @property
    def state(self) -> tuple[object, ...]:
        """Return the facts that determine all answers from this snapshot, as a cache key."""
        watchers = self.engine.table.watchers
        return self.version, self.live, None if watchers is None else tuple(watchers)


class TimelineCache:
    """A cache of the timeline of the newest snapshot. One question uses the timeline at a time."""

    def __init__(self, store: str) -> None:
        self.lock = threading.Lock()
        self._store = store
        self._cache: FileCache | None = None
        self._known: TimelineSnapshot | None = None

    def of(self, engine: Engine) -> TimelineSnapshot:
        """Return the timeline of an engine's snapshot. The caller must hold `lock` until its answer is
        complete."""
        if self._cache is None:
            self._cache = FileCache(Sidecars(self._store))
        if self._known is None or self._known.version != engine.version:
            self._known = None  # drop the old timeline first, in case the constructor fails
            self._known = TimelineSnapshot(engine, self._cache)
        self._known.engine = engine
        return self._known


class ServedStore:
    """A store with its idle engines.

    `name` is the argument on the command line. If this argument was the certificate of a run, `sessions` are
    the sessions of the run."""

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
        self._options = loaded.config.store.options
        self.clock = clock
        self.notes = NoteStore(self.store, self._options)
        self._lock = threading.Lock()
        self._idle: list[tuple[Engine, float]] = []
        self._newest = 0
        self.timelines = TimelineCache(self.store)
        self._live_lock = threading.Lock()
        self._live: tuple[int, float, Live] | None = None

    def take(self) -> Engine:
        """Return an idle or new engine whose snapshot was the newest at most `FRESH_SECONDS` ago. Raise
        StoreError."""
        with self._lock:
            engine, looked = self._idle.pop() if self._idle else (None, 0.0)
        if engine is None:
            engine = self.open(LIMITS)
        elif engine.version < self._newest or self.clock.monotonic() - looked > FRESH_SECONDS:
            try:
                engine.refresh()
            except TailraceError:
                engine.close()
                raise
        self._newest = max(self._newest, engine.version)
        return engine

    def open(self, limits: Limits) -> Engine:
        """Return a new engine on the newest snapshot. Raise StoreError."""
        return Engine(self.store, self._options, limits)

    def give_back(self, engine: Engine) -> None:
        with self._lock:
            self._idle.append((engine, self.clock.monotonic()))

    def live(self, engine: Engine) -> Live:
        """Return the events of an engine's snapshot that the collectors still await. The snapshot may first
        move to a newer version.

        One answer of the collectors serves all requests within `FRESH_SECONDS`."""
        with self._live_lock:
            if self._live is not None:
                version, until, live = self._live
                holds = version == engine.version or bool(live.unasked)
                if holds and self.clock.monotonic() < until:
                    return live
            live = beside(engine, lambda: look(self.loaded.config))
            patience = UNANSWERED_SECONDS if live.unasked else FRESH_SECONDS
            self._live = engine.version, self.clock.monotonic() + patience, live
            return live

    def tend(self, still: Callable[[], bool]) -> None:
        """Write the missing sidecars of large files, while `still` returns true. Raise StoreError."""
        for _ in tend(self.store, self._options, Sidecars(self.store)):
            if not still():
                return

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()


class SnapshotLease:
    """The snapshots and engines that belong to one request until `end`. One thread uses the lease; another
    thread may call `interrupt`."""

    def __init__(self, stores: Sequence[ServedStore]) -> None:
        self.stores = stores
        self._taken: dict[int, tuple[LeasedSnapshot, int]] = {}
        self._remote: list[RemoteEngine] = []
        self._own: list[Engine] = []
        self._timeline: TimelineSnapshot | None = None
        self._locked: threading.Lock | None = None
        self._left = threading.Event()

    def snapshot(self, store: int = 0) -> LeasedSnapshot:
        """Return the snapshot of the store with this number. All calls return one snapshot for a store. Raise
        StoreError, and UnknownError for an invalid number."""
        self.still_wanted()
        if store not in self._taken:
            if not 0 <= store < len(self.stores):
                least, most = 0, len(self.stores) - 1
                raise UnknownError(f"there is no store {store}; the numbers are {least} to {most}")
            served = self.stores[store]
            engine = served.take()
            self._taken[store] = LeasedSnapshot(engine, NOBODY), -1
            snapshot = LeasedSnapshot(engine, served.live(engine))
            self._taken[store] = snapshot, snapshot.version
        return self._taken[store][0]

    def timeline(self) -> TimelineSnapshot:
        """Return the timeline of the first store's snapshot. Wait until no other request uses the
        timeline."""
        engine = self.snapshot().engine
        if self._timeline is None:
            cache = self.stores[0].timelines
            while not cache.lock.acquire(timeout=WAIT_SECONDS):
                self.still_wanted()
            self._locked = cache.lock
            self._timeline = cache.of(engine)
        return self._timeline

    def own_snapshot(self, limits: Limits) -> LeasedSnapshot:
        """Return the newest snapshot of the first store on a new engine, which the caller must close."""
        self.still_wanted()
        store = self.stores[0]
        engine = store.open(limits)
        self._own.append(engine)
        return LeasedSnapshot(engine, store.live(engine))

    def in_own_process(self, snapshot: LeasedSnapshot, limits: Limits) -> RemoteEngine:
        """Return an engine that runs statements over the snapshot in a separate process."""
        self.still_wanted()
        engine = snapshot.engine
        remote = RemoteEngine(StoreVersion(engine.store, engine.options, engine.version), limits)
        self._remote.append(remote)
        return remote

    def same(self) -> bool:
        """Return whether all leased snapshots are still at the versions at which they were taken."""
        return all(snapshot.version == version for snapshot, version in self._taken.values())

    def still_wanted(self) -> None:
        """Raise LeftError if the request has been interrupted because its client disconnected."""
        if self._left.is_set():
            raise LeftError("the client has left")

    def interrupt(self) -> None:
        """Interrupt the running statements, and refuse further ones."""
        self._left.set()
        for engine in [
            *(snapshot.engine for snapshot, _ in list(self._taken.values())),
            *self._own,
        ]:
            with suppress(Exception):  # another thread may be closing the engine
                engine.interrupt()
        if (timeline := self._timeline) is not None:
            timeline.interrupt()
        for remote in list(self._remote):
            with suppress(Exception):
                remote.interrupt()

    def end(self, *, good: bool) -> None:
        """Return the engines to their stores. If the request failed, close the engines instead, since an
        interrupt may still arrive."""
        for remote in self._remote:
            remote.close()
        self._remote.clear()
        self._timeline = None
        if self._locked is not None:
            self._locked.release()
            self._locked = None
        for store, (snapshot, _) in self._taken.items():
            if good and not self._left.is_set():
                self.stores[store].give_back(snapshot.engine)
            else:
                snapshot.engine.close()
        self._taken.clear()
