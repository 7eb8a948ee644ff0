"""Find the span that encloses each span of a stream and substream, by times.

A span's level is how many spans are open when it begins: a sum over begins and ends in order. Where spans nest, the
innermost open one is the last that began one level above. So two sorts suffice, however many spans there are. Where
spans overlap without nesting, the last one above may have ended: then no parent is named.
"""

from __future__ import annotations

NESTED = """
WITH placed AS (
  SELECT source, session, e.stream, e.substream, e."offset", e.name, e.start, e."end", e.open, e.time,
    part.ticks_ns(e."end"::HUGEINT - e.start, 0, c.ticks_per_second) AS duration,
    coalesce(e."end", 9223372036854775807) AS stops
  FROM part.timed_spans AS e LEFT JOIN part.clocks AS c USING (source, session)
  WHERE e.start IS NOT NULL
),
marks AS (
  SELECT *, start AS tick, 1 AS turn, (stops > start)::BIGINT AS step FROM placed
  UNION ALL
  SELECT *, stops AS tick, 0 AS turn, -1 AS step FROM placed WHERE stops > start AND NOT open
),
levels AS (
  SELECT *, row_number() OVER lane AS number,
    sum(step) OVER (lane ROWS UNBOUNDED PRECEDING) - step AS level
  FROM marks
  WINDOW lane AS (PARTITION BY source, session, stream, substream ORDER BY tick, turn, stops DESC, "offset")
),
sought AS (
  SELECT *, level - 1 AS beside, NULL AS held FROM levels WHERE turn = 1
  UNION ALL
  SELECT *, level AS beside, {'offset': "offset", 'name': name, 'stops': stops} AS held
  FROM levels WHERE turn = 1 AND step = 1
),
found AS (
  SELECT *, last_value(held IGNORE NULLS) OVER (
    PARTITION BY source, session, stream, substream, beside ORDER BY number ROWS UNBOUNDED PRECEDING
  ) AS parent_held
  FROM sought
)
SELECT source, session, stream, substream, "offset", name, start, "end", time, duration, level::BIGINT AS level,
  CASE WHEN parent_held.stops >= stops THEN parent_held."offset" END AS parent_offset,
  CASE WHEN parent_held.stops >= stops THEN parent_held.name END AS parent_name
FROM found WHERE held IS NULL
"""
"""A row for each span, as SQL; `views.NESTING` says what its columns mean."""
