"""Define the traffic of a producer, send it at a limited rate, and compare it with the table, event by event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import trio


class Write(NamedTuple):
    """One write(2) to a file of a trace. `path` is relative to the trace's directory. With `anew`, the file is emptied
    first, as for a document that is rewritten in place."""

    path: str
    data: bytes
    anew: bool = False


class Traffic(NamedTuple):
    chunks: Sequence[bytes] | Sequence[Write]
    """Datagrams, pieces of a stream, or writes to files, in order."""
    events: int
    """Number of distinct events in the chunks."""
    lost: dict[str, int]
    """Number of events that were left out on purpose, by the stream's name in the table."""
    numbers: set[tuple[str, int]]
    """Stream and counter of each event that was left out, for formats with counters."""
    about: str


NAMED_MAX = 5
"""Maximum number of differences to list one by one. Further differences are only counted."""

EVENTS = "SELECT source, sum(events)::BIGINT AS events FROM streams GROUP BY source"
"""Query for the number of events in the table, by source."""

MISSING = """SELECT source, stream, reason, count(*) AS gaps, sum(remaining)::BIGINT AS events \
FROM gaps GROUP BY ALL ORDER BY ALL"""
"""Query for the number of missing events in the table, by source, stream and reason."""

NUMBERS = """SELECT source, stream, unnest(range(first, last + 1)) AS seq FROM gaps \
WHERE first IS NOT NULL EXCEPT SELECT source, stream, seq FROM spans"""
"""Query for the missing sequence numbers, for formats with counters: the numbers in gaps that no span has."""

AnswerRows = Iterable[Mapping[str, Any]]


def differences(
    source: str, traffic: Traffic, events: AnswerRows, missing: AnswerRows, numbers: AnswerRows
) -> list[str]:
    """Return one line for each difference between traffic and table; empty if there is none.

    The rows are the answers to `EVENTS`, `MISSING` and `NUMBERS`. Rows of other sources are ignored.
    """
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


BURST_SECONDS = 0.02
"""Interval (seconds) between bursts of chunks, because a timer is too coarse for single chunks."""


async def send_udp(address: tuple[str, int], chunks: Iterable[bytes], rate: float) -> None:
    """Send each chunk as a datagram, `rate` a second."""
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
        await sock.connect(address)
        pace = SendingPace(rate)
        for chunk in chunks:
            await sock.send(chunk)
            await pace.sent()


async def send_tcp(address: tuple[str, int], chunks: Iterable[bytes], rate: float) -> None:
    """Send chunks over one connection, `rate` a second, and close the connection."""
    async with await trio.open_tcp_stream(*address) as stream:
        pace = SendingPace(rate)
        for chunk in chunks:
            await stream.send_all(chunk)
            await pace.sent()


async def write_files(directory: Path, writes: Iterable[Write], rate: float) -> None:
    """Make `rate` writes a second to files below a directory. The files stay open, as they do in real producers."""
    with ExitStack() as stack:
        files: dict[str, FileIO] = {}
        pace = SendingPace(rate)
        for write in writes:
            file = files.get(write.path)
            if file is None:
                file = files[write.path] = stack.enter_context(_created(directory / write.path))
            if write.anew:
                file.seek(0)
                file.truncate()
            file.write(write.data)
            await pace.sent()


def _created(path: Path) -> FileIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb", buffering=0)


SENDERS: dict[str, Callable[[Any, Iterable[Any], float], Awaitable[None]]] = {
    "udp": send_udp,
    "tcp": send_tcp,
    "tail": write_files,
}
"""The sender of each transport, by its name in the configuration."""


class SendingPace:
    """A limiter of the sending rate. It waits after each burst, so that on average `rate` chunks are sent a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._burst = max(1, round(rate * BURST_SECONDS))
        self._left = self._burst

    async def sent(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = self._burst
            await trio.sleep(self._burst / self._rate)
