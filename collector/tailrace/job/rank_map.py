"""A map of rank and time: how many events of each rank begin in each part of the time, and where some are missing.

An event that is missing has no time. A gap is drawn where the event before it is, and a gap without numbers where its
session's last event is: there the events stop.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace.job.presence import Presence, RankState
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter, all_of

_PLACED = "part.places AS p USING (source, session) WHERE p.rank IS NOT NULL AND {where}"

BOUNDS = f"""
SELECT min(time), max(time) FROM events AS e JOIN {_PLACED}
AND kind IN ('span', 'instant', 'counter', 'annotation')
"""  # noqa: S608 - our own words

COUNTS = f"""
SELECT p.job, p.rank, any_value(p.node),
  CASE WHEN time IS NULL THEN NULL ELSE
    least(greatest(((time::HUGEINT - $begin) * $columns // $ticks)::BIGINT, 0), $columns - 1) END AS spot, count(*)
FROM events AS e JOIN {_PLACED}
AND kind IN ('span', 'instant', 'counter', 'annotation')
GROUP BY p.job, p.rank, spot
"""  # noqa: S608 - our own words

LOST = f"""
WITH lost AS (
  SELECT source, session, stream, first, remaining IS NULL AS unknown, coalesce(remaining, 0) AS missing
  FROM gaps
),
numbered AS (
  SELECT source, session, stream, seq, time FROM events
  WHERE seq IS NOT NULL AND time IS NOT NULL AND (source, session) IN (SELECT (source, session) FROM lost)
),
ends AS (
  SELECT source, session, max(last_time) AS time FROM streams GROUP BY source, session
),
placed AS (
  SELECT g.*, coalesce(n.time, d.time) AS time
  FROM lost AS g
  ASOF LEFT JOIN numbered AS n
    ON g.source = n.source AND g.session = n.session AND g.stream = n.stream AND g.first > n.seq
  LEFT JOIN ends AS d ON d.source = g.source AND d.session = g.session
)
SELECT p.job, p.rank, any_value(p.node),
  CASE WHEN time IS NULL THEN NULL ELSE
    least(greatest(((time::HUGEINT - $begin) * $columns // $ticks)::BIGINT, 0), $columns - 1) END AS spot,
  sum(missing)::HUGEINT::VARCHAR, bool_or(unknown)
FROM placed AS e JOIN {_PLACED}
GROUP BY p.job, p.rank, spot
"""  # noqa: S608 - our own words


class RankLane(msgspec.Struct, kw_only=True):
    """One rank. The lists have a value for each column of the map."""

    job: str | None
    rank: int
    node: str | None
    state: RankState
    events: list[int]
    missing: list[int]
    unknown: list[bool]
    """Whether an unknown number of events is missing there."""
    untimed: int = 0
    """Events without a time, which are in no column."""
    unplaced: int = 0
    """Missing events that are in no column: no event beside them has a time."""


class RankMap(msgspec.Struct, kw_only=True):
    """Times are Unix nanoseconds; null if no event of a rank has a time."""

    begin: int | None
    end: int | None
    columns: int
    ranks: list[RankLane]


def drawn(engine: Engine, there: Presence, job: JobFilter, columns: int) -> RankMap:
    """Return the map of these ranks, and of those of which only the table knows."""
    lanes = {
        (rank.job, rank.rank): _empty(rank.job, rank.rank, rank.node, rank.state, columns)
        for rank in there.ranks
        if _chosen(job, rank.job, rank.rank, rank.node)
    }
    chosen = all_of(list(job.conditions))
    where = chosen.sql
    values = {f"v{number}": value for number, value in enumerate(chosen.values)}
    for name in values:
        where = where.replace("?", f"${name}", 1)
    ((begin, end),) = engine.rows(BOUNDS.format(where=where), values)
    first, last = (0, 0) if begin is None else (begin, end)  # without times all is in no column
    axis = {"begin": first, "columns": columns, "ticks": last - first + 1} | values
    for of_job, rank, node, at, count in engine.rows(COUNTS.format(where=where), axis):
        lane = _lane(lanes, of_job, rank, node, columns)
        if at is None:
            lane.untimed += count
        else:
            lane.events[at] += count
    for of_job, rank, node, at, missing, unknown in engine.rows(LOST.format(where=where), axis):
        lane = _lane(lanes, of_job, rank, node, columns)
        if at is None:
            lane.unplaced += int(missing)
        else:
            lane.missing[at] += int(missing)
        if unknown:
            lane.unknown[columns - 1 if at is None else at] = True
    order = sorted(lanes, key=lambda key: (key[0] or "", key[1]))
    return RankMap(begin=begin, end=end, columns=columns, ranks=[lanes[key] for key in order])


def _lane(
    lanes: dict[tuple[str | None, int], RankLane],
    job: str | None,
    rank: int,
    node: str | None,
    columns: int,
) -> RankLane:
    if (job, rank) not in lanes:
        lanes[job, rank] = _empty(job, rank, node, RankState.UNKNOWN, columns)
    return lanes[job, rank]


def _empty(
    job: str | None, rank: int, node: str | None, state: RankState, columns: int
) -> RankLane:
    return RankLane(
        job=job, rank=rank, node=node, state=state,
        events=[0] * columns, missing=[0] * columns, unknown=[False] * columns,
    )  # fmt: skip


def _chosen(wanted: JobFilter, job: str | None, rank: int, node: str | None) -> bool:
    return (
        (wanted.ranks is None or rank in wanted.ranks)
        and (wanted.nodes is None or node in wanted.nodes)
        and (wanted.jobs is None or _of_job(job, wanted.jobs))
    )


def _of_job(job: str | None, wanted: Iterable[str]) -> bool:
    return job is not None and any(job == each or job.startswith(f"{each}.") for each in wanted)
