"""Run the daemon that is measured: the real one, started as a user would, on a store of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes.sending import Address
from tests.system.collector import Collector, until

SOCKETS = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"

[sources.heph]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
connections_max = 10000
connections_per_peer_max = 10000

[sources.jets]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
"""
FILES = """
[sources.files]
type = "tail"
format = "{format}"
paths = ["{runs}"]
files_max = 10000
"""

LONGEST_SECONDS = 1200.0
STANDSTILL_SECONDS = 30.0
"""If there is no progress for this time (seconds), a run has failed.

Heartbeats count as progress, and one comes every minute.
"""
_POLL_SECONDS = 0.02
_QUIET_LOOKS = 5


class Daemon:
    """A running daemon that is measured."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.process: int = collector.process.pid
        self.events: Path = collector.store / "events"

    def address(self, source: str) -> Address:
        """Return the address at which a source listens."""
        host, port = self.collector.address(source)
        return host, port

    def status(self) -> dict[str, Any]:
        """Return the daemon's answer to a request for /status."""
        found: dict[str, Any] = self.collector.status()
        return found

    def source(self, name: str) -> dict[str, Any]:
        """Return the figures of a source."""
        found: dict[str, Any] = self.status()["sources"][name]
        return found

    def await_committed(self, source: str, content: int) -> None:
        """Wait until the given number of bytes of a source is decoded, and the rows are committed and durable."""
        end, reached, moved = 0, (-1, -1), time.monotonic()

        def done() -> bool:
            nonlocal end, reached, moved
            begun = time.monotonic()
            status = self.status()
            # The page /status takes milliseconds for a thousand sessions, which count as work of the daemon. So request
            # it for a tenth of the time at most.
            time.sleep(9 * (time.monotonic() - begun))
            seen, spool = status["sources"][source], status["spool"]
            if reached != (now := (seen["received_bytes"], spool["committed"])):
                reached, moved = now, time.monotonic()
            elif time.monotonic() - moved > STANDSTILL_SECONDS:
                raise RuntimeError(f"{source}: {seen['received_bytes']} of {content} bytes, and no more: {seen['refused']}")  # fmt: skip
            if not end and seen["decoded_bytes"] + seen["malformed_bytes"] >= content:
                end = spool["decoded"]
            return bool(end) and spool["committed"] >= end

        until(done, f"{content} bytes to be committed", LONGEST_SECONDS, _POLL_SECONDS)

    def await_quiet(self, source: str) -> None:
        """Wait until no more data arrives, and all rows of the received data are committed and durable."""
        looks: list[int] = []

        def done() -> bool:
            status = self.status()
            seen, spool = status["sources"][source], status["spool"]
            looks.append(seen["received_bytes"])
            still = len(looks) > _QUIET_LOOKS and len(set(looks[-_QUIET_LOOKS:])) == 1
            return still and seen["taken_bytes"] == seen["received_bytes"] and spool["committed"] >= spool["decoded"] == spool["end"]  # fmt: skip

        until(done, "all that came to be committed", LONGEST_SECONDS, 2 * _POLL_SECONDS)


@contextmanager
def daemon(home: Path, sources: str = SOCKETS, more: str = "") -> Iterator[Daemon]:
    """Run a daemon on a new store in a directory."""
    home.mkdir(parents=True, exist_ok=True)
    collector = Collector(home, sources=sources, more=more, executable=True)
    try:
        yield Daemon(collector.start())
        # Stop the daemon in order. If it is killed, its upkeep may go on and write while the directory is removed
        collector.stop()
    finally:
        collector.end()
