"""Show the first rows of an answer, and what is missing of it. In notebooks, draw their spans as a small SVG.

The drawing has the rows that the table beside it shows, and no others: it never stands for the whole answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from tailrace.query import grid
from tailrace.query.answer import AnswerColumn, Page
from tailrace.query.completeness import Completeness
from tailrace.terminal import printable

WIDTH, LABEL, BAR, MARGIN = 720, 160, 12, 3
"""Pixels: of the drawing, of the names of streams at its left, of a span's height, between spans."""

LANES = 40
"""Lanes to draw at most; an answer's first rows may nest deeper."""

CUT = 60
"""Characters of a name that a tooltip shows; a stream's label has a third of them."""

PLACE = ("source", "session", "stream", "substream")


class Bar(NamedTuple):
    """A span in units of the axis. `end` is None while the span is open."""

    place: tuple[str, ...]
    name: str
    start: int
    end: int | None


def sketch(columns: Sequence[AnswerColumn], page: Page) -> Iterator[str]:
    """Yield the parts of an SVG; nothing if these rows have no spans on one axis."""
    unit, bars = _bars([column.name for column in columns], page)
    if not bars:
        return
    first = min(bar.start for bar in bars)
    last = max(bar.start if bar.end is None else bar.end for bar in bars)
    lanes = _lanes(bars)
    height = (len(lanes) + 1) * (BAR + MARGIN)
    yield f'<svg width="{WIDTH}" height="{height}" role="img" font-size="10" font-family="sans-serif">'
    yield f"<title>{len(bars)} spans over {last - first} {unit}</title>"
    scale = (WIDTH - LABEL - 1) / ((last - first) or 1)
    before: tuple[str, ...] = ()
    for number, lane in enumerate(lanes):
        y = number * (BAR + MARGIN)
        if lane[0].place != before:
            before = lane[0].place
            yield f'<text x="0" y="{y + BAR - 2}" fill="currentColor">{_text(before[-1:], CUT // 3)}</text>'
        for bar in lane:
            end = last if bar.end is None else bar.end
            x, width = LABEL + (bar.start - first) * scale, max((end - bar.start) * scale, 1.0)
            style = 'fill="none" stroke="#4a7db5" stroke-dasharray="3"'
            style = style if bar.end is None else 'fill="#4a7db5"'
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" {style}>'
            yield f"<title>{_text((bar.name,), CUT)}: {_length(bar, unit)}</title></rect>"
    yield f'<text x="{LABEL}" y="{height - MARGIN}" fill="currentColor">{last - first} {unit}</text></svg>'


def _bars(names: list[str], page: Page) -> tuple[str, list[Bar]]:
    """Return the unit of the axis and the spans on it: wall time in nanoseconds if all have that, else
    ticks if all are of one session. A statement may give a column any name, so types are checked."""
    rows = [dict(zip(names, row, strict=True)) for row in page]
    spans = [row for row in rows if _is_span(row)]
    wall = [
        (
            row.get("time"),
            None if row["end"] is None else _sum(row.get("time"), row.get("duration")),
        )
        for row in spans
    ]
    if all(
        isinstance(start, int) and (row["end"] is None or end is not None)
        for row, (start, end) in zip(spans, wall, strict=True)
    ):
        return "ns", [_bar(row, *times) for row, times in zip(spans, wall, strict=True)]
    if "session" in names and len({row["session"] for row in spans}) == 1:
        return "ticks", [_bar(row, row["start"], row["end"]) for row in spans]
    return "", []


def _is_span(row: dict[str, Any]) -> bool:
    """Return whether a row is a span that is open or ends no earlier than it starts."""
    start, end = row.get("start"), row.get("end")
    if not isinstance(start, int) or "name" not in row:
        return False
    if row.get("open") == "true":
        return end is None
    return row.get("open") == "false" and isinstance(end, int) and end >= start


def _sum(first: object, second: object) -> int | None:
    return first + second if isinstance(first, int) and isinstance(second, int) else None


def _bar(row: dict[str, Any], start: Any, end: int | None) -> Bar:  # noqa: ANN401 - checked above
    place = tuple(str(row[key]) for key in PLACE if row.get(key) is not None)
    return Bar(place, str(row["name"]), start, end)


def _lanes(bars: list[Bar]) -> list[list[Bar]]:
    """Return lanes of spans that do not overlap, those of a stream together; the longest span comes first."""
    lanes: dict[tuple[str, ...], list[list[Bar]]] = {}
    for bar in sorted(
        bars, key=lambda bar: (bar.place, bar.start, bar.end is not None, -(bar.end or 0))
    ):
        own = lanes.setdefault(bar.place, [])
        free = next((lane for lane in own if _is_over(lane[-1], bar.start)), None)
        if free is None:
            own.append([bar])
        else:
            free.append(bar)
    return [lane for own in lanes.values() for lane in own][:LANES]


def _is_over(bar: Bar, time: int) -> bool:
    return bar.end is not None and bar.end <= time


def _length(bar: Bar, unit: str) -> str:
    return "open" if bar.end is None else f"{bar.end - bar.start} {unit}"


def _text(words: Sequence[str], most: int) -> str:
    text = printable("".join(words)[: most + 1])
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


ROWS = 20
CELLS = 80
"""Terminal cells of a value in HTML. Longer values are cut."""


def text(columns: Sequence[AnswerColumn], page: Page, whole: Completeness) -> Iterator[str]:
    yield from grid.layout(columns, [page[:ROWS]], width=shutil.get_terminal_size().columns)
    yield f"[{_rows(page)}; {whole.text}]"


def html(columns: Sequence[AnswerColumn], page: Page, whole: Completeness) -> Iterator[str]:
    yield "<table><thead><tr>"
    for column in columns:
        yield f"<th>{_cell(column.name)}</th>"
    yield "</tr></thead><tbody>"
    for row in page[:ROWS]:
        yield "<tr>"
        for column, value in zip(columns, row, strict=True):
            side = "right" if column.number else "left"
            shown = grid.NULL if value is None else str(value)
            yield f'<td style="text-align: {side}">{_cell(shown)}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    yield from sketch(columns, page[:ROWS])
    yield f"<p>{_rows(page)}; "
    yield whole.text if whole.complete else f"<strong>{escape(whole.text)}</strong>"
    yield "</p>"


def _cell(value: str) -> str:
    return escape(grid.clip(printable(value[: 2 * CELLS]), CELLS))


def _rows(page: Page) -> str:
    shown = min(len(page), ROWS)
    if len(page) > ROWS:
        return f"the first {shown} rows"
    return "1 row" if shown == 1 else f"{shown} rows"
