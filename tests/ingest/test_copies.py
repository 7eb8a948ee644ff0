"""Datagrams that the network doubles, of a producer that numbers nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tests.forms import examples
from tests.ingest.log import SECOND, Log, run
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'


def event(n, record=1):
    return b'{"clk":%d,"type":"event","name":"e%d","record_id":%d,"description":""}\n' % (n, n, record)  # fmt: skip


def record(n):
    return b'{"clk":%d,"type":"record","name":"r","id":%d,"parent_id":null,"record_type":"x","description":""}\n' % (n, n)  # fmt: skip


def footer(records, events):
    return b'{"type":"footer","capture_end_clk":9,"total_records":%d,"total_annotations":0,"total_events":%d}\n' % (records, events)  # fmt: skip


@pytest.fixture
def log():
    return Log()


def gaps(rows):
    return [(row["name"], attributes(row)) for row in of(rows, "gap")]


def names(rows):
    return [row["name"] for row in of(rows, "instant")]


def test_a_doubled_datagram_is_stored_once_and_hides_no_loss(log):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER + record(1), event(1), event(1)])
    log.datagrams(peer, [event(1), footer(1, 2)])
    ingest, rows = run(log.entries)
    assert names(rows) == ["e1"]
    assert gaps(rows) == [("network", {"count": 1, "of": "instant", "estimate": True})]
    account = ingest.account("s")
    assert (account.expected, account.seen, account.missing, account.duplicates) == (3, 4, 1, 2)
    assert_conserved(ingest)


def test_a_record_behind_a_copy_is_where_its_bytes_are(log):
    peer = log.open("jets", transport="udp")
    sent = [HEADER, event(1), event(2), event(1), event(3)]
    log.datagrams(peer, sent)
    _, rows = run(log.entries)
    places = {row["name"]: row["offset"] for row in of(rows, "instant")}
    data = b"".join(sent)
    assert places == {f"e{n}": data.index(event(n)) for n in (1, 2, 3)}


def test_what_is_said_again_after_the_window_is_said_twice(log):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER, event(1)])
    log.now += 2 * SECOND
    log.datagrams(peer, [event(1)])
    _, rows = run(log.entries)
    assert names(rows) == ["e1", "e1"]


def test_as_many_datagrams_are_remembered_as_numbers_elsewhere(log):
    peer = log.open("jets", transport="udp", limits=LedgerConfig(reorder_events=4))
    log.datagrams(peer, [event(n) for n in (1, 2, 3, 4, 1, 5, 1)])
    ingest, rows = run(log.entries)
    assert names(rows) == ["e1", "e2", "e3", "e4", "e5", "e1"]
    assert ingest.account("s").duplicates == 1
    assert_conserved(ingest)


def test_a_copy_of_what_cannot_be_read_is_quarantined_as_well(log):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER, b"{nonsense\n", b"{nonsense\n"])
    ingest, _ = run(log.entries)
    assert ingest.tally("s").malformed == 20
    assert_conserved(ingest)


def test_a_copy_of_a_line_beside_what_cannot_be_read_is_stored_once(log):
    peer = log.open("jets", transport="udp")
    both = event(1) + b"{nonsense\n"
    log.datagrams(peer, [HEADER, both, both])
    ingest, rows = run(log.entries)
    assert names(rows) == ["e1"]
    assert ingest.tally("s").malformed == 10
    assert_conserved(ingest)


def test_a_header_that_lines_have_overtaken_is_theirs(log):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [record(1), event(1)])
    log.now += SECOND
    log.datagrams(peer, [HEADER, event(2), footer(1, 2)])
    ingest, rows = run(log.entries)
    assert {row["session"] for row in rows} == {"session0"}
    assert gaps(rows) == []
    assert ingest.tally("s").restarts == 0
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize("before", [[record(1)], [HEADER, record(1)]])
def test_a_header_later_than_the_window_or_after_another_begins_anew(log, before):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, before)
    log.now += (2 if HEADER not in before else 0) * SECOND
    log.datagrams(peer, [HEADER.replace(b"{}", b'{"again":1}'), record(2)])
    ingest, rows = run(log.entries)
    begun = {row["id"]: row["session"] for row in rows if row["kind"] in {"begin", "span"}}
    assert begun == {1: "session0", 2: "session0.1"}
    assert ingest.tally("s").restarts == 1


def test_a_record_that_comes_after_the_totals_repays_its_own_gap_and_no_other(log):
    """Record 1 was referred to and is late; record 2 was lost, and nothing refers to it."""
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER, event(1)])
    log.tick(3)
    log.datagrams(peer, [footer(2, 1)])
    log.datagrams(peer, [record(1)])
    ingest, rows = run(log.entries)
    assert [row["name"] for row in of(rows, "gap")] == ["unresolved", "network"]
    assert [row["name"] for row in of(rows, "heal")] == ["unresolved"]
    assert ingest.account("s").missing == 1
    assert_conserved(ingest)


def test_a_record_that_only_a_line_behind_the_totals_refers_to_is_missing_once(log):
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER, footer(1, 1), event(1)])
    log.tick(3)
    ingest, rows = run(log.entries)
    assert [(row["name"], attributes(row)["count"]) for row in of(rows, "gap")] == [
        ("network", 1),
        ("network", 1),
        ("unresolved", 1),
    ]
    assert [(row["name"], attributes(row)["of"]) for row in of(rows, "heal")] == [
        ("network", "instant"),
        ("network", "begin"),
    ]
    assert ingest.account("s").missing == 1
    assert_conserved(ingest)
    assert_replays(log.entries, *range(len(log.entries)))


def test_lines_of_a_connection_are_no_copies(log):
    connection = log.open("jets")
    log.data(connection, HEADER + record(1) + event(1) + event(1) + footer(1, 2))
    _, rows = run(log.entries)
    assert names(rows) == ["e1", "e1"]
    assert gaps(rows) == []


@examples(60)
@given(st.integers(0, 2**32))
def test_a_network_that_loses_doubles_and_reorders_is_told_to_the_event(seed):
    rng = random.Random(seed)
    sent = [event(n) for n in range(rng.randint(1, 60))]
    kept = [datagram for datagram in sent if rng.random() < 0.8]
    doubled = [datagram for datagram in kept if rng.random() < 0.3]
    arriving = sorted(kept + doubled, key=lambda _: rng.random())
    log = Log()
    peer = log.open("jets", transport="udp")
    log.datagrams(peer, [HEADER, record(1)])
    while arriving:
        part, arriving = arriving[:7], arriving[7:]
        log.now += 10**6
        log.datagrams(peer, part)
    log.datagrams(peer, [footer(1, len(sent))])
    ingest, rows = run(log.entries)
    assert sorted(names(rows)) == sorted(f"e{sent.index(d)}" for d in kept)
    assert sum(about["count"] for _, about in gaps(rows)) == len(sent) - len(kept)
    assert ingest.account("s").duplicates == len(doubled)
    assert_conserved(ingest)
    assert_replays(log.entries, rng.randrange(len(log.entries)))
