"""Conditions of the commands that show one view, as SQL."""

from __future__ import annotations


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def where(*, source: str | None, session: str | None, also: str = "true") -> str:
    """A WHERE for one source, for sessions whose ids begin with `session`, and one thing more."""
    conditions = [also]
    if source is not None:
        conditions.append(f"source = {quote(source)}")
    if session is not None:
        conditions.append(f"starts_with(session, {quote(session)})")
    return f"WHERE {' AND '.join(conditions)}"
