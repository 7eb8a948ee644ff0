"""From rows as they are stored to rows as views show them, by no more steps than the snapshot needs.

Most snapshots have no begin that waits for its span, no name that came late and no row without a time. Then the
views read the files directly: DuckDB applies a question's conditions to the statistics of row groups, counts rows
without reading them, and plans the statement in half the time.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.query.names import ANSWERED


class RowFacts(NamedTuple):
    """The steps that rows of a snapshot need. True also where nobody has looked."""

    begun: bool = True
    """Whether there are begins, some of which spans may supersede."""
    asked: bool = True
    """Whether names came by key."""
    late: bool = True
    """Whether names came by id, after their events."""
    untimed: bool = True
    """Whether rows were stored before their session's epoch was known."""


_CURRENT = "FROM part.shown"
_CURRENT_BEGUN = """
FROM part.shown WHERE kind <> 'begin'
UNION ALL
FROM part.kept_open
"""
"""All rows but superseded begins."""

_SPANS = "SELECT *, false AS open FROM part.shown WHERE kind = 'span'"
_SPANS_BEGUN = f"""
{_SPANS}
UNION ALL
SELECT *, true AS open FROM part.open_begins
UNION ALL
SELECT b.* REPLACE (e."end" AS "end", 'span' AS kind), false AS open
FROM part.kept_open AS b
JOIN part.kept_ends AS e ON e.id = b.id AND e.session = b.session AND e.source = b.source
"""  # noqa: S608 - our own words
"""Spans, ended or still open."""

_LATE = """
SELECT e.* REPLACE (coalesce(e.name, n.late_name) AS name)
FROM {rows} AS e
LEFT JOIN part.late_names AS n ON n.id = e.id AND n.session = e.session AND n.source = e.source
"""
"""Rows with the names that came for their ids."""

_TIMED = """
FROM {rows} WHERE time IS NOT NULL
UNION ALL
SELECT e.* REPLACE (part.ticks_ns(e.start, c.epoch, c.ticks_per_second) AS time)
FROM {rows} AS e
LEFT JOIN part.clocks AS c ON c.session = e.session AND c.source = e.source
WHERE e.time IS NULL
"""
"""Rows with the times that their clocks tell by now. Stored times stay as they are, so that conditions on them prune."""


def row_views(facts: RowFacts) -> dict[str, str]:
    """Return the views of rows, by name; each stands behind those that it needs."""
    stored = {
        "rows": _CURRENT_BEGUN if facts.begun else _CURRENT,
        "spans": _SPANS_BEGUN if facts.begun else _SPANS,
    }
    steps = [("answered", ANSWERED, facts.asked), ("called", _LATE, facts.late), ("timed", _TIMED, facts.untimed)]  # fmt: skip
    views = {"part.session_rows": _session_rows(facts)}
    for what, rows in stored.items():
        name = f"part.stored_{what}"
        views[name] = rows
        for step, template, needed in steps:
            if needed:
                views[f"part.{step}_{what}"] = template.format(rows=name)
                name = f"part.{step}_{what}"
        views.setdefault(f"part.timed_{what}", f"FROM {name}")
    return views


def _session_rows(facts: RowFacts) -> str:
    rows = "part.kept_sessions"
    return ANSWERED.format(rows=rows) if facts.asked else f"FROM {rows}"
