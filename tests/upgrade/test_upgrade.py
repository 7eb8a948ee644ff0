"""Stores of earlier versions, stopped in order or killed in their work, as today's version finds them.

What they were fed is known to the byte (`feeding`), so that the table is held against that and not
against what any version made of it. See tests/vectors/upgrade/README.md.
"""

from __future__ import annotations

import json
import socket
from collections import Counter

import pytest
from deltalake import DeltaTable

from tailrace.store.schema import SCHEMA_VERSION, version_of
from tests.upgrade import feeding
from tests.upgrade.make import CLIENTS, FILES, TAILS
from tests.upgrade.stored import NAMES, unpack

SOURCES = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
idle_timeout = "36500 d"
[sources.tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
[sources.jets]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
"""

TAIL_SOURCES = {"simulator": "run.jets", "io": "trace.pfw.gz", "hpc": "ovni"}

COLUMNS = (
    "substream", "seq", "kind", "name", "category", "id", "parent", "start", "end", "attributes",
    "offset",
)  # fmt: skip


@pytest.fixture(params=NAMES)
def stored(request, tmp_path):
    stored = unpack(request.param, tmp_path)
    yield stored
    stored.peer.close()


@pytest.fixture
def upgraded(stored, collectors):
    """A collector of today on the stored store, not started."""
    more = TAILS.format(files=stored.files) if stored.files.exists() else ""
    collector = collectors(sources=SOURCES + CLIENTS + more)
    collector.store = stored.store
    return collector


def send_the_rest(collector, stored):
    host_port = {name: collector.address(name) for name in ("udp", "tcp", "clients")}
    for datagram in feeding.udp().rest:
        stored.peer.sendto(datagram, host_port["udp"])
    for name, parts in (("tcp", feeding.tcp()), ("clients", feeding.announced())):
        with socket.create_connection(host_port[name]) as sock:
            sock.sendall(b"".join(parts.rest))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
    if stored.files.exists():
        for name, parts in FILES.items():
            whole = parts().whole
            with (stored.files / name).open("ab") as file:
                # Of one that was killed, not all of `after` was written when it was.
                file.write(whole[file.tell() :])


def numbers(rows, source, stream):
    return sorted(
        row["seq"]
        for row in rows
        if (row["source"], row["stream"], row["kind"]) == (source, stream, "span")
    )


def missing(rows, source):
    """The numbers that gap rows name and heal rows do not take back, by stream."""
    found = Counter()
    for row in rows:
        if row["source"] == source and row["kind"] in {"gap", "heal"}:
            assert row["seq"] is not None, row
            count = json.loads(row["attributes"])["count"]
            sign = 1 if row["kind"] == "gap" else -1
            for n in range(row["seq"], row["seq"] + count):
                found[row["stream"], n] += sign
    return {number for number, times in found.items() if times}


def test_an_older_store_is_taken_over_and_goes_on(stored, upgraded, collectors):
    upgraded.start()
    assert version_of(DeltaTable(str(stored.store / "events"))) == SCHEMA_VERSION
    send_the_rest(upgraded, stored)
    upgraded.settle()
    upgraded.stop()
    upgraded.start()
    upgraded.settle()
    assert upgraded.cli("upkeep").returncode == 0
    upgraded.stop()

    rows = upgraded.rows()
    assert numbers(rows, "udp", "1") == sorted(set(range(300)) - feeding.UDP_NEVER)
    assert numbers(rows, "tcp", "2") == list(range(100))
    assert numbers(rows, "tcp", "3") == list(range(50))
    assert missing(rows, "udp") == {("1", n) for n in feeding.UDP_NEVER}
    assert missing(rows, "tcp") == set()
    jets = [row for row in rows if row["source"] == "jets"]
    assert Counter(row["kind"] for row in jets)["span"] == 10
    assert Counter(row["kind"] for row in jets)["begin"] == 20
