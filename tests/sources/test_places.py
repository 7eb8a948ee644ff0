"""Sockets that are bound before the daemon is loaded, and what waits there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import trio

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tailrace.sources.listening import hold
from tests.ingest.log import heph_event
from tests.sources.recorder import until
from tests.system.collector import SOURCES
from tests.system.test_udp_buffer import TINY


def _loaded(directory, sources):
    file = directory / "tailrace.toml"
    file.write_text(f'[admin]\nlisten = "127.0.0.1:0"\n{sources}')
    return load(file, environ={}, flags={"store": str(directory / "store")}, formats=transports)


def _seen(daemon, name):
    return daemon.ingest.account(name).seen


def _run(daemon, condition):
    """Run a daemon until a condition is true, and end it in order."""

    async def main():
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: daemon.run(stop, started=lambda: None))
            await condition()
            stop.set()

    trio.run(main)


def _address(held, protocol, name):
    return held[protocol, "127.0.0.1", 0, name].open().getsockname()


def test_what_is_sent_before_there_is_a_daemon_is_taken_in_by_it(tmp_path):
    loaded = _loaded(tmp_path, SOURCES)
    held = hold(loaded.config, SystemClock())
    events = [heph_event(1, n) for n in range(100)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for event in events:
            sock.sendto(event, _address(held, "udp", "udp"))
    for _ in range(3):
        with socket.create_connection(_address(held, "tcp", "tcp")) as sock:
            sock.sendall(b"".join(events))
    with collecting(loaded, SystemClock(), held=held) as daemon:

        async def all_is_decoded():
            await until(lambda: _seen(daemon, "udp") == 100 and _seen(daemon, "tcp") == 300)

        _run(daemon, all_is_decoded)
        assert daemon.ingest.account("udp").missing == daemon.ingest.account("tcp").missing == 0
        assert daemon.ingest.tally("tcp").opened == 3


def test_what_the_kernel_drops_before_there_is_a_daemon_is_counted_and_named(tmp_path):
    loaded = _loaded(tmp_path, TINY)
    held = hold(loaded.config, SystemClock())
    address = _address(held, "udp", "udp")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for n in range(1000):
            sock.sendto(heph_event(1, n), address)

        async def the_hole_is_named():
            await until(lambda: _seen(daemon, "udp"))
            # The number of one more event shows how many are missing before it.
            sock.sendto(heph_event(1, 1000), address)
            await until(lambda: daemon.ingest.tally("udp").gaps)

        with collecting(loaded, SystemClock(), held=held) as daemon:
            _run(daemon, the_hole_is_named)
    account, drops = daemon.ingest.account("udp"), daemon.ingest.common("udp").drops
    assert account.missing == 1001 - account.seen > 0
    assert daemon.ingest.tally("udp").gaps == {"kernel": account.missing}
    assert drops.state.dropped == account.missing
    assert drops.unassigned == 0


def test_an_address_that_cannot_be_had_is_left_to_the_source_to_say(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one = SOURCES.replace("127.0.0.1:0", f"127.0.0.1:{port}", 2)
        held = hold(_loaded(tmp_path, one).config, SystemClock())
    assert [place[0] for place in held] == ["udp", "tcp"]
    assert ("tcp", "127.0.0.1", port, "") not in held
    for listening in held.values():
        listening.close()


def test_the_sockets_come_before_everything_that_takes_long_to_load():
    found = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=os.environ
    )
    heavy = {"trio", "deltalake", "pyarrow", "arro3", "duckdb", "prometheus_client", "ssl"}
    assert heavy & set(json.loads(found.stdout)) == set()


LOADED = """
import json, sys
import tailrace.cli.serve
print(json.dumps([*sys.modules]))
"""
