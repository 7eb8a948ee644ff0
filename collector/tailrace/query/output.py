"""Write answers: as JSON lines, CSV and Arrow for programs, page by page, and as tables for people.

- JSON: one object for each row. Integers of any size are exact, and NaN and infinite numbers are null. Columns of
  type JSON, lists, structs and maps, and the objects in the views' columns, are nested JSON. All other types are
  DuckDB's text.
- CSV: RFC 4180, except that lines end with LF alone. Null is an empty field, and an empty text, or a row of one
  null, is a quoted empty field.
- Arrow: the IPC stream format, with DuckDB's own types.
- Tables: the first page determines the widths of the columns. If the columns do not fit on a terminal, columns without
  a value are left out, then columns in `spare`, and then the widest columns are cut. Headings, numbers, ids and words
  of up to `WORD_MAX` cells are never cut. If the columns still do not fit, each value gets a line of its own. Control
  and invisible characters are escaped as in Python, and null is a dash."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tailrace.query.answer import AnswerColumn, Page
from tailrace.terminal import printable

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of texts that a spreadsheet may take for a formula, even after white space."""

_SPECIAL = re.compile('[,"\r\n]')
"""Pattern of the characters that require quotes around a CSV field."""

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""Pattern of DEL and the C1 control characters in UTF-8, which the JSON encoder does not escape."""


def write_json(columns: Sequence[AnswerColumn], pages: Iterable[Page], out: BinaryIO) -> None:
    encoder = msgspec.json.Encoder(decimal_format="number")
    names = [column.name for column in columns]
    embedded = [(i, column.objects) for i, column in enumerate(columns) if column.embedded]
    for page in pages:
        lines = []
        for row in page:
            values = list(row)
            for i, only_objects in embedded:
                values[i] = None if row[i] is None else _json_inside(row[i], only_objects)
            lines.append(dict(zip(names, values, strict=True)))
        data = encoder.encode_lines(lines)
        out.write(_CONTROLS.sub(lambda c: f"\\u{ord(c[0].decode()):04x}".encode(), data))
        out.flush()


def write_csv(
    columns: Sequence[AnswerColumn], pages: Iterable[Page], out: BinaryIO, *, safe: bool = False
) -> None:
    """Write rows as CSV. If `safe`, put a `'` before each text that a spreadsheet may take for a formula."""
    lines = _Lines(out)
    writer = csv.writer(lines, lineterminator=_Lines.END)
    header: Page = [tuple(column.name for column in columns)]
    for page in chain([header], pages):
        for values in page:
            row = values
            if safe:
                row = tuple(
                    f"'{v}" if isinstance(v, str) and v.startswith(FORMULA) else v for v in values
                )
            if "" in row:
                lines.write(",".join(map(_field, row)))
            else:
                writer.writerow(row)
        out.flush()


def _field(value: object) -> str:
    """Return a value as a CSV field: nothing for null, and two quotes for an empty text. The CSV writer of Python 3.11
    cannot write this difference."""
    if value is None:
        return ""
    text = repr(value) if isinstance(value, float) else str(value)
    if text and not _SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


class _Lines:
    """The file to which Python's CSV writer writes. The writer ends lines with CR LF, because it then puts quotes
    around fields that contain CR or LF. This class writes LF alone."""

    END = "\r\n"

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, row: str) -> None:
        self._out.write(f"{row.removesuffix(self.END)}\n".encode())


def write_arrow(
    schema: pyarrow.Schema, batches: Iterable[pyarrow.RecordBatch], out: BinaryIO
) -> None:
    import pyarrow  # noqa: PLC0415 - 100 ms, and only needed here

    with pyarrow.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
            out.flush()
    # Closing the stream has written its end marker. Flush the marker, too: without rows, it is the whole output.
    out.flush()


def _json_inside(text: str, only_objects: bool) -> msgspec.Raw | str:
    """Return a text as `Raw` if it is valid JSON (with `only_objects`, a JSON object). Return any other text, such as
    NaN, unchanged."""
    if only_objects and not text.startswith("{"):
        return text
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(text)


NULL = "-"
GAP = "  "
INDENT = "    "
LEAST = 6
"""Minimum width (terminal cells) to which `fit` reduces a column of a table."""
READABLE = 10
"""Minimum width (terminal cells) of a column while `layout` can still leave out other columns."""
WORD_MAX = 16
"""Maximum width (terminal cells) of a word that a table shows as a whole. Longer words, such as paths, may be cut."""
IDS = frozenset({"session", "stream", "id", "parent"})
"""Names of columns that are never cut, because users pass their values to other commands."""

TextStyle = Callable[[str], str]


def layout(
    columns: Sequence[AnswerColumn],
    pages: Iterable[Page],
    *,
    width: int | None = None,
    heading: TextStyle = str,
    spare: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table for people, in at most `width` cells if given. `spare` has the columns that may be
    left out, the least important first. `heading` styles the first line."""
    rest = iter(pages)
    first = [_texts(row) for row in next(rest, [])]
    second = next(rest, None)
    names = [printable(column.name) for column in columns]
    widths = [max(cells(text) for text in column) for column in zip(names, *first, strict=True)]
    right = [column.number for column in columns]
    later = chain([second or []], rest)
    rows = chain(first, (_texts(row) for page in later for row in page))
    if width is None:
        yield heading(_line(names, widths, right, cut=False))
        yield from (_line(row, widths, right, cut=False) for row in rows)
        return
    empty = []
    if first and not second:
        texts = zip(names, zip(*first, strict=True), strict=True)
        empty = [name for name, column in texts if {NULL, ""}.issuperset(column)]
    least = [
        widths[i]
        if names[i] in IDS or right[i]
        else min(widths[i], max(LEAST, *_words(i, names, first)))
        for i in range(len(names))
    ]
    shown = _chosen(names, widths, least, width, empty, spare)
    room = width - len(GAP) * (len(shown) - 1)
    fitting = fit([widths[i] for i in shown], room, [least[i] for i in shown])
    if fitting is None:
        margin = max(map(cells, names))
        for number, row in enumerate(rows, start=1):
            yield heading(f"row {number}")
            for name, text in zip(names, row, strict=True):
                yield f"{' ' * (margin - cells(name))}{name}{GAP}{text}"
        return
    right = [right[i] for i in shown]
    yield heading(_line([names[i] for i in shown], fitting, right, cut=True))
    yield from (_line([row[i] for i in shown], fitting, right, cut=True) for row in rows)


def _words(index: int, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield the width of a column's heading, and of each word of the column that may not be cut."""
    yield cells(names[index])
    for row in rows:
        yield from (size for word in row[index].split() if (size := cells(word)) <= WORD_MAX)


def _chosen(
    names: Sequence[str],
    widths: Sequence[int],
    least: Sequence[int],
    width: int,
    empty: Sequence[str],
    spare: Sequence[str],
) -> list[int]:
    """Return the indices of the columns to show. If not all columns fit at full width, leave out those in `empty`, one
    after the other. Then leave out those in `spare` until each remaining column can have `READABLE` cells, or its width
    in `least` if that is larger."""
    readable = [max(low, min(w, READABLE)) for low, w in zip(least, widths, strict=True)]
    shown = list(range(len(names)))
    for name, wanted in (
        *((name, widths) for name in empty),
        *((name, readable) for name in spare),
    ):
        if sum(wanted[i] + len(GAP) for i in shown) - len(GAP) > width:
            shown = [i for i in shown if names[i] != name]
    return shown


def fit(widths: Sequence[int], room: int, least: Sequence[int] = ()) -> list[int] | None:
    """Return the widths of columns, reduced so that their sum is at most `room`, or None if this is impossible. The
    widest columns are reduced first, but no column below its width in `least`, which is `LEAST` if not given."""
    fitting = list(widths)
    lowest = least or [LEAST] * len(fitting)
    while (excess := sum(fitting) - room) > 0:
        wide = [i for i, width in enumerate(fitting) if width > lowest[i]]
        if not wide:
            return None
        largest = max(fitting[i] for i in wide)
        smaller = [fitting[i] for i in wide if fitting[i] < largest]
        wide = [i for i in wide if fitting[i] == largest]
        step = largest - max(*smaller, *(lowest[i] for i in wide), 0)
        step = min(step, -(-excess // len(wide)))
        for i in wide:
            fitting[i] -= step
    return fitting


def cells(text: str) -> int:
    """Return how many terminal cells a text occupies."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - 20 ms, mostly not needed

    return cell_len(text)


def clip(text: str, width: int) -> str:
    """Return a text that occupies at most `width` terminal cells. An ellipsis replaces what is cut off: the beginning of
    a path, and the end of any other text, from a word on if that is not too far from the end."""
    if cells(text) <= width:
        return text
    if text.isascii() and text.startswith("/") and width > 1:
        return f"…{text[1 - width :]}"
    if text.isascii():
        kept = text[: width - 1]
        words = kept[: kept.rfind(" ")] if " " in kept and text[width - 1] != " " else kept
        return f"{(words if len(kept) - len(words) < WORD_MAX else kept).rstrip()}…"
    from rich.cells import set_cell_size  # noqa: PLC0415 - 20 ms, mostly not needed

    return f"{set_cell_size(text, width - 1)}…"


def wrap(parts: Iterable[str], width: int | None, between: str = " ") -> list[str]:
    """Return lines of at most `width` terminal cells that contain the parts of a text in order. Only a part that is
    longer than a line is cut. All lines but the first are indented. None as width stands for one line."""
    if width is None:
        return [between.join(parts)]
    lines: list[str] = []
    for part in parts:
        if lines and cells(lines[-1]) + len(between) + cells(part) <= width:
            lines[-1] += between + part
        else:
            indent = INDENT if lines else ""
            lines.append(indent + clip(part, max(width - len(indent), 1)))
    return lines


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, cut: bool) -> str:
    parts = []
    for text, width, to_the_right in zip(texts, widths, right, strict=True):
        shown = clip(text, width) if cut else text
        padding = " " * (width - cells(shown))
        parts.append(padding + shown if to_the_right else shown + padding)
    return GAP.join(parts).rstrip()


def _texts(row: tuple[Any, ...]) -> list[str]:
    return [NULL if value is None else printable(str(value)) for value in row]
