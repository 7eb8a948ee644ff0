"""Run SQL statements on one snapshot of a store, from any thread, and compute which events are missing from each
answer.

Each statement waits until the one before it has its first rows. Each answer is then read on a connection of its own.
If upkeep has deleted files of the snapshot when a statement starts, the store takes the newest snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from tailrace.errors import StoreError
from tailrace.query.completeness import Completeness, Scope
from tailrace.query.database import check_process, is_whole
from tailrace.query.engine import ATTEMPTS, Engine
from tailrace.query.limits import Limits
from tailrace.query.live import LiveLook, beside
from tailrace.query.patience import Patience
from tailrace.query.remote import RemoteEngine
from tailrace.query.unknown_names import checked_completeness

T = TypeVar("T")

A = TypeVar("A", Engine, RemoteEngine, Engine | RemoteEngine)

AnyEngine = Engine | RemoteEngine
"""The object that runs a statement: in this process, or with limits in a separate one."""


class StartedAnswer(NamedTuple, Generic[T]):
    """The answer to a statement whose first rows have been read. `completeness` states which events are missing from
    the answer. `engine` reads the remaining rows, and the caller must close it."""

    answer: T
    completeness: Completeness
    patience: Patience
    engine: AnyEngine


class SnapshotReader:
    """The state that all results of a store share: one snapshot, and the completeness of the answers computed so far.
    The function `look` asks the running collectors which events may still arrive. It is called once for each snapshot
    (see `live.beside`). Methods raise StoreError if the table cannot be read, QueryError if a statement cannot run, and
    UnknownError if a filter names a source, session or stream that does not exist."""

    def __init__(
        self, connect: Callable[[], Engine], look: LiveLook, limits: Limits | None = None
    ) -> None:
        """Open the newest snapshot. With `limits`, each statement runs in a separate process."""
        self._limits = limits
        self._look = look
        engine = connect()
        self._live = beside(engine, look)
        self.root = engine.table.root
        self._open: Engine | None = engine
        self._lock = threading.Lock()
        self._known: dict[Scope, Completeness] = {}
        self._known_of = engine.version

    @property
    def version(self) -> int:
        """Version number of the table that this snapshot shows."""
        check_process()
        return self._engine().version

    def begin(
        self, ask: Callable[[AnyEngine], T], scope: Scope, *, complete_only: bool
    ) -> StartedAnswer[T]:
        """Start a statement, and compute from the gaps of the same snapshot which events are missing from its answer.
        The caller must close the engine after it has read the answer. `ask` runs the statement on an engine. `scope`
        selects the gaps whose events may be missing from the answer. Raise IncompleteError if `complete_only` is true
        and events are missing."""
        with self._alone():
            for _ in range(ATTEMPTS):
                whole = self._completeness(scope)
                if complete_only:
                    whole.demand("`.gaps()`")
                answer, patience, engine = self._begin(ask, self._new_engine())
                if engine.version == self._known_of:
                    return StartedAnswer(answer, whole, patience, engine)
                engine.close()
                # The statement's process has moved to a newer table version: files of `self.version` were deleted.
                if engine.version != self.version:
                    self._engine().refresh()
            raise self._engine().table.too_fast()

    def completeness(self, scope: Scope) -> Completeness:
        with self._alone():
            return self._completeness(scope)

    def measure(
        self, ask: Callable[[Engine, Completeness], T], scope: Scope, *, complete_only: bool
    ) -> T:
        """Call `ask` with an engine in this process and the completeness of the rows in `scope`, and return the result
        of `ask`. The statements that `ask` runs must be trusted. Raise IncompleteError if `complete_only` is true and
        events are missing."""
        with self._alone():
            whole = self._completeness(scope)
            if complete_only:
                whole.demand("`.gaps()`")
            answer, _, engine = self._begin(lambda each: ask(each, whole), self._engine().beside())
            engine.close()
            return answer

    def refresh(self) -> bool:
        """Replace the snapshot by the newest one, and ask the running collectors again. Return whether it is newer."""
        with self._alone():
            before = self.version
            self._settle()
            return self.version != before

    def close(self) -> None:
        """Refuse further statements. Answers whose first rows have been read can still be read to their end."""
        if is_whole():
            with self._lock:
                self._open = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock in the `with` block, so that statements start one after the other. Raise StoreError in a
        process that cannot use the database, such as a forked child. Such a child does not try to take the lock: it may
        be held for ever, because the thread that holds it exists only in the parent."""
        check_process()
        with self._lock:
            yield

    def _completeness(self, scope: Scope) -> Completeness:
        """Return the completeness of an answer, which is computed once for each scope and snapshot."""
        if self._known_of != self.version:
            self._settle()
        if scope not in self._known:
            live = self._live
            engine = self._engine().beside()
            whole, _, _ = self._begin(
                lambda engine: checked_completeness(engine, scope, live), engine
            )
            engine.close()
            if self._known_of != self.version:
                self._known.clear()
            self._known[scope] = whole
        self._known_of = self.version
        return self._known[scope]

    def _settle(self) -> None:
        """Replace the snapshot by the newest one, and ask the running collectors which events may still arrive."""
        self._engine().refresh()
        self._live = beside(self._engine(), self._look)
        self._known.clear()
        self._known_of = self.version

    def _new_engine(self) -> AnyEngine:
        # Keep this out of the method `begin`: if `begin` raised an exception, its frame would be part of the traceback
        # and would keep the shared engine alive.
        engine = self._engine()
        return RemoteEngine(engine, self._limits) if self._limits else engine.beside()

    def _begin(self, ask: Callable[[A], T], engine: A) -> tuple[T, Patience, A]:
        patience = Patience(engine, None)
        try:
            answer = patience.make(lambda: ask(engine))
        except BaseException:
            engine.close()
            raise
        return answer, patience, engine

    def _engine(self) -> Engine:
        if self._open is None:
            raise StoreError("this store is closed: open it again")
        return self._open
