"""Read a store from Python: `tailrace.open` returns a `Store`, whose methods return `Result`s."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from tailrace.analysis.bounds import Interval
from tailrace.analysis.statistics import SpanStatistics, parse, statistics
from tailrace.config.load import store_path
from tailrace.configuration import choose
from tailrace.query.completeness import EVERYTHING, Completeness
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits
from tailrace.query.live import look
from tailrace.query.statement import Parameters
from tailrace.query.views import (
    COUNTERS,
    EVENTS,
    GAPS,
    LABELS,
    NESTING,
    SESSIONS,
    SPANS,
    STREAMS,
    View,
)
from tailrace.reading.question import (
    EventKeywords,
    GapKeywords,
    NamedKeywords,
    SessionKeywords,
    StatisticsKeywords,
    StreamKeywords,
    select,
    statement,
    window_of,
)
from tailrace.reading.result import Result
from tailrace.reading.snapshot import SnapshotReader

__all__ = ["Completeness", "Interval", "Limits", "Result", "SpanStatistics", "Store", "open"]


def open(  # noqa: A001 - callers write `tailrace.open`
    store: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
    complete_only: bool = False,
    limits: Limits | None = None,
) -> Store:
    """Open a store for reading: `with tailrace.open("/data") as store: store.spans(name="step").df()`.

    `store` is a directory or URL, by default the one of the configuration: of the file `config`, or else
    of $TAILRACE_CONFIG, or else the built-in one, as for the commands. `options` replace the
    configuration's options for an object store. With `complete_only`, a result that lacks anything raises
    IncompleteError instead of giving its rows; its `gaps` lists what is missing.

    With `limits`, each question runs in a process of its own, which the kernel ends at these limits and
    which sees no path of this host. Give `tailrace.Limits(seconds=30, memory=2**30)` for SQL that others
    wrote. The seconds count until the last row is read. Such a question takes some tenths of a second
    longer.

    A database does not survive a fork, nor the loss of its descriptors (`os.closerange`). In a forked child of a process
    that had opened a store, opening and asking raise StoreError: use the methods `spawn` or `forkserver` of
    `multiprocessing`, or open stores in the children alone.

    Raise ConfigError when the configuration is wrong, StoreError when there is no table."""
    loaded = choose(
        None if config is None else Path(config), None if store is None else os.fspath(store)
    ).config
    chosen = loaded.store.options if options is None else dict(options)
    snapshot = SnapshotReader(
        partial(Engine, store_path(loaded), chosen), partial(look, loaded), limits
    )
    return Store(snapshot, complete_only=complete_only)


class Store:
    """One snapshot of a store's table, until `refresh`; safe to read beside a daemon and its upkeep.

    Keywords filter rows, and a row must match all of them. `source`, `stream`, `name`, `kind` and
    `reason` are a text or several, of which one must be equal; for `session` the beginning of an id is
    enough. `label` has labels of runs by their keys; a session must have all of them. `rank`,
    `node` and `job` are where a session ran: whole numbers and texts; a job without a step takes all steps.
    `since` and `until` are datetimes with a zone, ISO 8601 texts (UTC unless they name a zone) or Unix nanoseconds. They mean `since <= time < until`, for the start of a row or, where rows have no
    time, for their session (see `Result.completeness`). `columns` are the columns to return, by default
    all; `order` are columns to sort by, with a `-` for descending order; `limit` is the largest number of
    rows. A value that cannot be a column, text, time or number raises QueryError.

    Several threads may use one store. Their questions take turns until each has its first rows, and are
    then read side by side."""

    def __init__(self, snapshot: SnapshotReader, *, complete_only: bool) -> None:
        self._snapshot = snapshot
        self._complete_only = complete_only

    def spans(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return spans, ended or still open."""
        return self._select(SPANS, NamedKeywords, keywords)

    def events(self, **keywords: Unpack[EventKeywords]) -> Result:
        """Return every row of the table; `kind` is span, instant, counter and so on."""
        return self._select(EVENTS, EventKeywords, keywords)

    def counters(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return the values of counters."""
        return self._select(COUNTERS, NamedKeywords, keywords)

    def gaps(self, **keywords: Unpack[GapKeywords]) -> Result:
        """Return what is missing, minus what arrived later."""
        return self._select(GAPS, GapKeywords, keywords, complete_only=False)

    def sessions(self, **keywords: Unpack[SessionKeywords]) -> Result:
        """Return the producers that sent: one row for each incarnation of a producer."""
        return self._select(SESSIONS, SessionKeywords, keywords)

    def streams(self, **keywords: Unpack[StreamKeywords]) -> Result:
        """Return one row for each stream, with how complete it is."""
        return self._select(STREAMS, StreamKeywords, keywords)

    def labels(self, **keywords: Unpack[SessionKeywords]) -> Result:
        """Return the labels of runs: one row for each label of a session."""
        return self._select(LABELS, SessionKeywords, keywords)

    def nesting(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return one row for each span, with the span that encloses it."""
        return self._select(NESTING, NamedKeywords, keywords)

    def stats(
        self,
        by: str | Iterable[str] = "name",
        *,
        self_time: bool = True,
        **keywords: Unpack[StatisticsKeywords],
    ) -> list[SpanStatistics]:
        """Return the figures of spans by group, the longest total first. `by` are columns of `spans`, or
        `attributes.KEY`. A time selects spans that begin then.

        The figures are those of the spans in the table. `bounds` has, by figure, the interval (`low`, `high`) in
        which the figure of all spans lies if some are missing; None is unbounded. An interval is one value if nothing
        is missing (`is_point`). Self time takes about a microsecond a span."""
        for unknown in keywords.keys() - StatisticsKeywords.__annotations__.keys():
            raise TypeError(f"Store.stats() got an unexpected keyword argument {unknown!r}")
        keys = parse([by] if isinstance(by, str) else list(by))
        window = window_of(**keywords)
        return self._snapshot.measure(
            lambda engine, whole: statistics(engine, window, whole, keys, self_time=self_time),
            window.scope,
            complete_only=self._complete_only,
        )

    def sql(self, sql: str, parameters: Parameters = ()) -> Result:
        """Return the rows of any statement that only reads, in DuckDB's SQL over the views, which have
        the names of the methods. `parameters` are the values of each `?` in order, or of
        each `$name` by name."""
        return Result(self._snapshot, statement(sql, parameters), complete_only=self._complete_only)

    @property
    def completeness(self) -> Completeness:
        """Return what the whole table lacks; see `Result.completeness`."""
        return self._snapshot.completeness(EVERYTHING)

    @property
    def version(self) -> int:
        """Return the table's version in the snapshot that questions are answered from now."""
        return self._snapshot.version

    def refresh(self) -> bool:
        """Move to the newest snapshot, and return whether it is newer."""
        return self._snapshot.refresh()

    def close(self) -> None:
        """Refuse further questions. Answers that have started may be read to their end."""
        self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._snapshot.root}>"

    def _select(
        self,
        view: View,
        accepted: type[SessionKeywords],
        given: SessionKeywords,
        *,
        complete_only: bool | None = None,
    ) -> Result:
        """Return the result of a question about a view. Raise TypeError for a keyword that the view does not
        take."""
        for unknown in given.keys() - accepted.__annotations__.keys():
            raise TypeError(f"Store.{view.name}() got an unexpected keyword argument {unknown!r}")
        demand = self._complete_only if complete_only is None else complete_only
        return Result(self._snapshot, select(view, **given), complete_only=demand)
