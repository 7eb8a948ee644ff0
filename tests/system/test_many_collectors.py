"""Several real collectors on one local store: each under its own name, and every question asks all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack

import pytest
from deltalake import DeltaTable

import tailrace
from tailrace.store.log import Journal
from tailrace.store.verify import verify
from tests import program, toml
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until
from tests.system.producers import free_ports

NAMES = ("main", "a", "b")


@pytest.fixture
def together(tmp_path_factory, collectors):
    """Collectors of these names on one store; a hole of theirs stays open for longer than any test."""
    store = tmp_path_factory.mktemp("shared") / "store"
    more = toml.section("ledger", reorder_time="10 min")
    return {name: collectors(store=store, name=name, more=more) for name in NAMES}


@pytest.fixture
def running(together):
    for collector in together.values():
        collector.start()
    return together


def send(collector, stream, numbers):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in numbers:
            sock.sendto(heph_event(stream, number), collector.address("udp"))
    rows = len(numbers)
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] >= rows, "the events")


def completeness(collector):
    with tailrace.open(collector.store) as store:
        return store.completeness


def test_each_has_a_directory_of_its_own_and_all_write_one_table(running):
    for number, collector in enumerate(running.values()):
        send(collector, number, range(5))
    for collector in running.values():
        collector.settle()
    store = running["main"].store
    for collector in running.values():
        for name in ("lock", "spool", "quarantine", "ports.json", "unfinished", "collector.json"):
            assert (collector.own / name).exists()
        assert collector.status()["collector"] == collector.name
    rows = running["main"].rows(["stream", "seq", "kind"], kind="span")
    assert sorted((row["stream"], row["seq"]) for row in rows) == [
        (str(stream), seq) for stream in range(3) for seq in range(5)
    ]
    notes, table = Journal(store / "events").read(), DeltaTable(str(store / "events"))
    assert set(range(table.version() + 1)) - notes.entries.keys() == set()


def test_a_name_that_runs_is_refused_and_names_the_process(running, collectors):
    again = collectors(store=running["a"].store, name="a").start(wait=False)
    assert again.process.wait(timeout=180) == 1
    assert f"in use by process {running['a'].process.pid}" in again.log()
    assert running["a"].running


def test_every_collector_is_asked_what_it_still_awaits(running):
    send(running["a"], 1, [0, 1, 5])
    send(running["b"], 2, [0, 7])
    for collector in running.values():
        collector.settle()
    found = completeness(running["main"])
    assert (found.complete, found.awaited, found.unasked) == (False, 3 + 6, "")
    lines = running["main"].cli("top", "--json", "--count", "1").stdout.splitlines()
    assert {json.loads(line)["collector"] for line in lines} == set(NAMES)


def test_one_that_was_killed_leaves_every_answer_incomplete_until_it_has_finished(running):
    send(running["a"], 1, range(3))
    running["a"].settle()
    running["b"].kill()
    found = completeness(running["main"])
    assert not found.complete
    assert "collector b was killed" in found.unasked
    running["b"].start()
    running["b"].stop()
    found = completeness(running["main"])
    assert (found.complete, found.unasked) == (True, "")


def states(collector):
    """The states of the UDP sessions, by stream."""
    with tailrace.open(collector.store) as store:
        found = store.sql("SELECT stream, state FROM streams WHERE source = 'udp'")
        return {row["stream"]: row["state"] for row in found}


def test_only_the_sessions_of_the_one_that_was_killed_are_unwatched(running):
    for number, collector in enumerate(running.values()):
        send(collector, number, range(3))
        collector.settle()
    assert states(running["main"]) == {"0": "open", "1": "open", "2": "open"}
    running["a"].kill()
    assert states(running["main"]) == {"0": "open", "1": "unwatched", "2": "open"}
    running["a"].start()
    assert states(running["main"]) == {"0": "open", "1": "open", "2": "open"}
    running["main"].kill()
    assert states(running["main"]) == {"0": "unwatched", "1": "open", "2": "open"}
    running["main"].start()


def test_a_start_beside_others_changes_nothing_of_the_table(running):
    """It is the disk's damage, which upkeep names: nobody who starts may take out what others have written."""
    send(running["a"], 1, range(3))
    running["a"].settle()
    running["b"].stop()
    events = running["b"].store / "events"
    version = DeltaTable(str(events)).version()
    victim = max(events.glob("day=*/*.parquet"), key=lambda path: path.stat().st_mtime)
    victim.write_bytes(victim.read_bytes()[:-9])
    running["b"].start()
    assert (events / f"_delta_log/{version:020}.json").exists()
    assert not list((events / "_delta_log").glob("*.bad"))
    for name in ("main", "a", "b"):
        running[name].stop()
    running["main"].start()  # alone
    until(
        lambda: re.search("come again from the spool|set aside", running["main"].log()),
        "the line about the cut file",
    )


def test_rows_that_a_power_cut_took_from_one_come_again_though_another_starts_first(together):
    """The last versions of both are damaged, as by a power cut, and the journal lacks them."""
    first, second = together["a"], together["b"]
    for collector in (first, second):
        collector.start()
    events = first.store / "events"
    send(first, 1, range(4))
    send(second, 2, range(4))
    for collector in (first, second):
        collector.settle()
        collector.kill()
    log = sorted((events / "_delta_log").glob("*.json"))
    Journal(events).path.unlink()
    for path in log[-2:]:
        path.write_bytes(b"")
    first.start()
    first.logged("are taken out")
    found = completeness(first)
    assert "collector b was killed" in found.unasked
    second.start()
    for collector in (first, second):
        collector.settle()
    rows = first.rows(["stream", "seq"], kind="span")
    assert sorted((row["stream"], row["seq"]) for row in rows) == [
        (stream, seq) for stream in "12" for seq in range(4)
    ]


def test_a_collector_that_stood_still_while_another_took_its_place_writes_nothing_more(
    together, collectors, tmp_path_factory
):
    """Its directory was copied and put in its place, as by someone who moved the store."""
    paused = together["a"].start()
    send(paused, 1, range(3))
    paused.settle()
    paused.process.send_signal(signal.SIGSTOP)
    copy = paused.own.with_name("copy")
    subprocess.run(["cp", "-r", paused.own, copy], check=True)
    paused.own.rename(tmp_path_factory.mktemp("old") / "a")
    copy.rename(paused.own)
    ports, log = paused.ports, paused.output
    heir = collectors(store=paused.store, name="a").start()
    send(heir, 2, range(3))
    heir.settle()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        host, _, port = ports["sources"]["udp"].rpartition(":")
        for number in range(3, 6):
            sock.sendto(heph_event(1, number), (host, int(port)))
    paused.process.send_signal(signal.SIGCONT)
    assert paused.process.wait(timeout=180) == 1
    assert "leads to something else" in log.read_text()
    rows = heir.rows(["stream", "seq"], kind="span")
    assert {row["seq"] for row in rows if row["stream"] == "2"} == set(range(3))
    assert {row["seq"] for row in rows if row["stream"] == "1"} == set(range(3))


def test_what_each_could_not_read_is_verified_and_exported(running, tmp_path):
    for name in ("main", "a"):
        with socket.create_connection(running[name].address("tcp")) as sock:
            sock.sendall(heph_event(1, 0) + b"no event of anybody " * 9)
    for collector in running.values():
        collector.stop()
    store = running["main"].store
    done = running["main"].cli("export", "--to", "original", "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    written = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sum(b"no event of anybody" in data for data in written) == 2
    assert not verify(str(store), {}).damage
    [kept] = (running["a"].own / "quarantine").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert [each.path for each in verify(str(store), {}).damage] == [str(kept)]


def test_each_is_listed_with_its_health(tmp_path_factory, collectors):
    store = tmp_path_factory.mktemp("shared") / "store"
    quick = toml.section("heartbeat", interval="100 ms") + toml.section(
        "store", commit_interval="50 ms"
    )
    by_name = {name: collectors(store=store, name=name, more=quick).start() for name in NAMES}
    for collector in by_name.values():
        until(lambda each=collector: each.status()["heartbeat"]["committed"] >= 2, "two heartbeats")
    send(by_name["a"], 1, [0, 1, 5])
    until(lambda: _listed(store)["a"]["missing_events"] == 3, "a gap in a heartbeat")
    by_name["a"].stop()
    by_name["b"].kill()
    found = _listed(store)
    assert {name: each["health"] for name, each in found.items()} == {
        "main": "ok", "a": "stopped", "b": "killed",
    }  # fmt: skip
    identity = by_name["main"].status()["spool"]["identity"]
    assert (found["main"]["identity"], found["main"]["host"]) == (identity, os.uname().nodename)
    assert found["main"]["spool_bytes"] > 0
    text = by_name["main"].cli("collectors").stdout.splitlines()
    assert text[0].split()[:3] == ["collector", "host", "since"]
    assert [line.split()[0] for line in text[1:]] == ["main", "a", "b"]


def _listed(store):
    done = program.run(
        [*program.COMMAND, "collectors", "--json", "--store", store],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
    )  # fmt: skip
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


SHARED = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:{udp}"
reuse_port = true

[sources.tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:{tcp}"
reuse_port = true
"""


def test_collectors_that_share_an_address_divide_its_peers(tmp_path_factory, collectors):
    """Which one gets a peer is the kernel's choice; that all 64 go to one has a chance of 2 ** -63."""
    store = tmp_path_factory.mktemp("shared") / "store"
    udp, tcp = (free_ports(kind, 1)[0] for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM))
    sources = SHARED.format(udp=udp, tcp=tcp)
    both = [collectors(store=store, name=name, sources=sources).start() for name in ("main", "a")]
    with ExitStack() as stack:
        for number in range(64):
            peer = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            peer.sendto(heph_event(number, 0), ("127.0.0.1", udp))
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", tcp)))
            peer.sendall(heph_event(100 + number, 0))
        refused = collectors(store=store, name="a", sources=sources).start(wait=False)
        assert refused.process.wait(timeout=180) == 1

        def seen(name):
            return [each.status()["sources"][name]["seen_events"] for each in both]

        for name in ("udp", "tcp"):
            until(lambda name=name: sum(seen(name)) == 64, f"all events over {name}")
            assert all(seen(name))
    for collector in both:
        collector.settle()
    rows = both[0].rows(["stream"], kind="span")
    assert sorted(int(row["stream"]) for row in rows) == [*range(64), *range(100, 164)]


def test_an_address_is_not_shared_with_who_did_not_ask_for_it(tmp_path_factory, collectors):
    store = tmp_path_factory.mktemp("shared") / "store"
    udp, tcp = (free_ports(kind, 1)[0] for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM))
    sources = SHARED.format(udp=udp, tcp=tcp)
    collectors(store=store, sources=sources).start()
    alone = sources.replace("reuse_port = true", "")
    other = collectors(store=store, name="a", sources=alone).start(wait=False)
    assert other.process.wait(timeout=180) == 5
    assert "another process does" in other.log()


def test_the_default_layout_is_that_of_one_collector(collectors):
    collector = collectors().start()
    assert isinstance(collector, Collector)
    assert not (collector.store / "collectors").exists()
