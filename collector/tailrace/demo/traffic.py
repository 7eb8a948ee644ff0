"""Define the traffic of a producer, send it at a limited rate, and compare it event by event with the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import trio


class Write(NamedTuple):
    """One write(2) to a file of a trace. `path` is relative to the directory of the trace. If `anew` is true, the
    file is emptied first, because programs rewrite metadata files as a whole."""

    path: str
    data: bytes
    anew: bool = False


class Traffic(NamedTuple):
    chunks: Sequence[bytes] | Sequence[Write]
    """The parts of the traffic, in order: datagrams, parts of a byte stream, or writes to files."""
    events: int
    """Number of different events that the chunks contain."""
    lost: dict[str, int]
    """For each stream, by its name in the table, the number of events that were left out on purpose."""
    numbers: set[tuple[str, int]]
    """Stream and number of each event that was left out on purpose; empty for formats without numbers."""
    about: str


NAMED_MAX = 5
"""Maximum number of missing or unexpected events that `differences` lists one by one."""

EVENTS = "SELECT source, sum(events)::BIGINT AS events FROM streams GROUP BY source"
"""SQL for the number of events in the table, by source."""

MISSING = """SELECT source, stream, reason, count(*) AS gaps, sum(remaining)::BIGINT AS events \
FROM gaps GROUP BY ALL ORDER BY ALL"""
"""SQL for the number of missing events that the table states, by source, stream and reason."""

NUMBERS = """SELECT source, stream, unnest(range(first, last + 1)) AS seq FROM gaps \
WHERE first IS NOT NULL EXCEPT SELECT source, stream, seq FROM spans"""
"""SQL for the sequence numbers of missing events: all numbers within gaps, except those of spans in the table."""

AnswerRows = Iterable[Mapping[str, Any]]


def differences(
    source: str, traffic: Traffic, events: AnswerRows, missing: AnswerRows, numbers: AnswerRows
) -> list[str]:
    """Return one line for each difference between a producer's traffic and the table; an empty list if they agree.
    `events`, `missing` and `numbers` are the rows of the statements `EVENTS`, `MISSING` and `NUMBERS`."""
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
"""Time (seconds) between two bursts of chunks. Timers are too coarse to send single chunks at high rates."""


async def send_udp(address: tuple[str, int], chunks: Iterable[bytes], rate: float) -> None:
    """Send each chunk as a datagram, `rate` chunks a second."""
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
        await sock.connect(address)
        pace = SendingPace(rate)
        for chunk in chunks:
            await sock.send(chunk)
            await pace.sent()


async def send_tcp(address: tuple[str, int], chunks: Iterable[bytes], rate: float) -> None:
    """Send all chunks over one connection, `rate` chunks a second. Then close the connection."""
    async with await trio.open_tcp_stream(*address) as stream:
        pace = SendingPace(rate)
        for chunk in chunks:
            await stream.send_all(chunk)
            await pace.sent()


async def write_files(directory: Path, writes: Iterable[Write], rate: float) -> None:
    """Perform the writes to files below a directory, `rate` writes a second. All files stay open."""
    with ExitStack() as stack:
        files: dict[str, FileIO] = {}
        pace = SendingPace(rate)
        for write in writes:
            file = files.get(write.path)
            if file is None:
                path = directory / write.path
                path.parent.mkdir(parents=True, exist_ok=True)
                file = files[write.path] = stack.enter_context(path.open("xb", buffering=0))
            if write.anew:
                file.seek(0)
                file.truncate()
            file.write(write.data)
            await pace.sent()


SENDERS: dict[str, Callable[[Any, Iterable[Any], float], Awaitable[None]]] = {
    "udp": send_udp,
    "tcp": send_tcp,
    "tail": write_files,
}
"""The function that sends chunks, for each transport by its name in the configuration."""


class SendingPace:
    """Limits the average rate of sending to `rate` chunks a second, in bursts with a pause after each."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._burst = max(1, round(rate * BURST_SECONDS))
        self._left = self._burst

    async def sent(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = self._burst
            await trio.sleep(self._burst / self._rate)
