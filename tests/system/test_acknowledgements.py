"""Clients are told only of what is durable, over every transport, by a real daemon."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import time

import pytest

from tailrace.clock import SystemClock
from tests.ingest.log import heph_epoch, heph_event
from tests.system.announcing import Client, connected
from tests.system.collector import Collector, until
from tests.system.producers import free_ports

TRANSPORTS = ["udp", "tcp", "unix"]


def sources(directory):
    """One of each transport, at addresses that stay over restarts."""
    places = {
        "udp": f"127.0.0.1:{free_ports(socket.SOCK_DGRAM, 1)[0]}",
        "tcp": f"127.0.0.1:{free_ports(socket.SOCK_STREAM, 1)[0]}",
        "unix": directory / "heph.sock",
    }
    return "".join(
        f'[sources.{name}]\ntype = "{name}"\nformat = "heph"\nlisten = "{place}"\n'
        for name, place in places.items()
    )


@pytest.fixture
def own(collectors, tmp_path):
    """A started collector, to be killed and stopped."""
    return collectors(sources=sources(tmp_path)).start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A started collector for all tests that leave it in peace."""
    directory = tmp_path_factory.mktemp("shared")
    collector = Collector(directory, sources=sources(directory)).start()
    yield collector
    collector.check_balance()
    collector.stop()
    collector.check_final_ledgers()
    collector.end()


class Since:
    """A source's figures since now; the sessions of a test are of none before it."""

    def __init__(self, collector, source):
        self._look = lambda: collector.status()["sources"][source]
        self._before = self._look()

    def __getitem__(self, name):
        return self._look()[name] - self._before[name]

    def acknowledgements(self, outcome):
        before = self._before["acknowledgements"].get(outcome, 0)
        return self._look()["acknowledgements"].get(outcome, 0) - before


def stored(collector):
    """The numbers in the table, by stream."""
    found = {}
    for row in collector.rows(["kind", "stream", "seq"]):
        if row["kind"] == "span":
            found.setdefault(int(row["stream"]), []).append(row["seq"])
    return found


@pytest.mark.parametrize("source", TRANSPORTS)
def test_a_client_is_told_of_all_it_sent_and_of_its_goodbye(shared, source):
    since = Since(shared, source)
    with Client(shared, source) as client:
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
    assert since.acknowledgements("sent") == len(client.answers)
    text = shared.get("/metrics")[1]
    assert f'tailrace_source_acknowledgements_total{{outcome="sent",source="{source}"}} ' in text


def test_what_was_acknowledged_is_in_the_table_after_a_kill(own):
    """Killed in the middle of it, twice, each time right after an answer to somebody."""
    rng = random.Random(5)
    clients = {}
    for life in range(2):
        with contextlib.ExitStack() as stack:
            now = {
                10 * life + number: stack.enter_context(Client(own, source))
                for number, source in enumerate(TRANSPORTS)
            }
            for client in now.values():
                client.announce()
            answers = rng.randrange(5, 40)
            while answers > 0 or not all(client.told for client in now.values()):
                for stream, client in now.items():
                    client.emit(rng.randrange(1, 20), stream)
                    answers -= client.hear()
            own.kill()
            for client in now.values():
                client.hear()
        clients |= now
        own.start()
    own.settle()
    found = stored(own)
    for stream, client in clients.items():
        assert client.told[stream] > 0
        assert len(found[stream]) == len(set(found[stream]))
        assert set(found[stream]) >= set(range(client.told[stream]))
    own.stop()


def test_a_client_that_sends_little_is_told_when_it_has_sent_enough(shared):
    """Over UDP: an answer is larger than an event, and never is more sent than came."""
    since = Since(shared, "udp")
    with Client(shared, "udp") as client:
        client.announce()
        for _ in range(30):
            client.emit(1)
            client.hear(0.05)
            assert client.heard <= client.sent
        assert client.told[1] > 20
        assert client.turn == 1
    until(lambda: since["seen_events"] == 30, "the last events: the next test counts, too")


@pytest.mark.parametrize("source", TRANSPORTS)
def test_who_did_not_ask_never_receives_a_byte(shared, source):
    since = Since(shared, source)
    with (
        connected(shared, source) as silent,
        Client(shared, source, acknowledge=False) as known,
        Client(shared, source) as asking,
    ):
        known.announce()
        asking.announce()
        silent.send(heph_epoch(SystemClock().wall_ns()))
        for n in range(20):
            silent.send(heph_event(1, n))
            known.emit(1)
            asking.emit(1)
        asking.hear_until(lambda: asking.told == {1: 20}, "the events of the one that asks")
        until(lambda: since["seen_events"] == 60, "all events")
        asking.announce()
        asking.hear_until(lambda: asking.answers[-1]["turn"] == 1, "a later answer")
        for sock in (silent, known.sock):
            sock.settimeout(0)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


@pytest.mark.parametrize("source", ["tcp", "unix"])
def test_a_client_that_does_not_read_is_taken_in_and_told_when_it_does(shared, source):
    since = Since(shared, source)
    with (
        Client(shared, source, receive_buffer=4096) as client,
        Client(shared, source) as other,
    ):
        client.announce()
        other.announce()
        sent = []

        def stuffed():
            client.emit_each(range(1000, 1190))
            assert not since.acknowledgements("unread")
            sent.append(since.acknowledgements("sent"))
            return len(sent) > 20 and sent[-1] == sent[-10] > 0

        until(stuffed, "an end of the answers to it", pause=0.05)
        other.emit(5)
        other.hear_until(lambda: other.told == {1: 5}, "the other's answer")
        client.hear_until(lambda: client.told == client.next, "all that it was not told before")
    assert since["seen_events"] == 5 + sum(client.next.values())
    assert since["missing_events"] == 0


@pytest.mark.parametrize("source", ["udp", "tcp"])
def test_a_session_of_very_many_streams_is_told_of_each(shared, source):
    with Client(shared, source) as client:
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


def test_no_address_gets_more_bytes_than_came_from_it(own):
    """A session with very many streams, whose state is many times larger than the question for it."""
    with Client(own, "udp") as client:
        client.announce()
        for stream in range(1000, 2000, 20):
            client.emit_each(range(stream, stream + 20))
        client.hear_until(lambda: len(client.told) == 1000, "the answer about all streams")
        client.hear_all()
        assert client.heard <= client.sent
        own.kill()
        own.start()
        client.sent = client.heard = 0
        for _ in range(3):
            client.announce()
            client.hear_all()
            assert client.heard <= client.sent
        outcomes = own.status()["sources"]["udp"]["acknowledgements"]
        assert outcomes["excess"] > 0


def test_a_flood_of_announcements_from_many_addresses_is_no_amplifier(shared):
    since = Since(shared, "udp")
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(Client(shared, "udp"))
        honest.announce()
        forged = [stack.enter_context(Client(shared, "udp")) for _ in range(300)]
        for client in forged:
            client.announce()
            client.emit(1)
        honest.emit(50)
        honest.hear_until(lambda: honest.told == {1: 50}, "the honest one's answer")
        until(lambda: since["seen_events"] == 350, "all events")
        time.sleep(0.3)
        for client in forged:
            client.hear()
            assert client.heard <= client.sent


@pytest.mark.parametrize("source", ["tcp", "unix"])
def test_two_hundred_connections_are_each_told_of_their_own(shared, source):
    since = Since(shared, source)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(shared, source)) for _ in range(200)]
        for number, client in enumerate(clients):
            client.announce()
            client.emit(1 + number, stream=number)
        for number, client in enumerate(clients):
            client.hear_until(lambda n=number, c=client: c.told == {n: 1 + n}, "its own events")
    assert since["seen_events"] == sum(range(1, 201))
    assert since["missing_events"] == 0


def test_what_came_in_before_a_stop_is_acknowledged(own):
    with contextlib.ExitStack() as stack:
        clients = {source: stack.enter_context(Client(own, source)) for source in TRANSPORTS}
        for client in clients.values():
            client.announce()
            client.emit(100)

        def taken():
            figures = own.status()["sources"]
            return all(figures[source]["taken_bytes"] == c.sent for source, c in clients.items())

        until(taken, "the events", pause=0.001)
        own.process.send_signal(signal.SIGTERM)
        for client in clients.values():
            client.hear_until(lambda c=client: c.told == {1: 100}, "the last answer")
        own.process.wait(timeout=120)
    assert sorted(stored(own)[1]) == sorted(3 * [*range(100)])


def test_the_file_of_a_unix_socket_outlives_a_kill_and_not_a_stop(own, tmp_path):
    path = tmp_path / "heph.sock"
    assert own.ports["sources"]["unix"] == f"unix://{path}"
    own.kill()
    assert path.is_socket()
    own.start()
    with Client(own, "unix") as client:
        client.emit(3)
    until(lambda: own.status()["sources"]["unix"]["sessions_closed"] == 1, "the session")
    own.settle()
    answer = own.cli("query", "SELECT DISTINCT peer FROM sessions", "--json").stdout
    assert json.loads(answer)["peer"].startswith("unix:uid=")
    own.stop()
    assert not path.exists()


@pytest.mark.parametrize("pause", [0.2, 2.5], ids=["at once", "after a silence"])
def test_a_second_life_at_an_address_is_told_of_nothing_but_its_own_events(own, pause):
    """The first life's only announcement was lost, and the second's comes in a datagram of its own."""
    first = [heph_event(1, n, start=1000 * n) for n in range(64)]
    second = [heph_event(1, n, start=7000 * n + 1) for n in range(3000)]
    with Client(own, "udp") as client:
        for datagram in first:
            client.sock.send(datagram)
        until(lambda: own.status()["sources"]["udp"]["seen_events"] == 64, "the first life")
        time.sleep(pause)  # the distance between two lives is what the case is about
        client.announce()
        client.hear_until(lambda: client.answers, "the answer to the announcement")
        assert client.answers[0]["streams"] == {}
        for begin in range(0, 3000, 100):
            client.next[1] = begin + 100
            for datagram in second[begin : begin + 100]:
                client.sock.send(datagram)
            until(
                lambda begin=begin: own.status()["sources"]["udp"]["seen_events"] == 164 + begin,
                "the next hundred",
            )
            client.hear()
        client.hear_until(lambda: client.told == {1: 3000}, "all events of the second life")
    own.stop()
    rows = own.rows(["kind", "session", "seq"])
    found = {}
    for row in rows:
        if row["kind"] == "span":
            found.setdefault(row["session"], []).append(row["seq"])
    assert sorted(map(sorted, found.values())) == [list(range(64)), list(range(3000))]
    assert [row for row in rows if row["kind"] == "gap" and row["seq"] is not None] == []
