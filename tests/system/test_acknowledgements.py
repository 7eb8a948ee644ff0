"""What clients are told is durable, over every transport, by a real daemon."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import time

import pytest

from tests.ingest.log import heph_event
from tests.system.announcing import Client, connected
from tests.system.collector import until
from tests.system.producers import free_ports

TRANSPORTS = ["udp", "tcp", "unix"]


@pytest.fixture
def listening(collectors, tmp_path):
    """A function that makes a collector with a source of each transport, and starts it."""

    def make():
        sources = "".join(
            f'[sources.{name}]\ntype = "{name}"\nformat = "heph"\nlisten = "{place}"\n'
            for name, place in [
                ("udp", f"127.0.0.1:{free_ports(socket.SOCK_DGRAM, 1)[0]}"),
                ("tcp", "127.0.0.1:0"),
                ("unix", tmp_path / "heph.sock"),
            ]
        )
        return collectors(sources=sources).start()

    return make


def stored(collector):
    """The numbers in the table, by stream."""
    found = {}
    for row in collector.rows(["kind", "stream", "seq"]):
        if row["kind"] == "span":
            found.setdefault(int(row["stream"]), []).append(row["seq"])
    return found


@pytest.mark.parametrize("source", TRANSPORTS)
def test_a_client_is_told_of_all_it_sent_and_of_its_goodbye(listening, source):
    collector = listening()
    with Client(collector, source) as client:
        client.announce()
        client.hear_until(lambda: client.answers, "the answer to the announcement")
        assert client.answers[0]["turn"] == 0
        for part in range(10):
            client.emit(10)
            client.emit(7, stream=2 + part % 2)
        client.hear_until(lambda: client.told == {1: 100, 2: 35, 3: 35}, "all events")
        client.announce()
        client.hear_until(lambda: client.answers[-1]["turn"] == 1, "the next turn")
        client.goodbye()
        client.hear_until(lambda: client.answers[-1]["goodbye"], "the goodbye")
    collector.settle()
    counted = collector.status()["sources"][source]["acknowledgements"]
    assert counted == {"sent": len(client.answers)}
    text = collector.get("/metrics")[1]
    label = f'{{outcome="sent",source="{source}"}}'
    assert f"tailrace_source_acknowledgements_total{label} {len(client.answers)}.0" in text


@pytest.mark.parametrize("source", TRANSPORTS)
def test_what_was_acknowledged_is_in_the_table_after_a_kill(listening, source):
    """Killed in the middle of it, several times, each time right after an answer."""
    collector = listening()
    rng = random.Random(source)
    clients = []
    for _ in range(2):
        with Client(collector, source) as client:
            clients.append(client)
            stream = len(clients)
            client.announce()
            for _ in range(rng.randrange(2, 6)):
                before = client.told.get(stream, 0)
                while client.told.get(stream, 0) == before:
                    client.emit(rng.randrange(1, 20), stream)
                    client.hear(0.005)
            collector.kill()
            client.hear(0.01)
        collector.start()
    collector.settle()
    found = stored(collector)
    for stream, client in enumerate(clients, 1):
        assert client.told[stream] > 0
        assert len(found[stream]) == len(set(found[stream]))
        assert set(found[stream]) >= set(range(client.told[stream]))
    collector.stop()


@pytest.mark.parametrize("source", TRANSPORTS)
def test_who_did_not_ask_never_receives_a_byte(listening, source):
    collector = listening()
    with (
        connected(collector, source) as silent,
        Client(collector, source, acknowledge=False) as known,
        Client(collector, source) as asking,
    ):
        known.announce()
        asking.announce()
        for n in range(20):
            silent.send(heph_event(1, n))
            known.emit(1)
            asking.emit(1)
        asking.hear_until(lambda: asking.told == {1: 20}, "the events of the one that asks")
        until(lambda: collector.status()["sources"][source]["seen_events"] == 60, "all events")
        asking.announce()
        asking.hear_until(lambda: asking.answers[-1]["turn"] == 1, "a later answer")
        for sock in (silent, known.sock):
            sock.settimeout(0)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


@pytest.mark.parametrize("source", ["tcp", "unix"])
def test_a_client_that_does_not_read_is_taken_in_and_told_when_it_does(listening, source):
    collector = listening()
    with (
        Client(collector, source, receive_buffer=4096) as client,
        Client(collector, source) as other,
    ):
        client.announce()
        other.announce()
        sent = []

        def stuffed():
            client.emit_each(range(1000, 1190))
            counted = collector.status()["sources"][source]["acknowledgements"]
            assert counted.keys() <= {"sent"}
            sent.append(counted.get("sent", 0))
            return len(sent) > 20 and sent[-1] == sent[-10] > 0

        until(stuffed, "an end of the answers to it", pause=0.05)
        other.emit(5)
        other.hear_until(lambda: other.told == {1: 5}, "the other's answer")
        client.hear_until(lambda: client.told == client.next, "all that it was not told before")
    collector.settle()
    status = collector.status()["sources"][source]
    assert status["seen_events"] == 5 + sum(client.next.values())
    assert status["missing_events"] == 0


@pytest.mark.parametrize("source", TRANSPORTS)
def test_a_session_of_very_many_streams_is_told_of_each(listening, source):
    collector = listening()
    with Client(collector, source) as client:
        client.announce()
        for stream in range(0, 3000, 100):
            client.emit_each(range(stream, stream + 100))
            client.hear()
        client.hear_until(lambda: len(client.told) == 3000, "the answers about all streams")
        client.told = {}
        for _ in range(10):
            client.emit(500)
        client.announce()
        client.hear_until(lambda: client.told == client.next, "the whole state")


def test_no_address_gets_more_bytes_than_came_from_it(listening):
    """A session with very many streams, whose state is many times larger than the question for it."""
    collector = listening()
    with Client(collector, "udp") as client:
        client.announce()
        for stream in range(1000, 2000, 20):
            client.emit_each(range(stream, stream + 20))
        client.hear_until(lambda: len(client.told) == 1000, "the answer about all streams")
        client.hear_all()
        assert client.heard <= client.sent
        collector.kill()
        collector.start()
        client.sent = client.heard = 0
        for _ in range(5):
            client.announce()
            client.hear_all()
            assert client.heard <= client.sent
        outcomes = collector.status()["sources"]["udp"]["acknowledgements"]
        assert outcomes["excess"] > 0


def test_a_flood_of_announcements_from_many_addresses_is_no_amplifier(listening):
    collector = listening()
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(Client(collector, "udp"))
        honest.announce()
        forged = [stack.enter_context(Client(collector, "udp")) for _ in range(300)]
        for client in forged:
            client.announce()
            client.emit(1)
        honest.emit(50)
        honest.hear_until(lambda: honest.told == {1: 50}, "the honest one's answer")
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 350, "all events")
        time.sleep(0.3)
        for client in forged:
            client.hear()
            assert client.heard <= client.sent


@pytest.mark.parametrize("source", ["tcp", "unix"])
def test_two_hundred_connections_are_each_told_of_their_own(listening, source):
    collector = listening()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(collector, source)) for _ in range(200)]
        for number, client in enumerate(clients):
            client.announce()
            client.emit(1 + number, stream=number)
        for number, client in enumerate(clients):
            client.hear_until(lambda n=number, c=client: c.told == {n: 1 + n}, "its own events")
    status = collector.status()["sources"][source]
    assert status["seen_events"] == sum(range(1, 201))
    assert status["missing_events"] == 0


@pytest.mark.parametrize("source", TRANSPORTS)
def test_what_came_in_before_a_stop_is_acknowledged(listening, source):
    collector = listening()
    with Client(collector, source) as client:
        client.announce()
        client.emit(100)
        taken = lambda: collector.status()["sources"][source]["taken_bytes"]  # noqa: E731
        until(lambda: taken() == client.sent, "the events", pause=0.001)
        collector.process.send_signal(signal.SIGTERM)
        client.hear_until(lambda: client.told == {1: 100}, "the last answer")
        collector.process.wait(timeout=30)
    assert sorted(stored(collector)[1]) == [*range(100)]


def test_the_file_of_a_unix_socket_outlives_a_kill_and_not_a_stop(listening, tmp_path):
    collector = listening()
    path = tmp_path / "heph.sock"
    assert collector.ports["sources"]["unix"] == f"unix://{path}"
    collector.kill()
    assert path.is_socket()
    collector.start()
    with Client(collector, "unix") as client:
        client.emit(3)
    until(lambda: collector.status()["sources"]["unix"]["sessions_closed"] == 1, "the session")
    collector.settle()
    answer = collector.cli("query", "SELECT DISTINCT peer FROM sessions", "--json").stdout
    peer = json.loads(answer)["peer"]
    assert peer.startswith("unix:uid=")
    collector.stop()
    assert not path.exists()
