"""Marks: fingerprints that tell events apart and grow with the events' times."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Any

from tailrace.model.record import Kind
from tailrace.normalize import COUNTER, END, SIZE, START, STREAM

NUMBERED = frozenset({Kind.SPAN, Kind.COUNTER})
"""Kinds of an event with a counter."""

Numbered = tuple[str, int | None, int]
"""Stream, number on the wire and mark of an event."""


def marks_of(columns: Sequence[Sequence[Any]]) -> list[int]:
    """Return the marks of records, given as columns: the sums of their times and sizes."""
    try:
        return list(map(add, map(add, columns[START], columns[END]), columns[SIZE]))
    except TypeError:
        times = zip(columns[START], columns[END], columns[SIZE], strict=True)
        return [(start or 0) + (end or 0) + size for start, end, size in times]


def numbered(columns: Sequence[Sequence[Any]]) -> list[Numbered]:
    return list(zip(columns[STREAM], columns[COUNTER], marks_of(columns), strict=True))
