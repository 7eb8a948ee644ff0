"""A bad network between producers and the real daemon: its book and the table agree, to the event."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import defaultdict

import pytest
import trio

import tailrace_client
from tests import toml
from tests.ingest.test_network import compare_reasons, compare_rows
from tests.system.collector import until
from tests.traffic.mangler import DROPPED, DUPLICATED, Chances
from tests.traffic.network import Network
from tests.traffic.relay import Cutter, open_relay

IMPATIENT = toml.section("ledger", reorder_time="400 ms")


def settled(collector, received):
    """Wait until all bytes sent are decoded, and the collector waits for nothing late any more."""

    def look():
        # Datagrams that came together are received at once and decoded in steps.
        source = collector.status()["sources"]["udp"]
        undecoded = source["pending_bytes"] or source["open_windows"]
        return source["received_bytes"] == received and not undecoded

    until(look, "all that was sent, and the windows to close")


def hold_against(collector, networks):
    """Let all networks send at the same time, each from a socket of its own, and pause together."""
    with contextlib.ExitStack() as stack:
        courses, ports, sent = {}, {}, 0
        for network in networks:
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.connect(collector.address("udp"))
            courses[sock] = network.course()
            ports[sock.getsockname()[1]] = network
        while courses:
            for sock, course in list(courses.items()):
                for leaving in course:
                    if leaving is None:
                        break
                    for datagram in leaving:
                        sent += sock.send(datagram)
                else:
                    del courses[sock]
            settled(collector, sent)
    status = collector.status()["sources"]["udp"]
    assert status["kernel_drops"] == 0
    books = [network.book for network in networks]
    missing = sum(len(book.missing) for book in books)
    assert status["missing_events"] == missing
    assert sum(status["gap_events"].values()) - sum(status["heal_events"].values()) == missing
    assert status["duplicate_events"] == sum(book.copies.total() for book in books)
    assert status["restarts"] == sum(network.runs - 1 for network in networks)
    collector.settle()
    collector.stop()
    rows = defaultdict(list)
    peers = {}
    for row in collector.rows():
        session = row["session"].partition(".")[0]
        rows[session].append(row)
        if row["kind"] == "session" and row["name"] == "open":
            peers[int(json.loads(row["attributes"])["peer"].rpartition(":")[2])] = session
    for port, network in ports.items():
        compare = compare_reasons if network.book.discarded else compare_rows
        compare(network, rows[peers[port]], timely=False)


def network_of(seed):
    return Network(seed, epochs=seed % 3 != 1, announced=seed % 3 == 2)


def test_raw_producers_that_begin_anew(collector_of):
    collector = collector_of(more=IMPATIENT)
    hold_against(collector, [network_of(seed) for seed in range(1000, 1006)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2000, 2030])
def test_more_raw_producers_that_begin_anew(collector_of, seed):
    collector = collector_of(more=IMPATIENT)
    hold_against(collector, [network_of(seed + n) for n in range(30)])


def emit(address, events):
    """A program that uses the client, from beginning to end."""
    emitter = tailrace_client.Emitter(f"udp://{address[0]}:{address[1]}", acknowledge=False)
    for number in range(events):
        emitter.use_stream(number % 3)
        emitter.event("event", number=number, text="x" * (number % 200))
        if number % 50 == 0:
            emitter.flush(5)
    assert emitter.close(20)
    assert not any(emitter.discarded.values())


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_client_behind_a_lossy_relay(collectors, seed):
    await check_client(collectors, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 203))
async def test_it_is_so_for_two_hundred_seeds(collectors, seed):
    await check_client(collectors, seed)


async def check_client(collectors, seed):
    """Each program has a socket of its own, so its end is the only thing that cannot be known, and
    it is where its goodbye comes through."""
    collector = collectors(more=IMPATIENT).start()
    chances = Chances(drop=0.08, duplicate=0.08, reorder=0.15, delay=0.03, delay_depth=15)
    async with open_relay(collector.address("udp"), seed, chances) as relay:
        await trio.to_thread.run_sync(emit, relay.address, 3000)
        dropped, duplicated = relay.counters(DROPPED), relay.counters(DUPLICATED)
    await trio.to_thread.run_sync(collector.settle)
    await trio.to_thread.run_sync(collector.stop)
    rows = collector.rows()
    stored, named = defaultdict(list), defaultdict(set)
    for row in rows:
        if row["kind"] == "span":
            stored[int(row["stream"])].append(row["seq"])
        elif row["kind"] == "gap":
            count = json.loads(row["attributes"])["count"]
            named[int(row["stream"])].update(range(row["seq"], row["seq"] + count))
    assert (
        sum(map(len, dropped.values())) > 10
    )  # fewer datagrams, with more events in each, on a busy machine
    said_goodbye = any(row["name"] == "tailrace.goodbye" for row in rows)
    for stream, numbers in stored.items():
        lost = set(dropped.get(stream, []))
        assert sorted(numbers) == [n for n in range(1000) if n not in lost]
        assert named[stream] - set(numbers) == {n for n in lost if said_goodbye or n < max(numbers)}
    events = sum(map(len, duplicated.values()))
    assert f"{events} of them duplicates" in collector.log()


@pytest.mark.parametrize("bounds", [(2_000, 4_000), (2_000, 120_000)], ids=str)
def test_a_client_whose_connections_are_cut_again_and_again_delivers_all(collector_of, bounds):
    """From the first connection on: no answer comes before it is cut."""
    collector = collector_of()
    relay = Cutter(collector.address("tcp"), 1, bounds)
    relay.start()
    with contextlib.closing(relay):
        clients = [tailrace_client.Emitter("tcp://{}:{}".format(*relay.address)) for _ in range(3)]
        for client in clients:
            for number in range(3_000):
                client.event("x" * 40, n=number)
        assert [client.close(120.0) for client in clients] == [True, True, True]
    assert relay.cuts > 3
    status = collector.status()["sources"]["tcp"]
    assert (status["expected_events"], status["missing_events"]) == (9_000, 0)
