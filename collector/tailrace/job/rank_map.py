"""Draw a map of ranks over time, as SVG or as text for a terminal.

Each rank has one row and each interval of time one column. The map shows how many events a rank has in an interval,
and whether events are missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

import msgspec

from tailrace.job.presence import Presence, RankPresence, RankState
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter, all_of
from tailrace.units import counted

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
    """The row of one rank in the map. Each list has one value for each interval of time, in order."""

    job: str | None
    rank: int
    node: str | None
    state: RankState
    events: list[int]
    missing: list[int]
    unknown: list[bool]
    """For each interval of time, whether an unknown number of the rank's events is missing."""
    untimed: int = 0
    """Number of the rank's events without a time, which `events` does not include."""
    unplaced: int = 0
    """Number of the rank's missing events without a time, which the lists do not include."""


class RankMap(msgspec.Struct, kw_only=True):
    """A map of ranks over the time from its first to its last event (Unix ns; None if no event has a time)."""

    begin: int | None
    end: int | None
    columns: int
    ranks: list[RankLane]


def drawn(engine: Engine, there: Presence, job: JobFilter, columns: int) -> RankMap:
    """Return the chosen ranks in the table or in a rank log, with their events and missing events over time."""
    lanes: dict[tuple[str | None, int], RankLane] = {}

    def lane_of(
        job: str | None, rank: int, node: str | None, state: RankState = RankState.UNKNOWN
    ) -> RankLane:
        if (job, rank) not in lanes:
            lanes[job, rank] = RankLane(
                job=job, rank=rank, node=node, state=state,
                events=[0] * columns, missing=[0] * columns, unknown=[False] * columns,
            )  # fmt: skip
        return lanes[job, rank]

    for each in there.ranks:
        if _chosen(job, each):
            lane_of(each.job, each.rank, each.node, each.state)
    chosen = all_of(list(job.conditions))
    where = chosen.sql
    values = {f"v{number}": value for number, value in enumerate(chosen.values)}
    for name in values:
        where = where.replace("?", f"${name}", 1)
    ((begin, end),) = engine.rows(BOUNDS.format(where=where), values)
    # If no event has a time, all events are outside of the columns.
    first, last = (0, 0) if begin is None else (begin, end)
    axis = {"begin": first, "columns": columns, "ticks": last - first + 1} | values
    for of_job, rank, node, at, count in engine.rows(COUNTS.format(where=where), axis):
        lane = lane_of(of_job, rank, node)
        if at is None:
            lane.untimed += count
        else:
            lane.events[at] += count
    for of_job, rank, node, at, missing, unknown in engine.rows(LOST.format(where=where), axis):
        lane = lane_of(of_job, rank, node)
        if at is None:
            lane.unplaced += int(missing)
        else:
            lane.missing[at] += int(missing)
        if unknown:
            lane.unknown[columns - 1 if at is None else at] = True
    order = sorted(lanes, key=lambda key: (key[0] or "", key[1]))
    return RankMap(begin=begin, end=end, columns=columns, ranks=[lanes[key] for key in order])


def _chosen(wanted: JobFilter, rank: RankPresence) -> bool:
    job = rank.job
    return (
        (wanted.ranks is None or rank.rank in wanted.ranks)
        and (wanted.nodes is None or rank.node in wanted.nodes)
        and (
            wanted.jobs is None
            or (job is not None and any(job == w or job.startswith(f"{w}.") for w in wanted.jobs))
        )
    )


SHADES = " ░▒▓█"
MISSING = "x"

_WIDTH, _ROW, _LEFT, _TOP = 960, 14, 340, 40
_FILL = "#2b6cb0"
_LOST_FILL = "#c53030"

STYLE = f"""
text {{ font: 11px sans-serif; fill: #222; }}
.e {{ fill: {_FILL}; }}
.l {{ fill: {_LOST_FILL}; }}
.bad {{ fill: {_LOST_FILL}; }}
"""


def text(found: RankMap) -> Iterator[str]:
    """Yield the lines of the map as text. A darker character stands for more events, an x for missing events."""
    most = max((count for lane in found.ranks for count in lane.events), default=0)
    names = [_name(lane) for lane in found.ranks]
    width = max(map(len, names), default=0)
    for name, lane in zip(names, found.ranks, strict=True):
        steps = [-(-4 * count // most) if most else 0 for count in lane.events]
        shades = enumerate(SHADES[step] for step in steps)
        cells = "".join(MISSING if _is_lost(lane, at) else shade for at, shade in shades)
        yield f"{name:<{width}} |{cells}| {_words(lane)}"
    if found.begin is not None and found.end is not None:
        yield f"{'':<{width}}  from {_time(found.begin)} to {_time(found.end)} (UTC); {MISSING}: events are missing"


def svg(found: RankMap) -> str:
    """Return the map as an SVG image: blue rectangles for events, darker for more, and red ones for missing events."""
    most = max((count for lane in found.ranks for count in lane.events), default=0)
    height = _TOP + _ROW * len(found.ranks) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" role="img">',
        f"<style>{STYLE}</style>",
        f'<text x="{_LEFT}" y="16">events of each rank over time; red: events are missing</text>',
    ]
    for number, lane in enumerate(found.ranks):
        parts += _lane_shapes(lane, _TOP + _ROW * number, found.columns, most)
    if found.begin is not None and found.end is not None:
        below = height - 8
        parts.append(f'<text x="{_LEFT}" y="{below}">{_time(found.begin)}</text>')
        at = f'x="{_LEFT + _WIDTH}" y="{below}"'
        parts.append(f'<text {at} text-anchor="end">{_time(found.end)} UTC</text>')
    return "\n".join([*parts, "</svg>", ""])


def _lane_shapes(lane: RankLane, top: int, columns: int, most: int) -> Iterator[str]:
    """Yield the SVG shapes of one rank's row. Adjacent intervals of the same colour form one rectangle."""
    bad = "" if lane.state == RankState.ENDED else ' class="bad"'
    yield f'<text x="4" y="{top + 10}"{bad}>{escape(_name(lane))} {escape(_words(lane))}</text>'
    steps = [0 if not most else -(-4 * count // most) for count in lane.events]
    for begin, end in _runs(steps):
        if steps[begin]:
            yield (
                f'<rect class="e" {_place(begin, end, columns)} y="{top}" height="{_ROW - 2}"'
                f' fill-opacity="{steps[begin] / 4}"><title>{escape(_name(lane))}:'
                f" {counted(sum(lane.events[begin:end]), 'event')}</title></rect>"
            )
    lost = [_is_lost(lane, at) for at in range(columns)]
    for begin, end in _runs(lost):
        if lost[begin]:
            count = sum(lane.missing[begin:end])
            more = " and an unknown number more" if any(lane.unknown[begin:end]) else ""
            yield (
                f'<rect class="l" {_place(begin, end, columns)} y="{top + _ROW - 5}" height="3">'
                f"<title>{escape(_name(lane))}: {count} missing{more}</title></rect>"
            )


def _runs(values: list[int] | list[bool]) -> Iterator[tuple[int, int]]:
    starts = [at for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
    yield from pairwise([*starts, len(values)])


def _place(begin: int, end: int, columns: int) -> str:
    left, right = (_LEFT + _WIDTH * at / columns for at in (begin, end))
    return f'x="{left:.1f}" width="{right - left:.1f}"'


def _is_lost(lane: RankLane, at: int) -> bool:
    return lane.missing[at] > 0 or lane.unknown[at]


def _name(lane: RankLane) -> str:
    node = f" {lane.node}" if lane.node else ""
    return f"{lane.job or '-'} rank {lane.rank}{node}"


def _words(lane: RankLane) -> str:
    more = "+" if any(lane.unknown) else ""
    missing = sum(lane.missing) + lane.unplaced
    many = f"{missing}{more}" if missing else "an unknown number"
    lost = f", {many} missing" if missing or more else ""
    state = "" if lane.state in {RankState.ENDED, RankState.UNKNOWN} else f", {lane.state}"
    untimed = f", {lane.untimed} without a time" if lane.untimed else ""
    return f"{sum(lane.events)}{untimed}{lost}{state}"


def _time(nanoseconds: int) -> str:
    return f"{datetime.fromtimestamp(nanoseconds / 10**9, UTC):%Y-%m-%d %H:%M:%S.%f}"
