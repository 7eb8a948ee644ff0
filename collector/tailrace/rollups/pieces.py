"""Gather what a frame is made of: sums from memory and from sidecars, long spans, and rows where there are no sums.

Each file gives, for each of its lanes that may reach into the window, sums of the highest level whose buckets
fit into those of the frame, and the spans that are too long for this level. Where a file's lowest level is too
coarse, or a file has no sidecar, rows are read instead: from so far before the window that no span which began
earlier and is not among the file's long spans can reach into it.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from tailrace.rollups.events import EVENTS, SPAN
from tailrace.rollups.held import Held, HeldFile
from tailrace.rollups.row_source import RowSource

_TAKEN = """
CREATE OR REPLACE TEMP TABLE taken AS
WITH reached AS (
  SELECT l.number, f.file, f.lane, f.timed, f.scale,
    least(l.short + f.scale, CASE WHEN f.timed THEN l.log ELSE l.short END) AS finest,
    CASE WHEN f.timed THEN l.first::HUGEINT * (1::HUGEINT << l.log) ELSE l.tick_first::HUGEINT * (1::HUGEINT << l.short) END AS opens,
    CASE WHEN f.timed THEN l.ends ELSE l.tick_ends END AS closes, l.rate
  FROM file_lane AS f SEMI JOIN mine USING (file)
  JOIN lane AS l ON l.source = f.source AND l.session = f.session AND l.stream = f.stream
    AND l.substream IS NOT DISTINCT FROM f.substream
  WHERE f.low < CASE WHEN f.timed THEN l.behind::HUGEINT * (1::HUGEINT << l.log) ELSE l.tick_behind::HUGEINT * (1::HUGEINT << l.short) END
    AND f.high::HUGEINT + coalesce(CASE WHEN f.timed THEN part.ticks_ns(f.longest, 0, l.rate) ELSE f.longest END, 9223372036854775807) >= opens
)
SELECT r.*, v.lowest, v.level
FROM reached AS r
JOIN (
  SELECT file, finest, min(level) AS lowest, max(level) FILTER (level <= finest) AS level
  FROM file_level, (SELECT DISTINCT finest FROM reached) GROUP BY ALL
) AS v USING (file, finest)
"""
"""Choose the level of each lane of each file; null where rows are to be read."""

_MINE = "CREATE OR REPLACE TEMP TABLE mine AS SELECT unnest(?::INTEGER[]) AS file"

_RAW = "CREATE OR REPLACE TEMP TABLE raw AS SELECT DISTINCT file FROM taken WHERE level IS NULL"

_NEAR = """
CREATE OR REPLACE TEMP TABLE near AS
SELECT number, timed, min(opens - CASE WHEN timed THEN
  coalesce(part.ticks_ns(1::BIGINT << greatest(lowest - scale, 0), 0, rate), 9223372036854775807)::HUGEINT + 1
  ELSE (1::BIGINT << lowest)::HUGEINT END) AS since
FROM taken SEMI JOIN raw USING (file) GROUP BY number, timed
"""
"""Since when the rows of a lane are read."""

_COLUMNS = """
  what, timed, depth::BIGINT AS depth, edge, spot, start, "count", busy, longest, label, member, "offset", kind,
  least, most, latest
"""

_ROW_COLUMNS = _COLUMNS.replace("timed", "e.timed")

_SUMS = f"""
SELECT number, {_COLUMNS}, false AS open
FROM {{sums}} AS c JOIN taken AS t USING (file, lane, timed, level)
WHERE t.file NOT IN (FROM raw)
"""  # noqa: S608 - our own words

_LONG = f"""
SELECT number, {SPAN}::TINYINT, timed, c.depth::BIGINT, c.spot, c.spot, c.start, 1, c.longest, c.longest, c.label,
  NULL, c."offset", NULL, NULL, NULL, NULL, false
FROM {{longs}} AS c JOIN taken AS t USING (file, lane, timed) LEFT JOIN near AS n USING (number, timed)
WHERE c.spot < t.closes AND CASE
  WHEN t.file IN (FROM raw) THEN c.spot < n.since
  ELSE c.longest >= 1::BIGINT << greatest(t.level - t.scale, 0) END
"""  # noqa: S608 - our own words

_ROWS = f"""
SELECT l.number, {_ROW_COLUMNS}, false FROM ({{events}}) AS e
JOIN lane AS l ON l.source = e.source AND l.session = e.session AND l.stream = e.stream
  AND l.substream IS NOT DISTINCT FROM e.substream
"""  # noqa: S608 - our own words

_BEGUN = f"""
SELECT l.number, {SPAN}::TINYINT AS what, e.timed, e.depth, spot AS edge, spot, e.start, 1::BIGINT AS "count",
  longest AS busy, longest, label, NULL::VARCHAR AS member, "offset", NULL::VARCHAR AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest, e.open
FROM begun AS e
JOIN lane AS l ON l.source = e.source AND l.session = e.session AND l.stream = e.stream
  AND l.substream IS NOT DISTINCT FROM e.substream
"""  # noqa: S608 - our own words


def gather(
    database: duckdb.DuckDBPyConnection, held: Held, files: dict[str, HeldFile], rows: RowSource
) -> None:
    """Make the table `pieces`, of the lanes in the table `lane` and of the spans in the table `begun`.

    `files` are those of the version that had a sidecar; some may no longer be held."""
    with held.lock:
        mine = {path: file.number for path, file in files.items() if held.files.get(path) is file}
        database.execute(_MINE, [list(mine.values())])
        _gather(database, held, mine, rows)


def _gather(
    database: duckdb.DuckDBPyConnection, held: Held, mine: dict[str, int], rows: RowSource
) -> None:
    database.execute(f"{_TAKEN}; {_RAW}; {_NEAR}")
    taken = database.execute("SELECT DISTINCT file, level FROM taken").fetchall()
    raw = {file for file, level in taken if level is None}
    held_levels = {level for _, level in taken if level is not None and level >= held.level}
    fine = {file: level for file, level in taken if level is not None and level < held.level}
    parts = [_BEGUN]
    if held_levels:
        parts.append(_SUMS.format(sums=f"(FROM coarse WHERE level IN ({_listed(held_levels)}))"))
    if fine.keys() - raw:
        levels = _listed(fine.values())
        parts.append(
            _SUMS.format(
                sums=f"({held.reading('cells', fine.keys() - raw)} WHERE level IN ({levels}))"
            )
        )
    if taken:
        parts.append(_LONG.format(longs=f"({held.reading('longs', {file for file, _ in taken})})"))
    if raw:
        events = EVENTS.format(
            rows=rows.of(held.paths(raw), "near_rows"), condition=_times(database)
        )
        near = (
            " JOIN near AS n ON n.number = l.number AND n.timed = e.timed WHERE e.spot >= n.since"
        )
        parts.append(_ROWS.format(events=events) + near)
    if lacking := [path for path in rows.paths if path not in mine]:
        events = EVENTS.format(rows=rows.of(lacking, "all_rows"), condition="true")
        parts.append(_ROWS.format(events=events))
    sql = " UNION ALL ".join(f"({part})" for part in parts)
    database.execute(f"CREATE OR REPLACE TEMP TABLE pieces AS {sql}")


def _times(database: duckdb.DuckDBPyConnection) -> str:
    """Return the condition on the rows that are read, by the times that the files say they have."""
    untimed, since, before = database.execute(
        "SELECT bool_or(NOT timed), min(since), max(closes) FROM near JOIN taken USING (number, timed)"
    ).fetchall()[0]
    return "true" if untimed else f"time >= {max(since, 0)} AND time < {before}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))
