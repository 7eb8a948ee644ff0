"""A store that is open for questions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, SupportsIndex

from tailrace.chosen import choose
from tailrace.config.load import store_path
from tailrace.query.completeness import EVERYTHING, Completeness
from tailrace.query.engine import Engine
from tailrace.query.guard import Parameters
from tailrace.query.limits import Limits
from tailrace.query.live import look
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
from tailrace.reading.asking import SharedSnapshot
from tailrace.reading.moment import Time
from tailrace.reading.question import (
    Filters,
    Labels,
    Ranks,
    Streams,
    Texts,
    job_of,
    labels_of,
    select,
    statement,
)
from tailrace.reading.result import Result


def open(  # noqa: A001 - callers say `tailrace.open`
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
    IncompleteError instead of giving its rows; its `gaps` says what is missing.

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
    asking = SharedSnapshot(
        partial(Engine, store_path(loaded), chosen), partial(look, loaded), limits
    )
    return Store(asking, complete_only=complete_only)


class Store:
    """One snapshot of a store's table, until `refresh`; safe to read beside a daemon and its upkeep.

    Keywords filter rows, and a row must match all of them. `source`, `stream`, `name`, `kind` and
    `reason` are a text or several, of which one must be equal; for `session` the beginning of an id is
    enough. `label` has labels of runs by their keys; a session must have all of them. `rank`,
    `node` and `job` say where a session ran: whole numbers and texts; a job without a step takes all steps.
    `since` and `until` are datetimes with a zone, ISO 8601 texts (UTC unless they name a zone) or Unix nanoseconds. They mean `since <= time < until`, for the start of a row or, where rows have no
    time, for their session (see `Result.completeness`). `columns` are the columns to return, by default
    all; `order` are columns to sort by, with a `-` for descending order; `limit` is the largest number of
    rows. A value that cannot be a column, text, time or number raises QueryError.

    Several threads may use one store. Their questions take turns until each has its first rows, and are
    then read side by side."""

    def __init__(self, asking: SharedSnapshot, *, complete_only: bool) -> None:
        self._asking = asking
        self._complete_only = complete_only

    def spans(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        name: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return spans, ended or still open."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            name,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(SPANS, filters, columns, order, limit)

    def events(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        name: Texts | None = None,
        kind: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return every row of the table; `kind` says which rows are spans, instants, counters and so on."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            name,
            kind,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(EVENTS, filters, columns, order, limit)

    def counters(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        name: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return the values of counters."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            name,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(COUNTERS, filters, columns, order, limit)

    def gaps(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        reason: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return what is missing, minus what arrived later."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            reason=reason,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(GAPS, filters, columns, order, limit, complete_only=False)

    def sessions(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return the producers that sent: one row for each incarnation of a producer."""
        filters = Filters(
            source,
            session,
            None,
            since,
            until,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(SESSIONS, filters, columns, order, limit)

    def streams(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return one row for each stream, with how complete it is."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(STREAMS, filters, columns, order, limit)

    def labels(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return the labels of runs: one row for each label of a session."""
        filters = Filters(
            source,
            session,
            None,
            since,
            until,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(LABELS, filters, columns, order, limit)

    def nesting(
        self,
        *,
        source: Texts | None = None,
        session: Texts | None = None,
        label: Labels | None = None,
        rank: Ranks | None = None,
        node: Texts | None = None,
        job: Texts | None = None,
        stream: Streams | None = None,
        name: Texts | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Texts | None = None,
        order: Texts | None = None,
        limit: SupportsIndex | None = None,
    ) -> Result:
        """Return one row for each span, with the span that encloses it."""
        filters = Filters(
            source,
            session,
            stream,
            since,
            until,
            name,
            labels=labels_of(label),
            job=job_of(rank, node, job),
        )
        return self._select(NESTING, filters, columns, order, limit)

    def sql(self, sql: str, parameters: Parameters = ()) -> Result:
        """Return the rows of any statement that only reads, in DuckDB's SQL over the views, which have
        the names of the methods. `parameters` are the values of each `?` in order, or of
        each `$name` by name."""
        return Result(self._asking, statement(sql, parameters), complete_only=self._complete_only)

    @property
    def completeness(self) -> Completeness:
        """Return what the whole table lacks; see `Result.completeness`."""
        return self._asking.completeness(EVERYTHING)

    @property
    def version(self) -> int:
        """Return the table's version in the snapshot that questions are answered from now."""
        return self._asking.version

    def refresh(self) -> bool:
        """Move to the newest snapshot, and return whether it is newer."""
        return self._asking.refresh()

    def close(self) -> None:
        """Refuse further questions. Answers that have begun may be read to their end."""
        self._asking.close()

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
        return f"<Store {self._asking.root}>"

    def _select(
        self,
        view: View,
        filters: Filters,
        columns: Texts | None,
        order: Texts | None,
        limit: SupportsIndex | None,
        *,
        complete_only: bool | None = None,
    ) -> Result:
        question = select(view, filters, columns=columns, order=order, limit=limit)
        demand = self._complete_only if complete_only is None else complete_only
        return Result(self._asking, question, complete_only=demand)
