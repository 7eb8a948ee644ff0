"""Send everything that metrics count, in rounds: every type of source and every format; losses, late events,
duplicates, restarts, refusals, noise, damaged and unusual records.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

from tests import toml
from tests.ingest.log import heph_epoch, heph_event
from tests.system.collector import Collector

VECTORS = Path(__file__).parents[1] / "vectors"

FILES = {
    "heph": "a.trace",
    "jets": "a.jets",
    "ovni": "ovni/loom.a/proc.1/thread.1/stream.obs",
    "dftracer": "a.pfw",
    "et3": "trace",
}
"""By format, the name of a file of it below the directory of a round."""

CONFIGURATION = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"

[sources.udp_jets]
type = "udp"
format = "jets"
listen = "127.0.0.1:0"

[sources.tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"

[sources.jets]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
garbage_max = "1 KiB"

[sources.unix]
type = "unix"
format = "heph"
listen = "{directory}/socket"
"""
TAIL = """
[sources.files_{format}]
type = "tail"
format = "{format}"
paths = ["{directory}/{format}"]
"""


MORE = toml.section("ledger", reorder_time="0.2 s") + toml.section("heartbeat", interval="3 s")


class Load:
    """A daemon and the data that is sent to it. The daemon is ended by its pid."""

    def __init__(self, directory: Path, more=MORE):
        self.directory = directory
        sources = CONFIGURATION.format(directory=directory)
        for format_ in FILES:
            (directory / format_).mkdir()
            sources += TAIL.format(format=format_, directory=directory)
        self.collector = Collector(directory, sources=sources, more=more)
        self.round = 0
        self._vectors = {
            format_: sorted(p for p in (VECTORS / format_).glob("*.in") if p.stat().st_size)
            for format_ in FILES
        }

    def __enter__(self):
        self.collector.start()
        self.connect()
        return self

    def __exit__(self, *_):
        self.disconnect()
        self.collector.end()

    def connect(self):
        address = self.collector.address
        self.open = contextlib.ExitStack()
        self.udp = self.open.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        self.udp.connect(address("udp"))
        self.udp_jets = self.open.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        self.udp_jets.connect(address("udp_jets"))
        self.tcp = self.open.enter_context(socket.create_connection(address("tcp")))
        self.tcp.sendall(heph_epoch(10**18))
        self.unix = self.open.enter_context(socket.socket(socket.AF_UNIX))
        self.unix.connect(str(self.directory / "socket"))

    def disconnect(self):
        self.open.close()

    def send(self):
        """Send another round.

        Each source gets 20 events: one is missing and comes in the next round, and one comes twice. Also send noise,
        a run that begins again, and some vectors of every format.
        """
        first = 20 * self.round
        numbers = [*range(first, first + 9), *range(first + 10, first + 20), first + 19, first - 11]
        events = [heph_event(1, n, start=1000 + n) for n in numbers if n >= 0]
        for event in events:
            self.udp.send(event)
        self.tcp.sendall(b"".join(events) + b"noise" * 20)
        self.unix.sendall(b"".join(events))
        restarted = heph_epoch(10**18 + self.round) + heph_event(1, 0, start=1)
        again = heph_epoch(10**18 - self.round - 1) + heph_event(1, 0, start=1)
        self._connection("tcp", restarted + again)
        with socket.create_connection(self.collector.address("jets"), timeout=30) as stranger:
            stranger.sendall(b"no JSON\n" * 1000)
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""  # The collector has closed the connection.
        for format_, vectors in self._vectors.items():
            for number in range(3 * self.round, 3 * self.round + 3):
                self._vector(format_, vectors[number % len(vectors)], number)
        self.round += 1

    def _vector(self, format_, path, number):
        """Write a vector to a file. If its format can be sent over the network, send it, too."""
        place = self.directory / format_ / str(number) / FILES[format_]
        place.parent.mkdir(parents=True)
        shutil.copy(path, place)
        data = path.read_bytes()
        if format_ == "heph":
            self._connection("tcp", data)
        elif format_ == "jets":
            self._connection("jets", data)
            for line in data.splitlines(keepends=True):
                self.udp_jets.send(line[:60_000])

    def _connection(self, source, data):
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(self.collector.address(source)) as sock,
        ):
            sock.sendall(data)
