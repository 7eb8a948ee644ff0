"""Drops of the kernel are `kernel`, the rest of a hole `network`, and the sum stays exact."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.units import Duration
from tests.forms import examples
from tests.ingest.log import SECOND, Log, heph_epoch, heph_event, run
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of


@pytest.fixture
def log():
    return Log()


def gaps(rows):
    return [
        (row["name"], row["seq"], attributes(row)["count"], "estimate" in attributes(row))
        for row in of(rows, "gap")
    ]


def send(log, session, numbers, *, stream=1):
    log.datagrams(session, [heph_event(stream, n) for n in numbers])


def send_around(log, before, dropped, after, *, source="s"):
    """Events of one stream that come before and after the kernel drops so many datagrams."""
    session = log.open(transport="udp")
    send(log, session, before)
    log.drops(dropped, source=source)
    send(log, session, after)
    log.tick(2)
    return session


def test_of_one_stream_the_kernels_part_is_exact(log):
    send_around(log, range(10), 7, [20, 21])
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("kernel", 10, 7, False), ("network", 17, 3, False)]
    assert ingest.tally("s").gaps == {"kernel": 7, "network": 3}
    assert ingest.common("s").drops.unassigned == 0
    assert_conserved(ingest)


def test_drops_that_no_counter_misses_stay_unassigned(log):
    send_around(log, range(10), 7, [10, 12])
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("kernel", 11, 1, True)]
    assert ingest.common("s").drops.unassigned == 6


def test_drops_of_another_source_explain_nothing(log):
    send_around(log, range(10), 7, [20], source="other")
    _, rows = run(log.entries)
    assert gaps(rows) == [("network", 10, 10, False)]


def test_drops_after_a_hole_was_seen_explain_nothing_of_it(log):
    session = log.open(transport="udp")
    send(log, session, [*range(10), 20])
    log.now += 10**9
    log.drops(7)
    log.tick(2)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("network", 10, 10, False)]
    assert ingest.common("s").drops.unassigned == 7


def test_two_streams_holes_share_the_drops_as_an_estimate(log):
    session = log.open(transport="udp")
    for stream in (1, 2):
        send(log, session, range(10), stream=stream)
    log.drops(5)
    for stream in (1, 2):
        send(log, session, [14], stream=stream)
    log.tick(2)
    _, rows = run(log.entries)
    assert gaps(rows) == [
        ("kernel", 10, 4, True),
        ("kernel", 10, 1, True),
        ("network", 11, 3, True),
    ]


def test_a_dropped_datagram_of_many_events_explains_them_all(log):
    session = log.open(transport="udp")
    packets = [heph_event(1, n) for n in range(100)]
    batches = [b"".join(packets[at : at + 10]) for at in range(0, 100, 10)]
    log.datagrams(session, [heph_epoch(1) + batches[0], *batches[1:4]])
    log.drops(3)
    log.datagrams(session, batches[7:])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("kernel", 40, 30, True)]
    assert ingest.common("s").drops.unassigned == 0


def test_what_came_before_a_late_joiner_was_not_dropped_here(log):
    session = log.open(transport="udp")
    log.drops(7)
    send(log, session, [5, 6])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("late_join", 0, 5, False)]
    assert ingest.common("s").drops.unassigned == 7


def test_a_heal_repays_the_part_that_it_is_of(log):
    session = send_around(log, range(10), 2, [14])
    send(log, session, [13, 10])
    ingest, rows = run(log.entries)
    assert [(row["name"], row["seq"]) for row in of(rows, "heal")] == [
        ("network", 13),
        ("kernel", 10),
    ]
    assert ingest.account("s").missing == 2


def storm(seed):
    """A log of two peers whose events the kernel and the network lose, with what was lost to which."""
    rng = random.Random(seed)
    log = Log()
    limits = LedgerConfig(reorder_events=rng.choice([4, 64]), reorder_time=Duration(2))
    sessions = [log.open(transport="udp", limits=limits) for _ in range(2)]
    sent = [0, 0]
    dropped = lost = 0
    for _ in range(40):
        looked = log.now
        log.now += rng.randrange(10**9)
        chunks = [[], []]
        more = 0
        for _ in range(rng.randrange(30)):
            peer = rng.randrange(2)
            size = rng.choice([1, 1, 4])
            packets = [heph_event(1, n) for n in range(sent[peer], sent[peer] + size)]
            sent[peer] += size
            fate = rng.random()
            if fate < 0.1:
                lost += size
            elif fate < 0.2:
                more += 1
                lost += size
            else:
                chunks[peer].append(b"".join(packets))
        if more:
            dropped += more
            log.drops(more, since=looked)
        for session, chunk in zip(sessions, chunks, strict=True):
            if chunk:
                log.datagrams(session, chunk)
        if rng.random() < 0.2:
            log.tick(rng.random() * 3)
    for session, count in zip(sessions, sent, strict=True):
        log.datagrams(session, [heph_event(1, count)])
    log.stop()
    return log.entries, dropped, lost


@examples(30)
@given(st.integers(0, 2**32), st.data())
def test_no_drop_counts_twice_and_the_reasons_sum_to_what_is_missing(seed, data):
    entries, dropped, lost = storm(seed)
    ingest, rows = run(entries)
    by_reason = {}
    for reason, _, count, _ in gaps(rows):
        by_reason[reason] = by_reason.get(reason, 0) + count
    assert sum(by_reason.values()) == lost == ingest.account("s").missing
    drops = ingest.common("s").drops
    assert 0 <= drops.unassigned <= dropped
    assert by_reason.get("kernel", 0) <= 4 * (dropped - drops.unassigned)
    assert_replays(entries, data.draw(st.integers(0, len(entries))))


def test_a_peer_that_skips_every_second_number_gets_few_rows_and_an_exact_count(log):
    session = log.open(transport="udp", limits=LedgerConfig(gap_rows_max=10))
    for n in range(0, 20_000, 2):
        send(log, session, [n])
        log.now += 10**6
    log.stop()
    ingest, rows = run(log.entries)
    found = of(rows, "gap")
    assert len(found) <= 6 * 11
    counts = [attributes(row)["count"] for row in found]
    assert sum(counts) == 9_999 == ingest.account("s").missing
    last = max(found, key=lambda row: row["seq"])
    assert attributes(last)["of_range"]
    assert attributes(last)["last"] == 19_997
    assert_conserved(ingest)


def test_the_time_of_a_hole_begins_when_its_stream_was_last_heard_of(log):
    session = log.open(transport="udp")
    log.drops(3)
    log.now += SECOND
    send(log, session, range(10))
    log.now += SECOND
    log.drops(4, since=log.now - SECOND)
    log.now += SECOND
    send(log, session, [20])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("kernel", 10, 4, False), ("network", 14, 6, False)]
    assert ingest.common("s").drops.unassigned == 3


def test_where_metadata_may_have_been_dropped_it_is_an_estimate(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(1), heph_event(1, 0)])
    log.drops(4)
    send(log, session, [5])
    log.tick(2)
    _, rows = run(log.entries)
    assert gaps(rows) == [("kernel", 1, 4, True)]
