"""Marks: fingerprints that tell events apart and grow with the events' times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import add
from typing import Any

from tailrace.model.record import Kind, Record
from tailrace.normalize import COUNTER, END, SIZE, START, STREAM

_NUMBERED = frozenset({Kind.SPAN, Kind.COUNTER})
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


def event_after(records: list[Record], index: int) -> Numbered | None:
    """Return the first event after the record at an index, None if there is none."""
    after = next((r for r in islice(records, index + 1, None) if r.kind in _NUMBERED), None)
    if after is None:
        return None
    (event,) = numbered([(value,) for value in after])
    return event
