"""A daemon that was killed listens and receives again before it has decoded what its spool holds."""

from __future__ import annotations

import socket
import sys
import threading

import pytest
import trio
from msgspec import structs

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tailrace.ingest.machine import Ingest
from tests import toml
from tests.ingest.log import heph_event
from tests.program import COMMAND
from tests.sources.recorder import until as taken_in
from tests.system.collector import SOURCES, until

KEEP = toml.section("spool", checkpoint_interval="10 min", checkpoint_bytes="1 GiB")
"""No decoder state is saved: the next life decodes all of the spool."""

NEVER = toml.section(
    "store", commit_interval="10 min", commit_rows=100000000, commit_bytes="100 GiB"
)

OLD, NEW = 50_000, 200
PIECE = 1000
"""Events that are sent at a time, so that the spool has many entries of them."""


@pytest.fixture
def slow_decoding(monkeypatch):
    """Let an entry take 20 ms to decode, however fast the machine is and whatever decodes. Return an event;
    once it is set, decoding takes the time that it takes."""
    steps = Ingest.steps
    over = threading.Event()

    def slowly(ingest, entry):
        over.wait(0.02)
        return steps(ingest, entry)

    monkeypatch.setattr(Ingest, "steps", slowly)
    return over


def _send_old(collector):
    """Send OLD events over TCP, and wait for each piece until it is counted: an entry holds no more than a piece then,
    however busy the machine is."""

    def seen(events):
        return collector.status()["sources"]["tcp"]["seen_events"] == events

    with socket.create_connection(collector.address("tcp")) as sock:
        for begin in range(0, OLD, PIECE):
            sock.sendall(b"".join(heph_event(1, n) for n in range(begin, begin + PIECE)))
            until(lambda end=begin + PIECE: seen(end), "a piece of the stream")


def _killed(collectors, more):
    """A collector that was killed with OLD events over TCP and one over UDP in its spool."""
    collector = collectors(more=more).start()
    _send_old(collector)
    return collector


def _spans(collector):
    rows = [row for row in collector.rows(["source", "seq", "kind"]) if row["kind"] == "span"]
    return sorted((row["source"], row["seq"]) for row in rows)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "uncommitted"])
def test_a_killed_daemon_receives_while_it_decodes_what_it_had(
    collectors, committed, slow_decoding
):
    """Whether the table has the rows of the old entries or lacks them, all events are stored once,
    and a datagram peer goes on with the session that it had."""
    collector = _killed(collectors, KEEP if committed else KEEP + NEVER)
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    peer.sendto(heph_event(7, 0), collector.address("udp"))
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 1, "the datagram")
    if committed:
        collector.settle()
    collector.kill()

    found = {}
    loaded = load(
        collector.config, environ={}, flags={"store": str(collector.store)}, formats=transports
    )
    with collecting(loaded, SystemClock()) as daemon:
        left, sources = daemon.spool.durable, daemon.sources

        def started():
            found["behind"] = left - daemon.ingest.position
            found["replayed"] = daemon.replayed.is_set()
            addresses = {name: sources[name].address.rpartition(":") for name in ("udp", "tcp")}
            udp, tcp = (("127.0.0.1", int(addresses[name][2])) for name in ("udp", "tcp"))
            for n in range(1, NEW):
                peer.sendto(heph_event(7, n), udp)
            with socket.create_connection(tcp) as sock:
                sock.sendall(b"".join(heph_event(2, n) for n in range(NEW)))

        async def main():
            stop = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: daemon.run(stop, started=started))
                await taken_in(lambda: found and sources["udp"].figures().bytes)
                await taken_in(lambda: sources["tcp"].figures().bytes)
                found["taken in by"] = daemon.ingest.position
                slow_decoding.set()
                stop.set()

        trio.run(main)
        assert daemon.ingest.account("tcp").missing == daemon.ingest.account("udp").missing == 0
    peer.close()
    assert found["behind"] > 0, "the sources started before the old entries were decoded"
    assert found["replayed"] is (not committed), "there is nothing in the table to catch up with"
    assert found["taken in by"] < left, "and took in meanwhile"
    assert _spans(collector) == sorted(
        [("udp", n) for n in range(NEW)]
        + [("tcp", n) for n in range(OLD)]
        + [("tcp", n) for n in range(NEW)]
    )
    assert len({r["session"] for r in collector.rows() if r["source"] == "udp"}) == 1


def test_who_asks_how_it_is_hears_of_nothing_less_than_the_table_has(collectors):
    """Otherwise a counter would seem to have begun anew."""
    collector = _killed(collectors, KEEP)
    collector.settle()
    before = collector.status()
    collector.kill()
    collector.start()
    now = collector.status()
    assert now["spool"]["decoded"] >= before["spool"]["committed"]
    assert now["sources"]["tcp"]["seen_events"] == OLD
    assert now["sources"]["tcp"]["rows"] >= before["sources"]["tcp"]["rows"]


SLOW_TO_LOAD = """
import sys, time
from pathlib import Path

class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "trio":
            Path({reached!r}).touch()
            while not Path({go!r}).exists():
                time.sleep(0.005)

sys.meta_path.insert(0, Waiting())

from tailrace.cli import main
main()
"""


def _free(kind):
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_a_daemon_has_its_sockets_while_it_is_still_being_loaded(collectors, tmp_path):
    reached, go = tmp_path / "reached", tmp_path / "go"
    udp, tcp = _free(socket.SOCK_DGRAM), _free(socket.SOCK_STREAM)
    sources = "".join(
        toml.source(kind, kind, listen=f"127.0.0.1:{port}")
        for kind, port in (("udp", udp), ("tcp", tcp))
    )
    collector = collectors(sources=sources)
    slow = SLOW_TO_LOAD.format(reached=str(reached), go=str(go))
    arguments = collector.command()[len(COMMAND) :]
    collector.command = lambda: [sys.executable, "-c", slow, *arguments]
    collector.start(wait=False)
    until(reached.exists, "the daemon to begin to load")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", udp))
        for n in range(50):
            sock.send(heph_event(1, n))
    with socket.create_connection(("127.0.0.1", tcp)) as sock:
        sock.sendall(b"".join(heph_event(1, n) for n in range(50)))
    go.touch()
    collector.wait_ready()
    for name in ("udp", "tcp"):
        until(lambda n=name: collector.status()["sources"][n]["seen_events"] == 50, name)
        assert collector.status()["sources"][name]["missing_events"] == 0
    collector.stop()
    assert _spans(collector) == sorted((kind, n) for kind in ("udp", "tcp") for n in range(50))


def test_files_of_a_source_that_comes_back_by_a_reload_are_read_to_their_end(
    collectors, tmp_path, slow_decoding
):
    """One session: the source waits for the log to be decoded as far as the session lost its former source."""
    path = tmp_path / "file.heph"
    path.write_bytes(b"".join(heph_event(3, n) for n in range(10)))
    files = toml.source("files", "tail", paths=[path])
    collector = collectors(more=KEEP + NEVER, sources=SOURCES + files).start()
    until(lambda: collector.status()["sources"]["files"]["seen_events"] == 10, "the file")
    _send_old(collector)
    collector.kill()
    with path.open("ab") as file:
        file.write(b"".join(heph_event(3, n) for n in range(10, 20)))

    again = load(
        collector.config, environ={}, flags={"store": str(collector.store)}, formats=transports
    )
    others = {name: s for name, s in again.config.sources.items() if name != "files"}
    without = again._replace(config=structs.replace(again.config, sources=others))
    behind = []
    with collecting(without, SystemClock()) as daemon:
        left = daemon.spool.durable

        async def main():
            stop = trio.Event()

            async def beside(receiving):
                await receiving.replace(again.config, put=lambda: daemon.current.put(again))
                behind.append(left - daemon.ingest.position)
                slow_decoding.set()
                await taken_in(lambda: daemon.sources["files"].figures().bytes)
                await taken_in(lambda: daemon.ingest.position == daemon.spool.end)
                stop.set()

            await daemon.run(stop, started=lambda: None, beside=beside)

        trio.run(main)
    assert behind[0] > 0
    sessions = {row["session"]: [] for row in collector.rows() if row["source"] == "files"}
    for row in collector.rows():
        if row["source"] == "files" and row["kind"] == "span":
            sessions[row["session"]].append(row["seq"])
    assert [sorted(seqs) for seqs in sessions.values()] == [[*range(20)]]
