"""Print stored rows, one a line: as JSON with all columns, or as text.

A text line has these parts: the wall time (or `@` and the ticks, if the wall time is unknown), source/session/stream,
kind, name, `#` and the sequence number, `+` and the duration in ticks, and the attributes. On a narrow terminal, a row
takes several lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import BinaryIO

from tailrace.query import output
from tailrace.query.answer import AnswerColumn, Shape
from tailrace.query.follow import FollowedRow
from tailrace.query.views import TYPES
from tailrace.rows.schema import COLUMNS
from tailrace.terminal import printable

_NAMES = [column.name for column in COLUMNS]
_COLUMNS = [AnswerColumn(i, c.name, TYPES[c.type], Shape.JSON) for i, c in enumerate(COLUMNS)]

SOURCE, KIND = _NAMES.index("source"), _NAMES.index("kind")
"""Indexes of the columns `source` and `kind` in a row."""


class RowPrinter:
    """Prints rows as soon as it gets them, one a line. Lines have at most `width` terminal cells; None means no limit.
    Only names and attributes are cut."""

    def __init__(self, out: BinaryIO, *, as_json: bool, width: int | None) -> None:
        self._out = out
        self._as_json = as_json
        self._width = width

    def print(self, rows: Sequence[FollowedRow]) -> None:
        if self._as_json:
            output.write_json(_COLUMNS, [list(rows)], self._out)
            return
        for row in rows:
            lines = output.wrap(text_parts(row), self._width, between=output.GAP)
            self._out.write("".join(f"{line}\n" for line in lines).encode())
        self._out.flush()


def text_parts(row: FollowedRow) -> list[str]:
    value = dict(zip(_NAMES, row, strict=True))
    time, start, end = value["time"], value["start"], value["end"]
    when = "-" if start is None else f"@{start}"
    if time is not None:
        second = datetime.fromtimestamp(time // 10**9, UTC)
        when = f"{second:%Y-%m-%d %H:%M:%S}.{time % 10**9:09}"
    parts = [
        when,
        f"{value['source']}/{value['session']}/{value['stream']}",
        value["kind"],
        value["name"],
        None if value["seq"] is None else f"#{value['seq']}",
        None if start is None or end is None else f"+{end - start}",
        value["attributes"],
    ]
    return [printable(part) for part in parts if part]
