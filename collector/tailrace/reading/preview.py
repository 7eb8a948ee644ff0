"""Show the first rows of an answer, and what is missing of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from html import escape

from tailrace.query import grid
from tailrace.query.answer import AnswerColumn, Page
from tailrace.query.completeness import Completeness
from tailrace.reading.sketch import sketch
from tailrace.terminal import printable

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
