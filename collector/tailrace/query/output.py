"""Write answers as JSON lines, CSV and Arrow: UTF-8 bytes, page by page, so that no answer is held whole.

- JSON: one object a row. Integers of any size are exact. NaN and infinities are null, since JSON has no
  word for them. Columns of type JSON, lists, structs and maps are nested JSON, and so are objects in the views'
  columns `attributes`, `producer` and `totals`. All other types (times, blobs, intervals, ...) are DuckDB's text
  for them. Control characters are escaped.
- CSV: RFC 4180, except that lines end with a newline alone. There is a heading. Null is an empty field, and an
  empty text is one in quotes. A row of one null alone is in quotes too, since readers pass over empty lines.
- Arrow: the IPC stream format, with DuckDB's own types.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tailrace.query.answer import AnswerColumn, Page

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Beginnings of texts that a spreadsheet takes for a formula, perhaps after it has trimmed them."""

_SPECIAL = re.compile('[,"\r\n]')
"""The characters for which a field of CSV stands in quotes."""

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""DEL and the C1 controls. JSON escapes the C0 controls anyway."""


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
        out.write(_CONTROLS.sub(_escape, encoder.encode_lines(lines)))
        out.flush()


def write_csv(
    columns: Sequence[AnswerColumn], pages: Iterable[Page], out: BinaryIO, *, safe: bool = False
) -> None:
    """Write rows as CSV. With `safe`, put a `'` before each text that a spreadsheet would compute."""
    lines = _Lines(out)
    writer = csv.writer(lines, lineterminator=_Lines.END)
    shown = _defused if safe else list
    writer.writerow(shown([column.name for column in columns]))
    for page in pages:
        for row in map(shown, page):
            if "" in row:
                lines.write(",".join(map(_field, row)))
            else:
                writer.writerow(row)
        out.flush()
    out.flush()


def _field(value: object) -> str:
    """Return a value as `csv` writes it, and an empty text in quotes, which `csv` of Python 3.11 cannot tell from null."""
    if value is None:
        return ""
    text = (
        value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)
    )
    if text and not _SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _defused(row: Sequence[Any]) -> list[Any]:
    return [
        f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
        for value in row
    ]


class _Lines:
    """The file of the CSV writer. The writer quotes the characters of its own line terminator. So its
    terminator has both CR and LF, and only the newline is written."""

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
    out.flush()  # the end, and of an answer without rows all of it


def _json_inside(text: str, only_objects: bool) -> msgspec.Raw | str:
    """Return valid JSON unchanged, and a string where DuckDB calls text JSON although it is not (it
    allows NaN), or where text in a column of objects is none."""
    if only_objects and not text.startswith("{"):
        return text
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(text)


def _escape(match: re.Match[bytes]) -> bytes:
    return f"\\u{ord(match[0].decode()):04x}".encode()
