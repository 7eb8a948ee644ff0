"""Answers as JSON lines, CSV and Arrow: UTF-8 bytes, page by page; no answer is held whole.

- JSON: one object a row. Integers are exact, of any size; NaN and infinities are null, as JSON has
  no word for them; columns of type JSON, lists, structs and maps are JSON inside; all other types
  (times, blobs, intervals, ...) are DuckDB's text of them. Characters that a terminal would obey
  are escaped.
- CSV: RFC 4180 but for lines, which end with a newline alone; a heading; null is an empty field.
- Arrow: the IPC stream format, with DuckDB's own types.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tailrace.query.answer import Column, Page

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text begins that a spreadsheet takes for a formula, or may once it has trimmed it."""

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""DEL and the C1 controls; JSON escapes the C0 ones anyway."""


def write_json(columns: Sequence[Column], pages: Iterable[Page], out: BinaryIO) -> None:
    encoder = msgspec.json.Encoder(decimal_format="number")
    names = [column.name for column in columns]
    embedded = [i for i, column in enumerate(columns) if column.embedded]
    for page in pages:
        objects = []
        for row in page:
            values = list(row)
            for i in embedded:
                values[i] = None if row[i] is None else _json_inside(row[i])
            objects.append(dict(zip(names, values, strict=True)))
        out.write(_CONTROLS.sub(_escape, encoder.encode_lines(objects)))
        out.flush()


def write_csv(
    columns: Sequence[Column], pages: Iterable[Page], out: BinaryIO, *, safe: bool = False
) -> None:
    """Write rows as CSV; with `safe`, a `'` before each text that a spreadsheet would compute."""
    lines = _Lines(out)
    writer = csv.writer(lines, lineterminator=_Lines.END)
    shown = _defused if safe else list
    writer.writerow(shown([column.name for column in columns]))
    for page in pages:
        writer.writerows(map(shown, page))
        out.flush()
    out.flush()


def _defused(row: Sequence[Any]) -> list[Any]:
    return [
        f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
        for value in row
    ]


class _Lines:
    """Takes the writer's rows. It quotes those characters that are in its line terminator, so its
    own has both, and only the newline is written."""

    END = "\r\n"

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, row: str) -> None:
        self._out.write(f"{row.removesuffix(self.END)}\n".encode())


def write_arrow(
    schema: pyarrow.Schema, batches: Iterable[pyarrow.RecordBatch], out: BinaryIO
) -> None:
    import pyarrow  # noqa: PLC0415 - 100 ms, for this alone

    with pyarrow.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
            out.flush()


def _json_inside(text: str) -> msgspec.Raw | str:
    """JSON as it is; what DuckDB calls JSON and is not (it lets NaN be) as a string."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(text)


def _escape(match: re.Match[bytes]) -> bytes:
    return f"\\u{ord(match[0].decode()):04x}".encode()
