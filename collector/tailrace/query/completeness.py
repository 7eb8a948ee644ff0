"""Compute how many events are missing from the rows that a statement or command returns.

Gap rows have no time. An answer about a range of time therefore counts all gaps of the sessions that were open within
the range: from the opening or first event to the close or last event of the session. For a range outside this time, the
answer counts no gap of the session, although its events may have been lost, for example at the beginning of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import IncompleteError
from tailrace.query.filters import OpenRange, RowCondition, Selection, all_of, one_of
from tailrace.query.live import NOBODY, Live
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.query.engine import Engine

METADATA = b"tailrace.completeness"
"""Key in the metadata of an Arrow schema. Its value is the completeness of the rows as JSON."""


class Completeness(NamedTuple):
    """How complete an answer is.

    - `missing`: missing events by reason, without those that arrived later.
    - `unknown`: the number of gaps of unknown size.
    - `awaited`: the number of events for which running collectors still wait.
    - `unasked`: why a running collector did not report the events for which it waits. It is "" if no running collector
      failed to do so.
    - `selected`: whether any event matches the query at all."""

    missing: dict[str, int]
    unknown: int
    awaited: int = 0
    unasked: str = ""
    selected: bool = True

    @property
    def complete(self) -> bool:
        """Whether at least one event is selected, and no selected event is known to be missing or still awaited."""
        short = self.unknown or self.awaited or self.unasked or any(self.missing.values())
        return self.selected and not short

    @property
    def text(self) -> str:
        """The completeness of an answer, as a sentence for people."""
        if self.complete:
            return "nothing is known to be missing"
        gaps = []
        if events := sum(self.missing.values()):
            named = ", ".join(
                f"{why} {count}" for why, count in sorted(self.missing.items()) if count
            )
            verb = "is" if events == 1 else "are"
            gaps.append(f"{counted(events, 'event')} {verb} missing ({named})")
        if self.unknown and gaps:
            gaps.append(f"{counted(self.unknown, 'gap')} of unknown size")
        elif self.unknown:
            gaps.append("an unknown number of events is missing")
        parts = [", and ".join(gaps)] if gaps else []
        if self.awaited:
            parts.append(f"{self.awaited} still awaited")
        if self.unasked:
            parts.append(f"pending events cannot be determined: {self.unasked}")
        return "; ".join(parts or ["no event matches, so it is unknown whether any is missing"])

    @property
    def words(self) -> dict[str, object]:
        """The completeness of an answer, as a dictionary for JSON output."""
        return {"complete": self.complete, **self._asdict()}

    def __str__(self) -> str:
        return self.text

    def demand(self, which: str) -> None:
        """Raise IncompleteError if the answer is not complete. `which` names the command or method that lists what is
        missing."""
        if not self.complete:
            raise IncompleteError(f"{self.text}; {which} says which")


class Scope(NamedTuple):
    """The rows that an answer covers, and the gaps (`gaps`) whose missing events may be among these rows. If the answer
    is about a range of time, `rows` selects the events within this range, and `then` selects the sessions that may have
    been open in it."""

    selection: Selection
    gaps: RowCondition
    rows: RowCondition = RowCondition("true")
    then: OpenRange | None = None

    @classmethod
    def of(cls, selection: Selection) -> Scope:
        return cls(selection, selection.gaps)


EVERYTHING = Scope.of(Selection())

MISSING = "least(coalesce(sum(remaining), 0), 9223372036854775807)::BIGINT"
"""SQL expression for the number of missing events in any number of gaps, at most 2^63 - 1."""

_EVENTS = "kind IN ('span', 'begin', 'instant', 'counter', 'annotation')"


def completeness(engine: Engine, scope: Scope = EVERYTHING, live: Live = NOBODY) -> Completeness:
    """Return the completeness of an answer, from the gaps in the snapshot and the events that collectors await."""
    awaited = sum(each.events for each in live.of(scope.selection))
    if engine.empty:
        return Completeness({}, 0, awaited, live.unasked, selected=False)
    gaps = scope.selection.gaps
    sql = (
        f"SELECT source, session, reason, {MISSING}, count(*) - count(remaining)"  # noqa: S608 - our own words
        f" FROM gaps WHERE {gaps.sql} GROUP BY source, session, reason ORDER BY reason"
    )
    rows = list(engine.rows(sql, gaps.values))
    if rows and scope.then is not None:
        then = open_then(engine, {row[:2] for row in rows}, scope.then)
        rows = [row for row in rows if row[:2] in then]
    missing: dict[str, int] = {}
    for *_, reason, count, _ in rows:
        if count:
            missing[reason] = min(missing.get(reason, 0) + count, 2**63 - 1)
    unknown = sum(row[-1] for row in rows)
    return Completeness(missing, unknown, awaited, live.unasked, _any_event(engine, scope))


def missing_names(engine: Engine, where: RowCondition) -> dict[str, int | None]:
    """Return, by source, how many names never arrived, although events refer to them. Count only names to which events
    of the sessions selected by `where` refer. None stands for an unknown number."""
    sql = f"SELECT source, {MISSING}, bool_or(remaining IS NULL)::TINYINT FROM gaps WHERE \"of\" = 'name' AND {where.sql} GROUP BY source"  # noqa: S608 - our own words
    found = engine.rows(sql, where.values)
    return {source: None if unknown else count for source, count, unknown in found}


class CopiedFiles(NamedTuple):
    """The number of followed files that are copies of other files of the same source, and the number of events in these
    copies."""

    files: int
    events: int


def copied_files(engine: Engine) -> dict[str, CopiedFiles]:
    """Return, by source, the files that the views leave out because other files have the same content."""
    # First find out whether there is any copied file: to count the events of all sessions, DuckDB must read the whole
    # store. The statement names `part.kept_few` only so that the catalog fills this table, and `part.copies` with it.
    if not has_rows(engine, "part.copies", RowCondition("EXISTS (FROM part.kept_few)")):
        return {}
    # Count the events of a copied file in `stored`, because the views leave out its rows. The original file may have
    # more events, so do not take its count.
    counts = f"SELECT source, part.root(session) AS session, count(*) AS total FROM stored WHERE {_EVENTS} AND kind <> 'begin' GROUP BY ALL"  # noqa: S608 - our own words
    sql = f"SELECT source, count(*), coalesce(sum(total), 0)::BIGINT FROM part.copies LEFT JOIN ({counts}) USING (source, session) GROUP BY source"  # noqa: S608 - our own words
    return {source: CopiedFiles(files, events) for source, files, events in engine.rows(sql)}


_Session = tuple[str, str]


def open_then(engine: Engine, sessions: set[_Session], then: OpenRange) -> set[_Session]:
    """Return those of the given sessions that may have been open within the range of time `then`. Read events only for
    sessions whose session rows do not show this."""
    stated = then.by_stated_times
    known = "SELECT source, session FROM part.stated_times WHERE"
    found = {(a, b) for a, b in engine.rows(f"{known} {stated.sql}", stated.values)} & sessions
    if rest := sessions - found:
        times = all_of([one_of("session", sorted({s for _, s in rest})), then.by_times])
        seen = "SELECT source, session FROM part.session_times WHERE"
        found |= {(a, b) for a, b in engine.rows(f"{seen} {times.sql}", times.values)} & sessions
    return found


def has_rows(engine: Engine, table: str, chosen: RowCondition) -> bool:
    """Return whether a view, or SQL that joins views, has a row that meets a condition."""
    sql = f"SELECT 1 FROM {table} WHERE {chosen.sql} LIMIT 1"  # noqa: S608 - our own words
    return any(True for _ in engine.rows(sql, chosen.values))


def _any_event(engine: Engine, scope: Scope) -> bool:
    """Return whether the table has any event that matches an answer's `Scope` or, for a range of time, any event of
    a session that may have been open in it. Events of the collector itself, such as heartbeats, count only if the
    selection names their source, because they prove nothing about a producer."""
    events = [RowCondition(_EVENTS)]
    if OWN_SOURCE not in (scope.selection.sources or ()):
        events.append(RowCondition("source <> ?", (OWN_SOURCE,)))
    if scope.then is None:
        return has_rows(engine, "stored", all_of([scope.gaps, *events]))
    if has_rows(engine, "stored", all_of([scope.rows, *events])):
        return True
    times = scope.then.by_times
    sessions = f"stored SEMI JOIN (SELECT source, session FROM part.session_times WHERE {times.sql}) USING (source, session)"  # noqa: S608 - our own words
    chosen = all_of([scope.selection.gaps, *events])
    return has_rows(engine, sessions, chosen._replace(values=(*times.values, *chosen.values)))


class Window(NamedTuple):
    """Selects the rows of `selection` whose time lies from `since` (inclusive) to `until` (exclusive), in Unix ns;
    None stands for no limit. With a limit, rows without a time are not selected."""

    selection: Selection = Selection()
    since: int | None = None
    until: int | None = None

    @property
    def rows(self) -> RowCondition:
        """SQL condition for the selected rows, in a view with a column `time`."""
        bounds = (("time >= ?", self.since), ("time < ?", self.until))
        times = [RowCondition(sql, (time,)) for sql, time in bounds if time is not None]
        return all_of([self.selection.condition, *times])

    @property
    def of_sessions(self) -> RowCondition:
        """SQL condition for a view without a column `time`, which selects rows by the times of their sessions."""
        return all_of([self.selection.condition, *self._sessions()])

    @property
    def scope(self) -> Scope:
        """The rows in this window, and the gaps that concern an answer about the window. Gaps have no time, so these
        are the selected gaps of all sessions that may have been open in the window."""
        sessions = self._sessions()
        gaps = all_of([self.selection.gaps, *sessions])
        then = OpenRange(self.since, self.until) if sessions else None
        return Scope(self.selection, gaps, self.rows, then)

    def _sessions(self) -> list[RowCondition]:
        if self.since is None and self.until is None:
            return []
        condition = OpenRange(self.since, self.until).by_times
        sql = f"(source, session) IN (SELECT (source, session) FROM part.session_times WHERE {condition.sql})"  # noqa: S608 - our own words
        return [condition._replace(sql=sql)]
