"""Read a store from Python: `tailrace.open` returns a `Store`, whose methods return `Result`s."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Self, Unpack

from tailrace.analysis.bounds import Interval
from tailrace.analysis.statistics import SpanStatistics, parse, statistics
from tailrace.config.load import store_path
from tailrace.configuration import choose
from tailrace.query import views
from tailrace.query.completeness import EVERYTHING, Completeness
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits
from tailrace.query.live import look
from tailrace.query.statement import Parameters
from tailrace.query.views import View
from tailrace.reading.question import (
    EventKeywords,
    Filters,
    GapKeywords,
    NamedKeywords,
    SessionKeywords,
    StatisticsKeywords,
    StreamKeywords,
    select,
    statement,
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

    `store` is a directory or URL; the default is the store of the configuration. The configuration comes from the file
    `config` or, without it, from the file that commands use without --config. `options` replace the configuration's
    options for an object store. If `complete_only` is true and events are missing from a result, its methods raise
    IncompleteError instead of returning rows; the result's `gaps` lists what is missing.

    With `limits`, each query except `stats` runs in a process of its own. The kernel ends this process at the limits,
    and the process sees no path of this host. Give `tailrace.Limits(seconds=30, memory=2**30)` for SQL that others
    wrote. The seconds count until the last row is read. A query with limits takes some tenths of a second longer.

    The database works neither after a fork nor after the loss of its file descriptors (`os.closerange`). If a process
    forks after it has opened a store, all stores raise StoreError in the child: use the start methods `spawn` or
    `forkserver` of `multiprocessing`, or open stores only in the children.

    Raise ConfigError if the configuration is wrong, and StoreError if the store has no table."""
    loaded = choose(
        None if config is None else Path(config), None if store is None else os.fspath(store)
    ).config
    chosen = loaded.store.options if options is None else dict(options)
    snapshot = SnapshotReader(
        partial(Engine, store_path(loaded), chosen), partial(look, loaded), limits
    )
    return Store(snapshot, complete_only=complete_only)


class Store:
    """One snapshot of a store's table, which `refresh` replaces by the newest one. It can be read while a daemon and
    its upkeep write to the store.

    Keywords filter rows, and a row must match all of them:

    - `source`, `stream`, `name`, `kind`, `reason`: a text that must equal the row's, or several texts of which one
      must.
    - `session`: the beginning of an id, or several beginnings.
    - `label`: keys and values of labels. The run of a session must have all of them.
    - `rank` (whole numbers), `node`, `job` (texts): where a session ran. A job id without a step selects all steps.
    - `since`, `until`: datetimes with a zone, ISO 8601 texts (UTC unless they name a zone) or Unix nanoseconds. They
      select rows with `since <= time < until`. If the rows of a view have no time, they select the rows of sessions in
      this time (see `Result.completeness`).

    `columns` are the columns to return, by default all; `order` are columns to sort by, with a `-` for descending
    order; `limit` is the largest number of rows. A value that cannot be a column, text, time or number raises
    QueryError.

    Several threads may use one store. A query starts when the query before it has its first rows. The remaining rows of
    several queries are read at the same time."""

    def __init__(self, snapshot: SnapshotReader, *, complete_only: bool) -> None:
        self._snapshot = snapshot
        self._complete_only = complete_only

    def spans(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return spans, both ended and still open ones."""
        return self._select(views.SPANS, NamedKeywords, keywords)

    def events(self, **keywords: Unpack[EventKeywords]) -> Result:
        """Return all rows of the table. `kind` selects rows of one kind, such as span, instant or counter."""
        return self._select(views.EVENTS, EventKeywords, keywords)

    def counters(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return the values of counters: one row for each time at which a counter has a value."""
        return self._select(views.COUNTERS, NamedKeywords, keywords)

    def gaps(self, **keywords: Unpack[GapKeywords]) -> Result:
        """Return the gaps: which events are missing, and why. Events that arrived later are subtracted."""
        return self._select(views.GAPS, GapKeywords, keywords, complete_only=False)

    def sessions(self, **keywords: Unpack[SessionKeywords]) -> Result:
        """Return the sessions: one row for each incarnation of a producer."""
        return self._select(views.SESSIONS, SessionKeywords, keywords)

    def streams(self, **keywords: Unpack[StreamKeywords]) -> Result:
        """Return the streams: one row for each stream, with the share of its events that are in the table."""
        return self._select(views.STREAMS, StreamKeywords, keywords)

    def programs(self, **keywords: Unpack[StreamKeywords]) -> Result:
        """Return the names of the programs that wrote the streams: one row for each stream, with its process, thread
        and host."""
        return self._select(views.PROGRAMS, StreamKeywords, keywords)

    def labels(self, **keywords: Unpack[SessionKeywords]) -> Result:
        """Return the labels of runs: one row for each label of a session."""
        return self._select(views.LABELS, SessionKeywords, keywords)

    def nesting(self, **keywords: Unpack[NamedKeywords]) -> Result:
        """Return the nesting of spans: one row for each span, with the parent span that encloses it."""
        return self._select(views.NESTING, NamedKeywords, keywords)

    def stats(
        self,
        by: str | Iterable[str] = "name",
        *,
        self_time: bool = True,
        **keywords: Unpack[StatisticsKeywords],
    ) -> list[SpanStatistics]:
        """Return counts, durations and percentiles of spans by group, the group with the longest total first. `by`
        contains columns of `spans`, or `attributes.KEY`. Spans with equal values in all of them form a group. `since`
        and `until` select spans that begin in this time.

        The figures are computed from the spans in the table. `bounds` has an interval (`low`, `high`) for each figure:
        with the missing spans, the figure would lie in this interval. None means unbounded. If nothing is missing, an
        interval is one value (`is_point`). The computation of self time takes about a microsecond a span."""
        for unknown in keywords.keys() - StatisticsKeywords.__annotations__.keys():
            raise TypeError(f"Store.stats() got an unexpected keyword argument {unknown!r}")
        keys = parse([by] if isinstance(by, str) else list(by))
        window = Filters.of(**keywords).window
        return self._snapshot.measure(
            lambda engine, whole: statistics(engine, window, whole, keys, self_time=self_time),
            window.scope,
            complete_only=self._complete_only,
        )

    def sql(self, sql: str, parameters: Parameters = ()) -> Result:
        """Return the rows of an SQL statement that only reads, in DuckDB's dialect. The statement can read the views,
        which have the names of the methods, such as `spans`. `parameters` are the values for each `?` in order, or for
        each `$name` by name."""
        return Result(self._snapshot, statement(sql, parameters), complete_only=self._complete_only)

    @property
    def completeness(self) -> Completeness:
        """Completeness of the whole table: the events that are missing, by reason (see `Result.completeness`)."""
        return self._snapshot.completeness(EVERYTHING)

    @property
    def version(self) -> int:
        """Version number of the table that the present snapshot shows."""
        return self._snapshot.version

    def refresh(self) -> bool:
        """Replace the snapshot by the newest one. Return whether it is newer than the snapshot before."""
        return self._snapshot.refresh()

    def close(self) -> None:
        """Close the store. Further queries then raise StoreError. The rows of queries that have started can still be
        read."""
        self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Return the rows of a view that keyword arguments select, as a result. Raise TypeError for a keyword that the
        view does not have."""
        for unknown in given.keys() - accepted.__annotations__.keys():
            raise TypeError(f"Store.{view.name}() got an unexpected keyword argument {unknown!r}")
        demand = self._complete_only if complete_only is None else complete_only
        return Result(self._snapshot, select(view, **given), complete_only=demand)
