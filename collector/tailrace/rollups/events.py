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

NUMBER = "('BIGINT', 'UBIGINT', 'DOUBLE')"

POINTER = "'/args/' || replace(replace({}, '~', '~0'), '/', '~1')"

_SHOWN = """
SELECT source, session, stream, substream, depth, "offset", start, "end", kind, attributes,
  CASE WHEN name IS NOT NULL THEN '=' || name
    WHEN contains(attributes, '"$name"') AND json_valid(attributes) THEN
      concat('?', id, ' ', attributes ->> '$."$name"')
    WHEN id IS NOT NULL THEN concat('?', id, ' ') ELSE '' END AS label,
  time IS NOT NULL AS timed, coalesce(time, start, "end") AS spot,
  CASE WHEN kind = 'counter' THEN
    CASE WHEN json_valid(attributes) THEN CASE WHEN json_type(attributes) = 'OBJECT' THEN attributes END END
  END AS object
FROM {rows}
WHERE (kind = 'span' AND start IS NOT NULL OR kind IN ('instant', 'annotation', 'counter')
    OR kind = 'end' AND NOT coalesce(contains(attributes, 'begin_forgotten'), false))
  AND spot IS NOT NULL AND ({condition})
"""

_VALUED = f"""
SELECT *,
  CASE WHEN json_type(object, '$.value') IN {NUMBER} THEN (object ->> '$.value')::DOUBLE
    WHEN json_type(object, '$."tailrace.counter"') IN {NUMBER} THEN (object ->> '$."tailrace.counter"')::DOUBLE
  END AS value,
  CASE WHEN value IS NULL AND json_type(object, '$.args') = 'OBJECT' THEN
    list_filter(json_keys(object, '$.args'), lambda key: json_type(object, {POINTER.format("key")}) IN {NUMBER})
  END AS keys
FROM ({_SHOWN})
"""  # noqa: S608 - our own words

_SAME = """
  source, session, stream, substream, timed, depth, spot AS edge, spot, start, 1::BIGINT AS "count"
"""

EVENTS = f"""
WITH valued AS ({_VALUED})
SELECT {_SAME}, CASE WHEN kind = 'span' THEN {SPAN} ELSE {INSTANT} END::TINYINT AS what,
  CASE WHEN kind = 'span' THEN
    least(greatest(coalesce("end", start)::HUGEINT - start, 0), 9223372036854775807)::BIGINT ELSE 0 END AS busy,
  busy AS longest, label, NULL::VARCHAR AS member, "offset", CASE WHEN kind <> 'span' THEN kind END AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest
FROM valued WHERE kind <> 'counter' OR value IS NULL AND coalesce(len(keys), 0) = 0
UNION ALL
SELECT {_SAME}, {COUNTER}::TINYINT, 0, 0, label, NULL, "offset", NULL, value, value, value
FROM valued WHERE value IS NOT NULL
UNION ALL
SELECT * EXCLUDE (number), number, number, number FROM (
  SELECT {_SAME}, {COUNTER}::TINYINT, 0, 0, label, key, "offset", NULL,
    (object ->> ({POINTER.format("key")}))::DOUBLE AS number
  FROM (SELECT *, unnest(keys) AS key FROM valued WHERE value IS NULL)
)
"""  # noqa: S608 - our own words
"""The events of `rows`, each as a sum of one; `condition` selects rows by columns of the table."""

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
