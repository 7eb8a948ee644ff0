"""Refuse a command with a name that does not exist: an empty answer would be misleading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.errors import UnknownError
from tailrace.query.completeness import Completeness, Scope, completeness, has_rows
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter, RunLabel, Selection, all_of, begins_with, one_of
from tailrace.query.live import NOBODY, Live

LISTED = 20
"""Maximum number of existing names that an error message lists."""


def checked_completeness(engine: Engine, scope: Scope, live: Live) -> Completeness:
    """Return the completeness of an answer about `scope`. Raise UnknownError for a name that does not exist."""
    check(engine, scope.selection, live)
    return completeness(engine, scope, live)


def check(engine: Engine, selection: Selection, live: Live = NOBODY) -> None:
    """Raise UnknownError if a selection contains a name that neither a row nor a running collector has, within the
    selected sources and sessions. Also raise it if no session has all of the labels, or if none matches the rank, the
    node and the job together."""
    sources, sessions, streams, labels, job = selection
    if sources is not None:
        known = {*_values(engine, "source", Selection()), *live.sources}
        _refuse(engine, "source", [s for s in sources if s not in known], known, live)
    if sessions is not None:
        within = Selection(sources)
        awaited = [each.session for each in live.of(within) if each.session]
        unknown = [
            s
            for s in sessions
            if not has_rows(
                engine, "stored", all_of([within.condition, begins_with("session", [s])])
            )
            and not any(each.startswith(s) for each in awaited)
        ]
        if unknown:
            _refuse(engine, "session", unknown, _values(engine, "session", within), live)
    if streams is not None:
        within = Selection(sources, sessions)
        expected = {each.stream for each in live.of(within)}
        unknown = [
            s
            for s in streams
            if s not in expected
            and not has_rows(engine, "stored", all_of([within.condition, one_of("stream", [s])]))
        ]
        if unknown:
            _refuse(engine, "stream", unknown, _values(engine, "stream", within), live)
    if labels is not None:
        there = {RunLabel(*row) for row in engine.rows("SELECT DISTINCT key, value FROM labels")}
        unknown = [str(label) for label in labels if label not in there]
        _refuse(engine, "label", unknown, map(str, there), live)
        if not has_rows(engine, "labels", Selection(labels=labels).condition):
            together = " and ".join(str(label) for label in labels)
            raise UnknownError(f"{engine.table.root}: no session has all of the labels {together}")
    if any(job):
        _check_job(engine, job, live)


def _check_job(engine: Engine, job: JobFilter, live: Live) -> None:
    for what, wanted in (("rank", job.ranks), ("node", job.nodes), ("job", job.jobs)):
        if wanted is None:
            continue
        sql = f"SELECT DISTINCT {what}::VARCHAR FROM part.places WHERE {what} IS NOT NULL"  # noqa: S608 - our own words
        known = [value for (value,) in engine.rows(sql)]
        unknown = [
            text
            for text in map(str, wanted)
            if text not in known
            and not (what == "job" and any(each.startswith(f"{text}.") for each in known))
        ]
        _refuse(engine, what, unknown, known, live)
    if not has_rows(engine, "part.places", all_of(list(job.conditions))):
        raise UnknownError(f"{engine.table.root}: no session matches all of rank, node and job")


def _refuse(
    engine: Engine, what: str, unknown: Sequence[str], known: Iterable[str], live: Live
) -> None:
    if not unknown:
        return
    how = " that begins with" if what == "session" else ""
    # Sort decimal numbers by value, so that stream 2 comes before stream 10.
    names = sorted(filter(None, known), key=lambda name: (name.isdecimal() and len(name), name))
    listed = ", ".join(names[:LISTED]) or "none yet"
    if len(names) > LISTED:
        listed += f" and {len(names) - LISTED} more"
    text = f"{engine.table.root}: there is no {what}{how} {unknown[0]!r}; known: {listed}"
    if live.unasked:
        text += f" (and perhaps more: {live.unasked})"
    raise UnknownError(text)


def _values(engine: Engine, column: str, within: Selection) -> list[str]:
    condition = within.condition
    sql = f"SELECT DISTINCT {column} FROM stored WHERE {condition.sql}"  # noqa: S608 - our own words
    return [value for (value,) in engine.rows(sql, condition.values)]
