"""Run statements on one snapshot of a store, from any thread, and compute the completeness of each answer.

Statements run one after the other until the first rows of each are available. A statement may find that files
of the snapshot are deleted, and then moves the store to the next snapshot. After its first rows, each answer
is read at its own pace on its own connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from tailrace.errors import StoreError
from tailrace.query.completeness import Completeness, Scope
from tailrace.query.database import check_process, is_whole
from tailrace.query.engine import ATTEMPTS, Engine, too_fast
from tailrace.query.limits import Limits
from tailrace.query.live import LiveLook, beside
from tailrace.query.patience import Patience
from tailrace.query.remote import RemoteEngine, StoreVersion
from tailrace.query.unknown_names import checked_completeness

T = TypeVar("T")

A = TypeVar("A", Engine, RemoteEngine, Engine | RemoteEngine)

AnyEngine = Engine | RemoteEngine
"""Type of the engine that runs a statement: an engine in this process, or one for a limited process of its
own."""


class StartedAnswer(NamedTuple, Generic[T]):
    """An answer whose first rows are read, its completeness, and the engine that produces the remaining
    rows."""

    answer: T
    completeness: Completeness
    patience: Patience
    engine: AnyEngine


class SnapshotReader:
    """The state that all results of a store share: one snapshot, and the completeness of its answers.

    `look` asks the running collectors, once for each snapshot (see `live.beside`). Methods raise StoreError
    and QueryError, and UnknownError when a question names something that does not exist."""

    def __init__(
        self, connect: Callable[[], Engine], look: LiveLook, limits: Limits | None = None
    ) -> None:
        """Open the newest snapshot. With `limits`, run each statement in a limited process of its own."""
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
        """Return the table's version in this snapshot."""
        check_process()
        return self._engine().version

    def begin(
        self, ask: Callable[[AnyEngine], T], scope: Scope, *, complete_only: bool
    ) -> StartedAnswer[T]:
        """Start a statement, and compute its completeness from the gaps of the same snapshot.

        The caller closes the engine after it has read the answer. Raise IncompleteError if `complete_only` is
        set and something is missing."""
        with self._alone():
            for _ in range(ATTEMPTS):
                whole = self._completeness(scope)
                if complete_only:
                    whole.demand("`.gaps()`")
                answer, patience, engine = self._begin(ask, self._new_engine())
                if engine.version == self._known_of:
                    return StartedAnswer(answer, whole, patience, engine)
                engine.close()
                if (
                    engine.version != self.version
                ):  # the worker process found that files are deleted
                    self._engine().refresh()
            raise too_fast(self._engine().table)

    def completeness(self, scope: Scope) -> Completeness:
        with self._alone():
            return self._completeness(scope)

    def measure(
        self, ask: Callable[[Engine, Completeness], T], scope: Scope, *, complete_only: bool
    ) -> T:
        """Return what trusted statements find in this process, given the completeness of a scope.

        Raise IncompleteError if `complete_only` is set and something is missing."""
        with self._alone():
            whole = self._completeness(scope)
            if complete_only:
                whole.demand("`.gaps()`")
            answer, _, engine = self._begin(lambda each: ask(each, whole), self._engine().beside())
            engine.close()
            return answer

    def refresh(self) -> bool:
        """Move to the newest snapshot, ask the collectors again, and return whether the snapshot is newer."""
        with self._alone():
            before = self.version
            self._settle()
            return self.version != before

    def close(self) -> None:
        """Refuse further statements. Answers with first rows can still be read."""
        if is_whole():
            with self._lock:
                self._open = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock while a statement starts.

        Raise StoreError in a process that cannot use the database, such as a forked child. In a forked child,
        the thread that holds the lock does not exist."""
        check_process()
        with self._lock:
            yield

    def _completeness(self, scope: Scope) -> Completeness:
        """Return the completeness of a scope. Compute each completeness only once for a snapshot."""
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
        """Move to the newest snapshot, and ask the collectors which events they still await."""
        self._engine().refresh()
        self._live = beside(self._engine(), self._look)
        self._known.clear()
        self._known_of = self.version

    def _new_engine(self) -> AnyEngine:
        engine = self._engine()
        if self._limits is None:
            return engine.beside()
        return RemoteEngine(
            StoreVersion(engine.store, engine.options, engine.version), self._limits
        )

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
