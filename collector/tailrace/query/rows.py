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
    lacking: bool = True
    """Whether a session asks for names that it does not have."""
    moved: bool = True
    """Whether several sessions are of one client (`moved`)."""


_CURRENT = "FROM part.shown"
_CURRENT_BEGUN = """
FROM part.shown WHERE kind <> 'begin'
UNION ALL
FROM part.kept_open
"""
"""All rows but superseded begins."""

_SPANS = "SELECT *, false AS open FROM part.shown WHERE kind = 'span'"
_NO_SPANS = f"{_SPANS} AND false"
_BEGUN_SPANS = """
SELECT *, true AS open FROM part.open_begins
UNION ALL
SELECT b.* REPLACE (e."end" AS "end", 'span' AS kind), false AS open
FROM part.kept_open AS b
JOIN part.kept_ends AS e ON e.id = b.id AND e.session = b.session AND e.source = b.source
"""
"""Spans of which there is the row of a begin and no row of a whole span: open, or ended when the begin was forgotten."""
_SPANS_BEGUN = f"{_SPANS} UNION ALL {_BEGUN_SPANS}"
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


_SEEN = """
SELECT source, any_value(format) AS format, session, stream,
  min(seq) AS first_seq, max(seq) AS last_seq,
  count(*) FILTER (kind <> 'begin' AND kind <> 'end') AS events,
  min(time) AS first_time, max(time) AS last_time, {first} AS first_start, {last} AS last_start
FROM part.shown
WHERE kind <> 'session' AND kind <> 'name' AND kind <> 'gap' AND kind <> 'heal'
GROUP BY source, session, stream
"""
"""The stored events of each stream. Rows that were stored before the clock was known get their times from their first and
last start. A session has one format; not to group by that as well, and to exclude kinds rather than to list them, takes
half of the time."""

_TIMES = """
SELECT source, session,
  least(w.opened, s.first_time, part.ticks_ns(s.first_start, c.epoch, c.ticks_per_second)) AS begins,
  CASE WHEN w.closed THEN
    greatest(w.closed_at, s.last_time, part.ticks_ns(s.last_start, c.epoch, c.ticks_per_second))
  END AS ends
FROM (
  SELECT source, session, min(time) AS first_time, max(time) AS last_time, {first} AS first_start, {last} AS last_start
  FROM part.shown
  GROUP BY source, session
) AS s
LEFT JOIN part.worded_times AS w USING (source, session)
LEFT JOIN part.clocks AS c USING (source, session)
"""
"""The time span in which each session may have had events: from its first byte, or earliest event, to its close, or latest
event. Null means unknown; `ends` is null while the session is open."""


def row_views(facts: RowFacts) -> dict[str, str]:
    """Return the views of rows, by name; each stands behind those that it needs."""
    stored = {
        "rows": _CURRENT_BEGUN if facts.begun else _CURRENT,
        "spans": _SPANS_BEGUN if facts.begun else _SPANS,
        "begun": _BEGUN_SPANS if facts.begun else _NO_SPANS,
    }
    steps = [("answered", ANSWERED, facts.asked), ("called", _LATE, facts.late), ("timed", _TIMED, facts.untimed)]  # fmt: skip
    ends = {
        name: f"{end}(start) FILTER (time IS NULL)" if facts.untimed else "NULL::BIGINT"
        for name, end in (("first", "min"), ("last", "max"))
    }
    views = {
        "part.session_rows": _session_rows(facts),
        "part.seen_events": _SEEN.format(**ends),
        "part.session_times": _TIMES.format(**ends),
    }
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
