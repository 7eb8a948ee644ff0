"""What a frame draws, as SQL over the rows of the table.

Each statement reads the relation `lane`: the lanes of the frame, with their number and their scale
(`scale.Scale`). A row's coordinate, `spot`, is its stored time or, without one, its tick.
"""

from __future__ import annotations

from typing import Any

from tailrace.export.clocks import LATEST
from tailrace.rollups.scale import Scale
from tailrace.rollups.snapshot import LaneKey

_COLUMNS = {
    "number": "INTEGER", "source": "VARCHAR", "session": "VARCHAR", "stream": "VARCHAR", "substream": "BIGINT",
    "begins": "BIGINT", "ends": "BIGINT", "log": "INTEGER", "first": "BIGINT", "behind": "BIGINT",
    "tick_first": "BIGINT", "tick_behind": "BIGINT", "short": "INTEGER",
    "tick_offset": "BIGINT", "zero": "BIGINT", "rate": "DOUBLE",
}  # fmt: skip

_FIELDS = ", ".join(f'"{name}" {type_}' for name, type_ in _COLUMNS.items())

LANES = (
    f"CREATE OR REPLACE TEMP TABLE lane AS SELECT unnest(?::STRUCT({_FIELDS})[], recursive := true)"
)
"""Note the lanes of a frame: a list of `lane_row`."""

_AT = """
  s.time IS NOT NULL AS timed,
  (CASE WHEN timed THEN log ELSE short END)::INTEGER AS width,
  (spot >> width) >= CASE WHEN timed THEN "first" ELSE tick_first END
    AND (spot >> width) < CASE WHEN timed THEN behind ELSE tick_behind END AS inside,
  CASE WHEN timed THEN spot ELSE part.ticks_ns(spot::HUGEINT + tick_offset, zero, rate) END AS begin
"""

_OF_LANE = """
JOIN lane AS l ON l.source = s.source AND l.session = s.session AND l.stream = s.stream
  AND l.substream IS NOT DISTINCT FROM s.substream
LEFT JOIN part.late_names AS n ON n.source = s.source AND n.session = s.session AND n.id = s.id
"""

_EDGES = f"""
  greatest(0, CASE WHEN timed THEN bucket::HUGEINT * (1::HUGEINT << width)
    ELSE part.ticks_ns(bucket::HUGEINT * (1::HUGEINT << width) + tick_offset, zero, rate) END)::BIGINT AS opens,
  least({LATEST}, CASE WHEN timed THEN (bucket + 1)::HUGEINT * (1::HUGEINT << width)
    ELSE part.ticks_ns((bucket + 1)::HUGEINT * (1::HUGEINT << width) + tick_offset, zero, rate) END)::BIGINT AS closes
"""

SPANS = f"""
WITH spans AS (
  SELECT l.*, s.depth, coalesce(s.name, n.late_name) AS name, s."offset", s.open,
    CASE WHEN NOT s.open THEN greatest(s."end"::HUGEINT - s.start, 0) END AS length,
    greatest(part.ticks_ns(s."end", 0, rate)::HUGEINT - part.ticks_ns(s.start, 0, rate), 0) AS lasts,
    coalesce(s.time, s.start) AS spot, {_AT}
  FROM part.span_rows AS s {_OF_LANE}
  WHERE s.start IS NOT NULL
),
placed AS (
  SELECT * EXCLUDE (lasts), coalesce(length < 1::HUGEINT << short, false) AS is_short,
    CASE WHEN NOT open THEN least(begin + lasts, {LATEST})::BIGINT END AS finish
  FROM spans WHERE begin BETWEEN 0 AND {LATEST}
),
cells AS (
  SELECT number, timed, width, depth, spot >> width AS bucket, count(*) AS "count", sum(length) AS busy,
    max(length) AS longest, arg_max(name, length) AS name, any_value(begin) AS begin,
    any_value(finish) AS finish, any_value("offset") AS "offset",
    any_value(tick_offset) AS tick_offset, any_value(zero) AS zero, any_value(rate) AS rate
  FROM placed WHERE is_short AND inside GROUP BY ALL
),
bounded AS (SELECT *, {_EDGES} FROM cells)
SELECT number, depth, CASE WHEN "count" = 1 THEN begin ELSE opens END AS begin,
  CASE WHEN "count" = 1 THEN finish ELSE closes END AS finish, name, "count",
  part.ticks_ns(busy, 0, rate) AS busy, CASE WHEN "count" = 1 THEN "offset" END AS "offset",
  false AS open, true AS is_short
FROM bounded
UNION ALL
SELECT number, depth, begin, finish, name, 1, coalesce(finish - begin, 0)::BIGINT, "offset", open, false
FROM placed
WHERE NOT is_short AND begin < ends AND (open OR finish > begins OR begin >= begins)
ORDER BY number, begin, finish DESC NULLS FIRST, "offset", depth
"""  # noqa: S608 - our own words

_NUMBER = "('BIGINT', 'UBIGINT', 'DOUBLE')"

_EVENTS = f"""
WITH events AS (
  SELECT l.*, s.kind, coalesce(s.name, n.late_name) AS name, s."offset",
    coalesce(s.time, s.start, s."end") AS spot, {_AT},
    CASE WHEN s.kind = 'counter' AND json_valid(s.attributes) THEN
      CASE WHEN json_type(s.attributes) = 'OBJECT' THEN s.attributes END END AS object,
    CASE WHEN json_type(object, '$.value') IN {_NUMBER} THEN object ->> '$.value'
      WHEN json_type(object, '$."tailrace.counter"') IN {_NUMBER} THEN object ->> '$."tailrace.counter"'
    END AS value,
    CASE WHEN value IS NULL AND json_type(object, '$.args') = 'OBJECT' THEN
      list_filter(json_keys(object, '$.args'),
        lambda key: json_type(object, '/args' || part.pointer(key)) IN {_NUMBER}) END AS keys
  FROM part.rows AS s {_OF_LANE}
  WHERE s.kind IN ('instant', 'annotation', 'counter')
    OR s.kind = 'end' AND NOT coalesce(contains(s.attributes, 'begin_forgotten'), false)
),
placed AS (SELECT * FROM events WHERE inside AND begin BETWEEN 0 AND {LATEST})
"""  # noqa: S608 - our own words

INSTANTS = f"""
{_EVENTS},
cells AS (
  SELECT number, timed, width, spot >> width AS bucket, count(*) AS "count", any_value(begin) AS begin,
    any_value(kind) AS kind, any_value(name) AS name, any_value("offset") AS "offset",
    any_value(tick_offset) AS tick_offset, any_value(zero) AS zero, any_value(rate) AS rate
  FROM placed WHERE value IS NULL AND coalesce(len(keys), 0) = 0 GROUP BY ALL
),
bounded AS (SELECT *, {_EDGES} FROM cells)
SELECT number, CASE WHEN "count" = 1 THEN begin ELSE opens END AS begin, "count",
  CASE WHEN "count" = 1 THEN kind END, CASE WHEN "count" = 1 THEN name END,
  CASE WHEN "count" = 1 THEN "offset" END AS "offset"
FROM bounded ORDER BY number, begin
"""  # noqa: S608 - our own words

COUNTERS = f"""
{_EVENTS},
counts AS (
  SELECT *, value AS number_text, name AS called FROM placed WHERE value IS NOT NULL
  UNION ALL
  SELECT * EXCLUDE (key), object ->> ('/args' || part.pointer(key)), name || '.' || key
  FROM (SELECT *, unnest(keys) AS key FROM placed WHERE value IS NULL)
),
cells AS (
  SELECT number, timed, width, called, spot >> width AS bucket, count(*) AS "count",
    min(number_text::DOUBLE) AS least, max(number_text::DOUBLE) AS most,
    arg_max(number_text::DOUBLE, {{'spot': spot, 'offset': "offset"}}) AS latest, any_value(begin) AS begin,
    any_value(tick_offset) AS tick_offset, any_value(zero) AS zero, any_value(rate) AS rate
  FROM counts GROUP BY ALL
),
bounded AS (SELECT *, {_EDGES} FROM cells)
SELECT number, called, CASE WHEN "count" = 1 THEN begin ELSE opens END AS begin, "count", least, most, latest
FROM bounded ORDER BY number, called, begin
"""  # noqa: S608 - our own words


def lane_row(number: int, key: LaneKey, scale: Scale) -> dict[str, Any]:
    """Return a row of `lane`."""
    timed, ticks = scale.timed, scale.ticks
    values = (
        number, *key, timed.begin, timed.end, timed.log, timed.first, timed.behind,
        ticks.first, ticks.behind, scale.short, scale.offset, scale.zero, scale.rate,
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))
