"""Draw plots as SVG: curves of points with their spread, bars of spreads on one logarithmic axis, stacked bars, and
courses over time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.comparisons import Spread

COLOURS = ("#1f6f8b", "#c8553d", "#6a994e", "#7b5ea7", "#8a6d3b", "#444444")
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 64, 24, 40, 48
_HEIGHT, _ROW, _NAMES = 320, 20, 300
_PANEL = 150
_STEPS = (1, 2, 2.5, 5, 10)


class Point(NamedTuple):
    at: float
    spread: Spread


class Series(NamedTuple):
    """Points of one colour that are joined by a line."""

    name: str
    points: list[Point]


class Bar(NamedTuple):
    """A spread that is drawn as one row."""

    name: str
    spread: Spread
    colour: str


class Report(NamedTuple):
    """Shares of a whole that are missing and that were reported. `more` states that the report has no upper end."""

    missing: float
    reported: float
    more: bool


class Stack(NamedTuple):
    """Values that are drawn above one another, in the order of their names."""

    at: float
    values: tuple[float, ...]


def curves(title: str, across: str, up: str, series: Sequence[Series]) -> str:
    """Draw series over a logarithmic axis. The other axis is linear and begins at 0."""
    places = sorted({point.at for one in series for point in one.points})
    most = max((point.spread.greatest for one in series for point in one.points), default=1) or 1
    step = _step(most / 5)
    top = step * math.ceil(most / step)
    low, high = math.log10(max(places[0], 1)), math.log10(max(places[-1], 1))

    def x(value: float) -> float:
        share = (math.log10(max(value, 1)) - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_text(_LEFT, 20, title, weight="bold"), _text(_WIDTH - _RIGHT, _HEIGHT - 8, across, anchor="end")]  # fmt: skip
    parts.append(_text(_LEFT, _TOP - 6, up, size=11))
    for number in range(round(top / step) + 1):
        value = number * step
        parts.append(_line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "#dddddd"))
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:g}", anchor="end", size=11))
    below = _HEIGHT - _BOTTOM + 16
    parts += (_text(x(p), below, _short(p), anchor="middle", size=11) for p in places)
    for index, one in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        joined = " ".join(f"{x(p.at):.1f},{y(p.spread.middle):.1f}" for p in one.points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')  # fmt: skip
        for point in one.points:
            at = x(point.at)
            parts.append(_line(at, y(point.spread.least), at, y(point.spread.greatest), colour))
            parts.append(_dot(at, y(point.spread.middle), colour))
        parts.append(_dot(_LEFT + 12, _TOP + 12 + 16 * index, colour))
        parts.append(_text(_LEFT + 22, _TOP + 16 + 16 * index, one.name, size=11))
    return _document(_WIDTH, _HEIGHT, parts)


def bars(title: str, bars: Sequence[Bar]) -> str:
    """Draw spreads on one logarithmic axis around 1, one row each."""
    height = _TOP + _ROW * len(bars) + _BOTTOM
    values = [value for bar in bars for value in bar.spread if value > 0] or [1]
    low = math.floor(math.log10(min(*values, 1)))
    high = max(math.ceil(math.log10(max(*values, 1))), low + 1)

    def x(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return _NAMES + share * (_WIDTH - _NAMES - _RIGHT)

    parts = [_text(12, 20, title, weight="bold")]
    bottom = height - _BOTTOM
    for power in range(low, high + 1):
        at = x(10.0**power)
        colour = "#888888" if power == 0 else "#dddddd"
        parts.append(_line(at, _TOP - 8, at, bottom, colour))
        parts.append(_text(at, bottom + 16, f"{10.0**power:g}", anchor="middle", size=11))
    for index, bar in enumerate(bars):
        up = _TOP + _ROW * index + 8
        parts.append(_text(_NAMES - 10, up + 4, bar.name, anchor="end", size=11))
        parts.append(_line(x(bar.spread.least), up, x(bar.spread.greatest), up, bar.colour, 3))
        parts.append(_dot(x(bar.spread.middle), up, bar.colour))
    return _document(_WIDTH, height, parts)


def stacks(title: str, across: str, names: Sequence[str], panels: Mapping[str, Sequence[Stack]]) -> str:  # fmt: skip
    """Draw stacks over linear axes that begin at 0. Each panel has a title, and all panels have the same axes."""
    found = [stack for panel in panels.values() for stack in panel]
    last = max((stack.at for stack in found), default=1)
    most = max((sum(stack.values) for stack in found), default=1) or 1
    step = _step(most / 3)
    top = step * math.ceil(most / step)
    head = _TOP + 16 * len(names)
    height = head + _PANEL * len(panels) + _BOTTOM
    parts = [_text(_LEFT, 20, title, weight="bold"), _text(_WIDTH - _RIGHT, height - 8, across, anchor="end")]  # fmt: skip
    for index, name in enumerate(names):
        parts.append(_dot(_LEFT + 6, 36 + 16 * index, COLOURS[index]))
        parts.append(_text(_LEFT + 16, 40 + 16 * index, name, size=11))

    def x(value: float) -> float:
        return _LEFT + value / last * (_WIDTH - _LEFT - _RIGHT)

    for number, (name, panel) in enumerate(panels.items()):
        floor = head + _PANEL * (number + 1)
        scale = (_PANEL - 30) / top
        parts.append(_text(_LEFT, floor - _PANEL + 22, name, size=11, weight="bold"))
        for mark in range(round(top / step) + 1):
            up = floor - mark * step * scale
            parts.append(_line(_LEFT, up, _WIDTH - _RIGHT, up, "#dddddd"))
            parts.append(_text(_LEFT - 6, up + 4, _short(mark * step), anchor="end", size=11))
        for stack in panel:
            below = float(floor)
            for value, colour in zip(stack.values, COLOURS, strict=False):
                if not value:
                    continue
                parts.append(_line(x(stack.at), below, x(stack.at), below - value * scale, colour, 4))  # fmt: skip
                below -= value * scale
    for part in range(5):
        at = last * part / 4
        parts.append(_text(x(at), height - _BOTTOM + 16, f"{at:g}", anchor="middle", size=11))
    return _document(_WIDTH, height, parts)


def courses(title: str, across: str, panels: Mapping[str, Sequence[tuple[float, float]]], marks: Sequence[float]) -> str:  # fmt: skip
    """Draw values over time. Each panel has a title and an axis of its own that begins at 0, and lines at the marks."""
    last = max((at for panel in panels.values() for at, _ in panel), default=1) or 1
    height = _TOP + _PANEL * len(panels) + _BOTTOM
    parts = [_text(_LEFT, 20, title, weight="bold"), _text(_WIDTH - _RIGHT, height - 8, across, anchor="end")]  # fmt: skip

    def x(value: float) -> float:
        return _LEFT + value / last * (_WIDTH - _LEFT - _RIGHT)

    for number, (name, panel) in enumerate(panels.items()):
        floor = _TOP + _PANEL * (number + 1)
        step = _step((max((value for _, value in panel), default=1) or 1) / 3)
        top = step * math.ceil(max((value for _, value in panel), default=1) / step)
        scale = (_PANEL - 40) / (top or 1)
        parts.append(_text(_LEFT, floor - _PANEL + 26, name, size=11, weight="bold"))
        parts += (_line(x(at), floor, x(at), floor - _PANEL + 34, "#f0d0c8") for at in marks)
        for mark in range(round(top / step) + 1):
            up = floor - mark * step * scale
            parts.append(_line(_LEFT, up, _WIDTH - _RIGHT, up, "#dddddd"))
            parts.append(_text(_LEFT - 6, up + 4, _short(mark * step), anchor="end", size=11))
        joined = " ".join(f"{x(at):.1f},{floor - value * scale:.1f}" for at, value in panel)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>')  # fmt: skip
    for part in range(5):
        at = last * part / 4
        parts.append(_text(x(at), height - _BOTTOM + 16, f"{at:.3g}", anchor="middle", size=11))
    return _document(_WIDTH, height, parts)


def diagonals(title: str, panels: Mapping[str, Sequence[Report]]) -> str:
    """Draw a square panel for each name: reports over truth, with the diagonal on which both are equal."""
    side, space, across = 180, 50, 3
    rows = math.ceil(len(panels) / across)
    height = _TOP + rows * (side + space)
    parts = [_text(_LEFT, 20, title, weight="bold")]
    for number, (name, reports) in enumerate(panels.items()):
        left = _LEFT + number % across * (side + space - 10)
        floor = _TOP + number // across * (side + space) + side + 16
        parts.append(_text(left, floor - side - 6, name, size=11, weight="bold"))
        for mark in range(5):
            at = mark * side / 4
            parts.append(_line(left, floor - at, left + side, floor - at, "#dddddd"))
            parts.append(_text(left - 4, floor - at + 4, f"{25 * mark} %", anchor="end", size=9))
            parts.append(_text(left + at, floor + 14, f"{25 * mark} %", anchor="middle", size=9))
        parts.append(_line(left, floor, left + side, floor - side, "#888888"))
        for report in reports:
            x, y = left + report.missing * side, floor - report.reported * side
            if report.more:
                parts.append(_line(x, y, x, floor - side, COLOURS[4]))
            honest = report.more or abs(report.missing - report.reported) < 0.0005
            parts.append(_dot(x, y, COLOURS[0] if honest else COLOURS[1]))
    return _document(_WIDTH, height, parts)


def _step(least: float) -> float:
    """Return the smallest round number that is at least the given value."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * 0.999999)


def _short(number: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g} {name}"
    return f"{number:g}"


def _document(width: float, height: float, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"])  # fmt: skip


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, weight: str = "normal") -> str:  # fmt: skip
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{escape(text)}</text>'


def _line(x: float, y: float, x2: float, y2: float, colour: str, width: int = 1) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
