"""Refuse a question that names something that does not exist, since an empty answer would mislead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.errors import UnknownError
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection, all_of, begins_with, one_of
from tailrace.query.live import NOBODY, Live

LISTED = 20
"""Names that an error lists."""


def check(engine: Engine, selection: Selection, live: Live = NOBODY) -> None:
    """Raise UnknownError for a source, session or stream that does not exist.

    A source exists if it has a row or the running collector has it; a session or stream, if the selected
    sources or sessions have it."""
    sources, sessions, streams = selection
    if sources is not None:
        known = {*_values(engine, "source", Selection()), *live.sources}
        _refuse(engine, "source", [s for s in sources if s not in known], known, live)
    if sessions is not None:
        within = selection._replace(sessions=None, streams=None)
        unknown = [
            s for s in sessions if not _is_there(engine, within, begins_with("session", [s]))
        ]
        unknown = [
            s for s in unknown if not any(_begins(each.session, s) for each in live.of(within))
        ]
        if unknown:
            _refuse(engine, "session", unknown, _values(engine, "session", within), live)
    if streams is not None:
        within = selection._replace(streams=None)
        unknown = [s for s in streams if not _is_there(engine, within, one_of("stream", [s]))]
        unknown = [s for s in unknown if not any(each.stream == s for each in live.of(within))]
        if unknown:
            _refuse(engine, "stream", unknown, _values(engine, "stream", within), live)


def _refuse(
    engine: Engine, what: str, unknown: Sequence[str], known: Iterable[str], live: Live
) -> None:
    if not unknown:
        return
    how = " that begins with" if what == "session" else ""
    names = sorted((name for name in known if name), key=_as_number)
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


def _is_there(engine: Engine, within: Selection, wanted: RowCondition) -> bool:
    condition = all_of([within.condition, wanted])
    sql = f"SELECT 1 FROM stored WHERE {condition.sql} LIMIT 1"  # noqa: S608 - our own words
    return any(True for _ in engine.rows(sql, condition.values))


def _begins(session: str | None, beginning: str) -> bool:
    return session is not None and session.startswith(beginning)


def _as_number(name: str) -> tuple[int, str]:
    """Return a key that sorts stream 2 before stream 10."""
    return (len(name), name) if name.isdecimal() else (0, name)
