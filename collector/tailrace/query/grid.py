"""Lay out answers as tables for people. The first page decides the widths of the columns.

For a terminal, columns are cut to its width, with an ellipsis where text is missing. If an answer has too
many columns for that, each value gets a line of its own. Elsewhere nothing is cut. Control and invisible
characters are escaped as in Python, and null is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from tailrace.query.answer import AnswerColumn, Page
from tailrace.terminal import printable

NULL = "-"
GAP = "  "
LEAST = 6
"""A column is never cut to fewer cells than this."""

Style = Callable[[str], str]


def layout(
    columns: Sequence[AnswerColumn],
    pages: Iterable[Page],
    *,
    width: int | None = None,
    heading: Style = str,
) -> Iterator[str]:
    """Yield the lines, without line ends. `width` is the terminal's width; None cuts nothing."""
    rest = iter(pages)
    first = [_texts(row) for row in next(rest, [])]
    names = [printable(column.name) for column in columns]
    widths = [max(cells(text) for text in column) for column in zip(names, *first, strict=True)]
    if width is not None:
        fitting = fit(widths, width - len(GAP) * (len(widths) - 1))
        if fitting is None:
            rows = chain(first, (_texts(row) for page in rest for row in page))
            yield from _records(names, rows, heading)
            return
        widths = fitting
    cut = width is not None
    right = [column.number for column in columns]
    yield heading(_line(names, widths, right, cut=cut))
    for row in chain(first, (_texts(row) for page in rest for row in page)):
        yield _line(row, widths, right, cut=cut)


def fit(widths: Sequence[int], room: int) -> list[int] | None:
    """Return the widths, with the largest cut equally until all fit, or None if they cannot fit."""
    fitting = list(widths)
    while (excess := sum(fitting) - room) > 0:
        largest = max(fitting)
        if largest <= LEAST:
            return None
        wide = [i for i, width in enumerate(fitting) if width == largest]
        next_largest = max((width for width in fitting if width < largest), default=LEAST)
        step = min(largest - max(next_largest, LEAST), -(-excess // len(wide)))
        for i in wide:
            fitting[i] -= step
    return fitting


def cells(text: str) -> int:
    """Return how many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - 20 ms, mostly not needed

    return cell_len(text)


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` cells. The last cell is an ellipsis if text was cut."""
    return text if cells(text) <= width else _cut(text, width)


def _records(names: list[str], rows: Iterable[list[str]], heading: Style) -> Iterator[str]:
    """Yield one line for each value."""
    margin = max(cells(name) for name in names)
    for number, row in enumerate(rows, start=1):
        yield heading(f"row {number}")
        for name, text in zip(names, row, strict=True):
            yield f"{' ' * (margin - cells(name))}{name}{GAP}{text}"


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, cut: bool) -> str:
    parts = []
    for text, width, to_the_right in zip(texts, widths, right, strict=True):
        shown = clip(text, width) if cut else text
        padding = " " * (width - cells(shown))
        parts.append(padding + shown if to_the_right else shown + padding)
    return GAP.join(parts).rstrip()


def _cut(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells, the last of which is an ellipsis."""
    if text.isascii():
        return f"{text[: width - 1]}…"
    from rich.cells import set_cell_size  # noqa: PLC0415 - 20 ms, mostly not needed

    return f"{set_cell_size(text, width - 1)}…"


def _texts(row: tuple[Any, ...]) -> list[str]:
    return [NULL if value is None else printable(str(value)) for value in row]
