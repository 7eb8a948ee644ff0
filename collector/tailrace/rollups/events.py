"""The rows of one data file as what a timeline draws, whatever other files hold.

A row is a span (0), an instant (1) or a value of a counter (2). Its `spot` is its stored time or, without
one, its tick. A name that the row lacks is asked for by `id` or `asked`, when the row is shown. Begins are left
out: whether a begin is shown depends on other rows.
"""

from __future__ import annotations

SPAN, INSTANT, COUNTER = range(3)

COLUMNS = (
    "source", "session", "stream", "substream", "kind", "name", "id", "depth", "start", "end", "time",
    "attributes", "offset",
)  # fmt: skip
"""The columns of the table that are read."""

LANE = "source, session, stream, substream"

LABEL_MAX = 1000
"""Characters of a name in a label. A timeline shows fewer; a label is copied for each step of a sum."""

BY_NAME = f"'=' || CASE WHEN length({{0}}) <= {LABEL_MAX} THEN {{0}} ELSE left({{0}}, {LABEL_MAX}) || '…' || md5({{0}}) END"
"""The label of a row that has the name `{0}`. The names of counters stay apart from one another, however long."""

# DuckDB evaluates an expression of one branch for all rows where it occurs twice, so text is left out before it
# is parsed: one attribute of 10 MB takes 100 MB to parse.
_DRAWN = f"""
SELECT source, session, stream, substream, depth, "offset", start, "end", kind,
  CASE WHEN name IS NOT NULL THEN {BY_NAME.format("name")}
    WHEN json_valid(CASE WHEN contains(attributes, '"$name"') THEN attributes END) THEN
      concat('?', id, ' ', attributes ->> '$."$name"')
    WHEN id IS NOT NULL THEN concat('?', id, ' ') ELSE '' END AS label,
  time IS NOT NULL AS timed, coalesce(time, start, "end") AS spot,
  part.numbers(CASE WHEN kind = 'counter' THEN attributes END) AS numbers
FROM {{rows}}
WHERE (kind = 'span' AND start IS NOT NULL OR kind IN ('instant', 'annotation', 'counter')
    OR kind = 'end' AND NOT coalesce(contains(attributes, 'begin_forgotten'), false))
  AND spot IS NOT NULL AND ({{condition}})
"""  # noqa: S608 - our own words

_SAME = """
  source, session, stream, substream, timed, depth, spot AS edge, spot, start, 1::BIGINT AS "count"
"""

EVENTS = f"""
WITH drawn AS ({_DRAWN})
SELECT {_SAME}, CASE WHEN kind = 'span' THEN {SPAN} ELSE {INSTANT} END::TINYINT AS what,
  CASE WHEN kind = 'span' THEN
    least(greatest(coalesce("end", start)::HUGEINT - start, 0), 9223372036854775807)::BIGINT ELSE 0 END AS busy,
  busy AS longest, label, NULL::VARCHAR AS member, "offset", CASE WHEN kind <> 'span' THEN kind END AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest
FROM drawn WHERE coalesce(len(numbers), 0) = 0
UNION ALL
SELECT * EXCLUDE (number), number, number, number FROM (
  SELECT {_SAME}, {COUNTER}::TINYINT, 0, 0, label, number.member, "offset", NULL, number.value::DOUBLE AS number
  FROM (SELECT * EXCLUDE (numbers), unnest(numbers) AS number FROM drawn WHERE numbers IS NOT NULL)
)
"""  # noqa: S608 - our own words
"""The events of `rows`, each as a sum of one; `condition` selects rows by columns of the table. It names parts of
`query.parts`, which must be defined."""

KEYS = "what, timed, depth"
"""The columns that separate sums within a lane, beside the names of counters."""

ADDED = """
  sum("count")::BIGINT AS "count", least(sum(busy), 9223372036854775807)::BIGINT AS busy,
  max(longest) AS longest, CASE WHEN sum("count") = 1 THEN any_value(start) END AS start,
"""

SUMS = f"""
  any_value(spot) AS spot, arg_max(label, longest) AS label, NULL::VARCHAR AS member, {ADDED}
  CASE WHEN sum("count") = 1 THEN any_value("offset") END AS "offset",
  CASE WHEN sum("count") = 1 THEN any_value(kind) END AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest
"""
"""Sums of spans or instants. `label` is that of one of the longest; `spot`, `start`, `offset` and `kind` are
those of a single one."""

VALUES = f"""
  max(spot) AS spot, label, member, {ADDED} arg_max("offset", {{'s': spot, 'o': "offset"}}) AS "offset",
  NULL::VARCHAR AS kind, min(least) AS least, max(most) AS most,
  arg_max(latest, {{'s': spot, 'o': "offset"}}) AS latest
"""
"""Sums of a counter's values, by `label` and `member`. `spot` and `offset` are those of the latest."""


def added(rows: str, keys: str, edge: str) -> str:
    """Return the SQL of the sums of rows or of sums, by `keys` and by the edge of a bucket."""
    return f"""
SELECT {keys}, {KEYS}, {edge} AS edge, {SUMS} FROM {rows} WHERE what <> {COUNTER} GROUP BY ALL
UNION ALL
SELECT {keys}, {KEYS}, {edge} AS edge, {VALUES} FROM {rows} WHERE what = {COUNTER} GROUP BY ALL
"""  # noqa: S608 - our own words
