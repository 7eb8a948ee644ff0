"""Draw a map of rank and time: as SVG, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

from tailrace.job.presence import RankState
from tailrace.job.rank_map import RankLane, RankMap

SHADES = " ░▒▓█"
LOST = "x"

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
    """Yield the map's lines: a shade for how many events begin there, and an x where some are missing."""
    most = max((count for lane in found.ranks for count in lane.events), default=0)
    names = [_name(lane) for lane in found.ranks]
    width = max(map(len, names), default=0)
    for name, lane in zip(names, found.ranks, strict=True):
        cells = "".join(_cell(lane, at, most) for at in range(found.columns))
        yield f"{name:<{width}} |{cells}| {_words(lane)}"
    if found.begin is not None and found.end is not None:
        yield f"{'':<{width}}  from {_time(found.begin)} to {_time(found.end)} (UTC); {LOST}: events are missing"


def svg(found: RankMap) -> str:
    """Return the map as a picture: blue where events begin, the darker the more; red where some are missing."""
    most = max((count for lane in found.ranks for count in lane.events), default=0)
    height = _TOP + _ROW * len(found.ranks) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" role="img">',
        f"<style>{STYLE}</style>",
        f'<text x="{_LEFT}" y="16">events of each rank over time; red: events are missing</text>',
    ]
    for number, lane in enumerate(found.ranks):
        parts += _lane(lane, _TOP + _ROW * number, found.columns, most)
    if found.begin is not None and found.end is not None:
        below = height - 8
        parts.append(f'<text x="{_LEFT}" y="{below}">{_time(found.begin)}</text>')
        parts.append(
            f'<text x="{_LEFT + _WIDTH}" y="{below}" text-anchor="end">{_time(found.end)} UTC</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _lane(lane: RankLane, top: int, columns: int, most: int) -> Iterator[str]:
    """Yield the shapes of one rank. Equal neighbours are one shape."""
    bad = "" if lane.state == RankState.ENDED else ' class="bad"'
    yield f'<text x="4" y="{top + 10}"{bad}>{escape(_name(lane))} {escape(_words(lane))}</text>'
    steps = [0 if not most else -(-4 * count // most) for count in lane.events]
    for begin, end in _runs(steps):
        if steps[begin]:
            yield (
                f'<rect class="e" {_place(begin, end, columns)} y="{top}" height="{_ROW - 2}"'
                f' fill-opacity="{steps[begin] / 4}"><title>{escape(_name(lane))}:'
                f" {sum(lane.events[begin:end])} events</title></rect>"
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
    """Yield where equal values begin and end."""
    starts = [at for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
    yield from pairwise([*starts, len(values)])


def _place(begin: int, end: int, columns: int) -> str:
    left, right = (_LEFT + _WIDTH * at / columns for at in (begin, end))
    return f'x="{left:.1f}" width="{right - left:.1f}"'


def _cell(lane: RankLane, at: int, most: int) -> str:
    if _is_lost(lane, at):
        return LOST
    return SHADES[-(-4 * lane.events[at] // most)] if most else SHADES[0]


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
