"""Count spans by when they began and how long they took."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, all_of
from tailrace.query.window import Window


class Cell(NamedTuple):
    """How many spans began in a range of time, and took a duration of a class (see `heat_map`)."""

    column: int
    row: int
    spans: int


class HeatMap(NamedTuple):
    """The cells that contain spans. Column n begins at `since` + n * `width` ns. `open` counts the spans that have
    not ended: no cell counts them."""

    since: int | None
    width: int
    cells: list[Cell]
    open: int


def heat_map(engine: Engine, window: Window, name: str | None, columns: int) -> HeatMap:
    """Return how long the spans of a window took, of one name or all, in at most `columns` ranges of time.

    Row 0 has durations of 0 ns (and below, where a span ends before it begins), row n has 2^(n-1) to 2^n - 1 ns.
    Spans without a wall time or without a duration in ns are in no cell. Raise QueryError or StoreError."""
    named = [] if name is None else [RowCondition("name = ?", (name,))]
    chosen = all_of([window.rows, *named])
    bounds = f"SELECT min(time), max(time) FROM spans WHERE {chosen.sql}"  # noqa: S608 - our own words
    ((first, last),) = engine.rows(bounds, chosen.values)
    since = first if window.since is None else window.since
    if since is None or last is None:
        return HeatMap(since, 1, [], 0)
    until = last + 1 if window.until is None else window.until
    width = max(-(-(until - since) // columns), 1)
    # The logarithm of a large number may be rounded up.
    sql = (
        "SELECT cell, CASE WHEN duration > 0 THEN 1 + power - (1::HUGEINT << power > duration)::INT ELSE 0 END, count(*)"  # noqa: S608 - our own words
        " FROM (SELECT ((time::HUGEINT - ?) // ?)::BIGINT AS cell, duration,"
        " floor(log2(greatest(duration, 1)))::INT AS power FROM spans"
        f" WHERE NOT open AND duration IS NOT NULL AND time IS NOT NULL AND {chosen.sql}) GROUP BY 1, 2 ORDER BY 1, 2"
    )
    cells = [Cell(*row) for row in engine.rows(sql, (since, width, *chosen.values))]
    counting = f"SELECT count(*) FROM spans WHERE open AND {chosen.sql}"  # noqa: S608 - our own words
    ((still_open,),) = engine.rows(counting, chosen.values)
    return HeatMap(since, width, cells, still_open)
