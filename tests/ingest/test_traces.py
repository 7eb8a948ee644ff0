"""Real traces through the whole ingest, as files and over a bad network: exactly the gaps there are.

The traces and what is known of them are in `tests/vectors` (see the README of each format there).
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path

import pytest

from tests.ingest.log import EVENT_MAGIC, Log, heph_event, run
from tests.traffic.mangler import DROPPED, DUPLICATED, Chances, mangle

VECTORS = Path(__file__).parents[1] / "vectors"
CLEAN = ("busy", "contended", "runtime", "restart_concat", "types", "spec_examples")


def heph(name):
    return (VECTORS / "heph" / f"{name}.in").read_bytes()


def packets(data):
    """Each packet by itself."""
    at, found = 0, []
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at + 4)
        found.append(data[at : at + size])
        at += size
    return found


def is_event(packet):
    return struct.unpack_from(">I", packet)[0] == EVENT_MAGIC


def identity(packet):
    return struct.unpack_from(">II", packet, 8)


def over_tcp(data, format_="heph", chunk=1000):
    log = Log()
    session = log.open(format_)
    for at in range(0, len(data), chunk):
        log.data(session, data[at : at + chunk])
    log.close(session)
    return run(log.entries)


def over_udp(datagrams, chunk=10):
    log = Log()
    session = log.open(transport="udp")
    for at in range(0, len(datagrams), chunk):
        log.datagrams(session, datagrams[at : at + chunk])
    log.close(session)
    return run(log.entries)


def claimed(rows):
    """(stream, number) of what gap rows claim, net of heals."""
    missing = Counter()
    for row in rows:
        if row["kind"] in {"gap", "heal"}:
            sign = 1 if row["kind"] == "gap" else -1
            for n in range(json.loads(row["attributes"])["count"]):
                missing[int(row["stream"]), row["seq"] + n] += sign
    assert set(missing.values()) <= {0, 1}
    return {number for number, count in missing.items() if count}


@pytest.mark.parametrize("chunk", [7, 1000, 10**6])
def test_a_lossy_trace_has_exactly_the_gaps_of_its_manifest(chunk):
    manifest = json.loads((VECTORS / "heph" / "busy_lossy.manifest.json").read_text())
    ingest, rows = over_tcp(heph("busy_lossy"), chunk=chunk)
    assert claimed(rows) == {tuple(dropped) for dropped in manifest["dropped"]}
    assert ingest.account("s").seen == manifest["kept_events"]
    assert ingest.account("s").expected == manifest["total_events"]


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("chunk", [11, 10**6])
def test_a_clean_trace_has_no_gap_and_no_duplicate(name, chunk):
    ingest, rows = over_tcp(heph(name), chunk=chunk)
    events = sum(map(is_event, packets(heph(name))))
    assert claimed(rows) == set()
    assert ingest.account("s").duplicates == 0
    assert len([row for row in rows if row["kind"] == "span"]) == events
    assert ingest.account("s").imbalance == 0


def test_a_restart_in_a_trace_is_a_new_session_and_no_gap():
    ingest, rows = over_tcp(heph("restart_concat"))
    epochs = [row for row in rows if row["name"] == "epoch"]
    assert len({row["session"] for row in epochs}) == len(epochs) == 2
    assert ingest.tally("s").restarts == 1


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("name", ["busy", "contended", "runtime"])
def test_what_a_bad_network_does_to_a_trace_is_found_exactly(name, seed):
    chances = Chances(drop=0.05, duplicate=0.05, reorder=0.1, delay=0.02)
    sent = [packet for packet in packets(heph(name)) if is_event(packet)]
    last = {identity(packet)[0]: packet for packet in sent}
    arrived, deeds = mangle(seed, sent, chances, spare=lambda d: d in last.values())
    ingest, rows = over_udp(arrived)
    dropped = {(deed.stream, deed.counter) for deed in deeds if deed.action == DROPPED}
    doubled = sum(deed.action == DUPLICATED for deed in deeds)
    assert claimed(rows) == dropped
    assert ingest.account("s").duplicates == doubled
    assert len([row for row in rows if row["kind"] == "span"]) == len(sent) - len(dropped)
    assert ingest.account("s").imbalance == 0


@pytest.mark.parametrize("seed", range(10))
def test_reordering_and_doubling_alone_make_no_gap(seed):
    sent = packets(heph("busy"))
    arrived, _ = mangle(seed, sent, Chances(duplicate=0.1, reorder=0.3))
    ingest, rows = over_udp(arrived)
    assert claimed(rows) == set()
    assert ingest.tally("s").restarts == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_counter_that_wraps_within_a_bad_network_makes_only_the_gaps_it_has(seed):
    first = 2**32 - 300
    sent = [heph_event(stream, first + n, start=1000 * n) for n in range(600) for stream in (1, 2)]
    kept = {sent[0], sent[1], sent[-1], sent[-2]}
    arrived, deeds = mangle(seed, sent, Chances(0.05, 0.05, 0.1, 0.02), spare=kept.__contains__)
    _, rows = over_udp(arrived)
    dropped = {
        (d.stream, d.counter + (2**32 if d.counter < first else 0))
        for d in deeds
        if d.action == DROPPED
    }
    assert claimed(rows) == dropped


@pytest.mark.parametrize("seed", range(10))
def test_restarts_within_a_bad_network_are_neither_gaps_nor_duplicates(seed):
    """Each run announces its epoch, which arrives; between runs the network has time to empty."""
    arrived, dropped = [], 0
    for run_ in range(4):
        events = [heph_event(1, n, start=1000 * n + run_) for n in range(200)]
        out, deeds = mangle(
            100 * seed + run_,
            events,
            Chances(0.05, 0.05, 0.1),
            spare=lambda d, e=events: d in (e[0], e[-1]),
        )
        dropped += sum(deed.action == DROPPED for deed in deeds)
        arrived += [struct.pack(">IIH5sQ", 0x75D11D4D, 23, 5, b"epoch", 10**18 + run_), *out]
    ingest, rows = over_udp(arrived)
    assert ingest.account("s").missing == dropped
    assert ingest.tally("s").restarts == 3
    assert len({row["session"] for row in rows if row["kind"] == "span"}) == 4


@pytest.mark.parametrize("chunk", [13, 4096])
def test_a_lossy_jets_trace_lacks_exactly_the_lines_of_its_manifest(chunk):
    manifest = json.loads((VECTORS / "jets" / "tracegen_default_lossy.manifest.json").read_text())
    lines = manifest["dropped_lines"]
    data = (VECTORS / "jets" / "tracegen_default_lossy.in").read_bytes()
    _, rows = over_tcp(data, "jets", chunk)
    gaps = [
        (row["name"], row["id"], json.loads(row["attributes"]))
        for row in rows
        if row["kind"] == "gap"
    ]
    records = {line["id"] for line in lines if line["type"] == "record"}
    assert {id_ for name, id_, _ in gaps if name == "unresolved"} == records
    rest = {about["of"]: about["count"] for name, _, about in gaps if name == "network"}
    assert rest == {"instant": sum(line["type"] == "event" for line in lines)}


def test_a_clean_jets_trace_has_no_gap_and_no_flaw():
    data = (VECTORS / "jets" / "tracegen_tiny.in").read_bytes()
    ingest, rows = over_tcp(data, "jets")
    assert [row for row in rows if row["kind"] in {"gap", "end"}] == []
    assert ingest.tally("s").flaws == {}
    spans = [row for row in rows if row["kind"] == "span"]
    assert len(spans) == ingest.tally("s").records["begin"] == 6
    assert not [row for row in rows if row["kind"] == "begin"]
