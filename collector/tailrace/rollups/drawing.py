"""Draw the relation `pieces`, as SQL: rows and sums of rows become what a frame shows of its lanes.

The relation `lane` has the lanes of the frame, with their number and their scale (`scale.Scale`).
"""

from __future__ import annotations

from typing import Any

from tailrace.export.clocks import LATEST
from tailrace.rollups.events import COUNTER, INSTANT, SPAN, SUMS, VALUES
from tailrace.rollups.scale import Scale
from tailrace.rollups.snapshot import LaneKey

_COLUMNS = {
    "number": "INTEGER", "source": "VARCHAR", "session": "VARCHAR", "stream": "VARCHAR", "substream": "BIGINT",
    "begins": "BIGINT", "ends": "BIGINT", "log": "INTEGER", "first": "BIGINT", "behind": "BIGINT",
    "tick_begins": "BIGINT", "tick_ends": "BIGINT", "tick_first": "BIGINT", "tick_behind": "BIGINT",
    "short": "INTEGER", "tick_offset": "BIGINT", "zero": "BIGINT", "rate": "DOUBLE",
}  # fmt: skip
_FIELDS = ", ".join(f'"{name}" {type_}' for name, type_ in _COLUMNS.items())

LANES = (
    f"CREATE OR REPLACE TEMP TABLE lane AS SELECT unnest(?::STRUCT({_FIELDS})[], recursive := true)"
)
"""Note the lanes of a frame: a list of `lane_row`."""

_PLACE = (
    "(CASE WHEN timed THEN {at} ELSE part.ticks_ns({at}::HUGEINT + tick_offset, zero, rate) END)"
)

_IN_LANES = f"""
SELECT p.*, l.* EXCLUDE (number, source, session, stream, substream),
  (CASE WHEN timed THEN log ELSE short END)::INTEGER AS width, edge >> width AS bucket,
  bucket >= CASE WHEN timed THEN "first" ELSE tick_first END
    AND bucket < CASE WHEN timed THEN behind ELSE tick_behind END AS inside,
  {_PLACE.format(at="coalesce(spot, edge)")} AS begin
FROM pieces AS p JOIN lane AS l USING (number)
WHERE begin BETWEEN 0 AND {LATEST}
"""  # noqa: S608 - our own words

_SUMMED = """
SELECT number, timed, depth, bucket, width, {sums},
  any_value(tick_offset) AS tick_offset, any_value(zero) AS zero, any_value(rate) AS rate
FROM placed WHERE what = {what} AND inside {short} GROUP BY ALL
"""

_EDGE = _PLACE.format(at="({bucket}::HUGEINT * (1::HUGEINT << width))")

_SHOWN = f"""
SELECT *,
  CASE WHEN "count" = 1 THEN {_PLACE.format(at="spot")} ELSE greatest({_EDGE.format(bucket="bucket")}, 0) END::BIGINT AS begin,
  coalesce(least({_EDGE.format(bucket="(bucket + 1)")}, {LATEST}), {LATEST})::BIGINT AS closes
FROM {{sums}}
"""  # noqa: S608 - our own words

_FINISH = f"""
least(begin + greatest(part.ticks_ns(start::HUGEINT + longest, 0, rate)::HUGEINT - part.ticks_ns(start, 0, rate), 0), {LATEST})::BIGINT
"""

SPANS = f"""
WITH placed AS ({_IN_LANES}),
sums AS ({_SUMMED.format(sums=SUMS, what=SPAN, short="AND NOT open AND longest < 1::BIGINT << short")}),
shown AS ({_SHOWN.format(sums="sums")})
SELECT number, depth, begin, CASE WHEN "count" = 1 THEN {_FINISH} ELSE closes END AS finish, label, "count",
  coalesce(part.ticks_ns(busy, 0, rate), {LATEST}) AS busy, "offset", false AS open, true AS short
FROM shown
UNION ALL
SELECT * FROM (
  SELECT number, depth, begin, CASE WHEN NOT open THEN {_FINISH} END AS finish, label, 1 AS "count",
    coalesce(finish - begin, 0) AS busy, "offset", open, false
  FROM placed WHERE what = {SPAN} AND (open OR longest >= 1::BIGINT << short) AND begin < ends
    AND (open OR begin >= begins OR {_FINISH} > begins)
)
ORDER BY number, begin, finish DESC NULLS FIRST, "offset", depth
"""  # noqa: S608 - our own words

INSTANTS = f"""
WITH placed AS ({_IN_LANES}),
sums AS ({_SUMMED.format(sums=SUMS, what=INSTANT, short="")}),
shown AS ({_SHOWN.format(sums="sums")})
SELECT number, begin, "count", kind, CASE WHEN "count" = 1 THEN label END, "offset" FROM shown ORDER BY number, begin
"""  # noqa: S608 - our own words

COUNTERS = f"""
WITH placed AS ({_IN_LANES}),
sums AS ({_SUMMED.format(sums=VALUES, what=COUNTER, short="")}),
shown AS ({_SHOWN.format(sums="sums")})
SELECT number, label, member, begin, "count", least, most, latest FROM shown ORDER BY number, label, member, begin
"""  # noqa: S608 - our own words


def lane_row(number: int, key: LaneKey, scale: Scale) -> dict[str, Any]:
    """Return a row of `lane`."""
    timed, ticks = scale.timed, scale.ticks
    values = (
        number, *key, timed.begin, timed.end, timed.log, timed.first, timed.behind, ticks.begin, ticks.end,
        ticks.first, ticks.behind, scale.short, scale.offset, scale.zero, scale.rate,
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))
