"""Questions to one snapshot of a store, from any thread, each with what is missing of its answer.

Questions take turns until their first rows are there, for one of them may find that the snapshot's
files are gone and go on to the next. Then each is read at its own pace, on its own connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tailrace.errors import StoreError
from tailrace.query.completeness import Completeness, Scope, completeness
from tailrace.query.engine import ATTEMPTS, Engine, too_fast
from tailrace.query.known import check
from tailrace.query.limits import Limits
from tailrace.query.live import Live, Look, beside
from tailrace.query.patience import Patience
from tailrace.query.remote import Place, RemoteEngine

T = TypeVar("T")

A = TypeVar("A", Engine, RemoteEngine, Engine | RemoteEngine)

Asker = Engine | RemoteEngine
"""What runs a statement: in this process, or in one of its own that is held to limits."""


class Begun(NamedTuple, Generic[T]):
    """An answer with its first rows, what is missing of it, and how the rest of it is had."""

    answer: T
    completeness: Completeness
    patience: Patience
    engine: Asker


class Asking:
    """What all results of a store share. Raises StoreError and QueryError, UnknownError for what is
    about nothing that is there.

    The collector that runs on the store is asked by `look` for each snapshot (see `live.beside`)."""

    def __init__(
        self, connect: Callable[[], Engine], look: Look, limits: Limits | None = None
    ) -> None:
        """With `limits`, questions run in processes of their own that are held to them."""
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
        """Of the table, in the snapshot."""
        return self._engine().version

    def begin(self, ask: Callable[[Asker], T], scope: Scope, *, complete_only: bool) -> Begun[T]:
        """Ask an engine, to be closed when the answer is read, and tell what is missing by the gaps
        of the same snapshot. Raise IncompleteError if it is not complete, and that is not wanted."""
        with self._lock:
            for _ in range(ATTEMPTS):
                whole = self._completeness(scope)
                if complete_only:
                    whole.demand("`.gaps()`")
                answer, patience, engine = self._begin(ask, self._asker())
                if engine.version == self._known_of:
                    return Begun(answer, whole, patience, engine)
                engine.close()
                if engine.version != self.version:  # its process found that the files are gone
                    self._engine().refresh()
            raise too_fast(self._engine().table)

    def completeness(self, scope: Scope) -> Completeness:
        with self._lock:
            return self._completeness(scope)

    def refresh(self) -> bool:
        """Go on to the newest snapshot; whether there is a newer one. The collector is asked anew."""
        with self._lock:
            before = self.version
            self._settle()
            return self.version != before

    def close(self) -> None:
        """What has begun can still be read: the connection goes with the last answer."""
        with self._lock:
            self._open = None

    def _completeness(self, scope: Scope) -> Completeness:
        """By the snapshot that there is when it is known; it is not asked twice."""
        if self._known_of != self.version:
            self._settle()
        if scope not in self._known:
            live = self._live
            engine = self._engine().beside()
            whole, _, _ = self._begin(lambda engine: _told(engine, scope, live), engine)
            engine.close()
            if self._known_of != self.version:
                self._known.clear()
            self._known[scope] = whole
        self._known_of = self.version
        return self._known[scope]

    def _settle(self) -> None:
        """Go on to the newest snapshot, and ask the collector about that."""
        self._engine().refresh()
        self._live = beside(self._engine(), self._look)
        self._known.clear()
        self._known_of = self.version

    def _asker(self) -> Asker:
        engine = self._engine()
        if self._limits is None:
            return engine.beside()
        return RemoteEngine(Place(engine.store, engine.options, engine.version), self._limits)

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


def _told(engine: Engine, scope: Scope, live: Live) -> Completeness:
    check(engine, scope.selection, live)
    return completeness(engine, scope, live)
