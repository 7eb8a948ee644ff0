"""The traffic of a producer in the demonstration, compared event by event with what the table says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Write(NamedTuple):
    """One write(2) to a file of a trace. `path` is relative to the trace's directory. With `anew`, the
    file is emptied first, like documents that are rewritten in place."""

    path: str
    data: bytes
    anew: bool = False


class Traffic(NamedTuple):
    chunks: Sequence[bytes] | Sequence[Write]
    """Datagrams, pieces of a stream, or writes to files, in order."""
    events: int
    """The number of different events in the chunks."""
    lost: dict[str, int]
    """The number of events left out on purpose, by stream as the table names it."""
    numbers: set[tuple[str, int]]
    """Stream and counter of each event left out, for formats with counters."""
    about: str


NAMED_MAX = 5
"""Differences to list one by one. Further differences are counted."""

EVENTS = "SELECT source, sum(events)::BIGINT AS events FROM streams GROUP BY source"
"""Events in the table, by source."""

MISSING = """SELECT source, stream, reason, count(*) AS gaps, sum(remaining)::BIGINT AS events \
FROM gaps GROUP BY ALL ORDER BY ALL"""
"""Events that the table says are missing."""

NUMBERS = """SELECT source, stream, unnest(range(first, last + 1)) AS seq FROM gaps \
WHERE first IS NOT NULL EXCEPT SELECT source, stream, seq FROM spans"""
"""The missing numbers, for formats with counters: the numbers in gaps that no span has."""

Rows = Iterable[Mapping[str, Any]]


def differences(
    source: str, traffic: Traffic, events: Rows, missing: Rows, numbers: Rows
) -> list[str]:
    """Return a line for each difference, or nothing if the table is right.

    The rows are the answers to `EVENTS`, `MISSING` and `NUMBERS`. Rows of other sources are ignored."""
    found = sum(row["events"] for row in events if row["source"] == source)
    lost: dict[str, int] = {}
    for row in missing:
        if row["source"] == source:
            lost[row["stream"]] = lost.get(row["stream"], 0) + row["events"]
    named = {(row["stream"], row["seq"]) for row in numbers if row["source"] == source}
    lines = []
    if found != traffic.events:
        lines.append(f"{traffic.events} events were sent, {found} are in the table")
    lines += [
        f"stream {stream or source}: {traffic.lost.get(stream, 0)} left out, {lost.get(stream, 0)} found"
        for stream in sorted(lost.keys() | traffic.lost.keys())
        if lost.get(stream, 0) != traffic.lost.get(stream, 0)
    ]
    lines += _named(source, "left out and not found", traffic.numbers - named)
    lines += _named(source, "found and not left out", named - traffic.numbers)
    return lines


def _named(source: str, what: str, numbers: set[tuple[str, int]]) -> list[str]:
    lines = [f"stream {stream or source}, number {seq}: {what}" for stream, seq in sorted(numbers)]
    if len(lines) > NAMED_MAX:
        return [*lines[:NAMED_MAX], f"… and {len(lines) - NAMED_MAX} more {what}"]
    return lines
