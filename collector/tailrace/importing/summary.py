"""Make the summary of an import from the table: the files read and left out, the numbers of events, and the losses.

The losses are those of all files that the user asked for, including files that were in the table before. A repeated
command therefore reports the same losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from tailrace.config.load import Loaded, store_path
from tailrace.figures import Status
from tailrace.filesystem import spelled
from tailrace.importing.choosing import Choice
from tailrace.importing.discover import CUT_OFF, LeftOut, Why, is_empty, shows_nothing
from tailrace.importing.readings import Reading, finished, root
from tailrace.query.completeness import MISSING, missing_names
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, quote


class SessionSummary(msgspec.Struct, frozen=True):
    """The numbers of stored and of missing events of one imported file. `missing` is the number of missing events by
    reason. `unknown` is true if an unknown number of further events is missing."""

    path: str
    format: str
    source: str
    session: str
    events: int
    missing: dict[str, int]
    unknown: bool


class Summary(msgspec.Struct, kw_only=True):
    """The result of an import.

    `files` has the files that the import has read. `events`, `missing` and `unknown` are sums over these files.
    `errors` counts the failed system calls on files, by the name of the error."""

    store: str
    source: str
    files: list[SessionSummary]
    left_out: list[LeftOut]
    events: int
    missing: dict[str, int]
    unknown: bool
    errors: dict[str, int]
    interrupted: bool
    earlier: list[SessionSummary] = msgspec.field(name="imported_before")
    """Numbers of stored and missing events of the files that were left out because an earlier import has read them."""
    names: dict[str, int | None] = msgspec.field(name="missing_names")
    """Number of missing names to which the imported files refer, by source. None if the number is unknown."""

    @property
    def failed(self) -> bool:
        """Whether the import has failed: a file could not be read, a file is not a trace, or no event was found."""
        no_trace = any(
            left.trace and left.why not in {Why.EMPTY, Why.COPY, Why.IMPORTED}
            for left in self.left_out
        )
        return bool(self.errors) or no_trace or self.without_events

    @property
    def without_events(self) -> bool:
        """Whether the table has no events of the files that the user asked for."""
        return not any(session.events for session in self._all)

    def exceeds(self, max_loss: int) -> bool:
        """Return whether more than `max_loss` events are missing, or the number of missing events is unknown. If a
        trace is empty or does not exist, the number is unknown."""
        empty = any(left.trace and left.why in {Why.EMPTY, Why.ABSENT} for left in self.left_out)
        unknown = any(session.unknown for session in self._all)
        lost = sum(sum(session.missing.values()) for session in self._all)
        return empty or unknown or lost > max_loss

    @property
    def _all(self) -> list[SessionSummary]:
        return [*self.files, *self.earlier]


def summary(
    loaded: Loaded,
    source: str,
    choice: Choice,
    left_out: Iterable[LeftOut],
    *,
    before: Iterable[Reading],
    last: Status | None,
    interrupted: bool,
) -> Summary:
    """Return the summary of an import, computed from the table. `before` has the sessions of earlier imports. `last` is
    the collector's last status, or None if no file was read. Raise StoreError or QueryError on failure."""
    store = store_path(loaded.config)
    known = {session for left in choice.left_out for session in left.sessions}
    files: list[SessionSummary] = []
    earlier: list[SessionSummary] = []
    names: dict[str, int | None] = {}
    if choice.taken or known:
        with closing(Engine(store, loaded.config.store.options)) as engine:
            over = {reading.session for reading in before if reading.closed}
            new = finished(engine, source) - over
            asked = _sessions(engine, new | known)
            files = [each for each in asked if root(each.session) in new]
            earlier = [each for each in asked if root(each.session) in known]
            names = missing_names(engine, _of(new)) if new else {}
    errors = _added(source.errors for source in last.sources.values()) if last else {}
    missed = [] if interrupted or errors else _missed(choice, files)
    return Summary(
        store=spelled(store), source=source, files=files,
        left_out=[*left_out, *choice.left_out, *missed],
        events=sum(file.events for file in files),
        missing=_added(file.missing for file in files),
        unknown=any(file.unknown for file in files),
        errors=errors, interrupted=interrupted, earlier=earlier, names=names,
    )  # fmt: skip


def _of(wanted: set[str]) -> RowCondition:
    """Return the SQL condition that a row belongs to one of the wanted sessions. `wanted` must not be empty."""
    return RowCondition(f"part.root(session) IN ({', '.join(map(quote, sorted(wanted)))})")


def _sessions(engine: Engine, wanted: set[str]) -> list[SessionSummary]:
    """Return the summaries of the wanted sessions, and of their restarts, whose ids have a suffix."""
    if not wanted:
        return []
    where = f"WHERE {_of(wanted).sql}"
    missing: dict[str, dict[str, int]] = {}
    gaps = f"SELECT session, reason, {MISSING} FROM gaps {where} GROUP BY ALL ORDER BY ALL"  # noqa: S608 - quoted
    for session, reason, count in engine.rows(gaps):
        missing.setdefault(session, {})[reason] = count
    # The view `sessions` is not used, because it would also look up names in the producers' metadata, which would
    # double the time of the query.
    rows = f"""
        SELECT f.peer, c.format, source, session, c.event_count, c.unknown::TINYINT FROM part.session_counts AS c
        LEFT JOIN part.origins AS f USING (source, session)
        LEFT JOIN part.runs AS r USING (source, session)
        {where} ORDER BY r.opened, session
    """  # noqa: S608 - quoted
    return [
        SessionSummary(
            peer or "", format_, source, session, events, missing.get(session, {}), bool(unknown)
        )
        for peer, format_, source, session, events, unknown in engine.rows(rows)
    ]


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for each in counts:
        sums.update(each)
    return dict(sorted(sums.items()))


def _missed(choice: Choice, files: list[SessionSummary]) -> list[LeftOut]:
    """Return the files that were chosen for reading but have no session in the table."""
    read = {file.path for file in files}
    return [
        _left_out(taken.path, path)
        for taken in choice.taken
        if (path := spelled(taken.path)) not in read
    ]


def _left_out(file: str, path: str) -> LeftOut:
    """Return why nothing was read from a file that had content when it was chosen. `path` is its spelled path."""
    if is_empty(file):
        return LeftOut(path=path, why=Why.EMPTY)
    if shows_nothing(file):
        return LeftOut(path=path, why=Why.EMPTY, content=CUT_OFF)
    return LeftOut(path=path, why=Why.CHANGED if Path(file).exists() else Why.GONE)
