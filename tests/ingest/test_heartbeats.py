"""The daemon's own stream: one session a life, held against the ledger like any other."""

from __future__ import annotations

import json

import pytest

from tailrace.config.schema import OWN_SOURCE
from tailrace.ingest.state import encode
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import Heartbeat
from tests.ingest.log import Log, heph_event, run
from tests.ingest.test_machine import assert_conserved, assert_replays


def beat(log, number, *, session="life", **about):
    log.now += 10**9
    payload = encode(Heartbeat(session=session, number=number, about=about))
    log.add(EntryKind.HEARTBEAT, payload=payload)


def life(log, *numbers, session="life"):
    log.add(EntryKind.START)
    for number in numbers:
        beat(log, number, session=session)


def of(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def test_a_heartbeat_is_an_instant_with_its_number_wall_time_and_the_way_of_the_last_one():
    log = Log()
    life(log, 0)
    beat(log, 1, commit_seconds=0.25)
    _, rows = run(log.entries)
    opened, first, second = rows
    assert (opened["kind"], opened["name"], opened["session"]) == ("session", "open", "life")
    for row, entry, number in ((first, log.entries[1], 0), (second, log.entries[2], 1)):
        assert (row["source"], row["format"], row["stream"]) == (
            "tailrace",
            "tailrace",
            "heartbeat",
        )
        assert (row["kind"], row["name"], row["seq"]) == ("instant", "heartbeat", number)
        assert row["start"] == row["time"] == entry.time_ns
    assert first["attributes"] is None
    assert json.loads(second["attributes"]) == {"commit_seconds": 0.25}
    assert first["offset"] == 0
    assert second["offset"] == len(log.entries[1].payload)


def test_a_missing_number_is_a_gap_of_our_own():
    log = Log()
    life(log, 0, 1, 4)
    log.tick(3)
    ingest, rows = run(log.entries)
    (gap,) = of(rows, "gap")
    assert (gap["seq"], json.loads(gap["attributes"])["count"]) == (2, 2)
    account = ingest.account(OWN_SOURCE)
    assert (account.expected, account.seen, account.missing) == (5, 3, 2)
    assert_conserved(ingest, OWN_SOURCE)
    assert not ingest.waiting


def test_each_life_is_a_session_that_its_stop_or_the_next_start_closes():
    log = Log()
    life(log, 0, 1, session="first")
    log.stop()
    life(log, 0, session="second")
    life(log, 0, session="third")
    ingest, rows = run(log.entries)
    closed = [row for row in of(rows, "session") if row["name"] == "close"]
    reasons = [(row["session"], json.loads(row["attributes"])["closed"]) for row in closed]
    assert reasons == [("first", "stop"), ("second", "collector restart")]
    assert not of(rows, "gap")
    assert ingest.account(OWN_SOURCE).seen == 4
    assert_conserved(ingest, OWN_SOURCE)


def test_a_damaged_spool_is_said_of_it_too():
    log = Log()
    life(log, 0)
    ingest, _ = run(log.entries)
    ingest.pass_over(log.entries[-1].end + 100)
    beat(log, 3)
    log.tick(3)
    last = [entry._replace(end=entry.end + 100) for entry in log.entries[-2:]]
    _, rows = run(last, ingest)
    assert [(row["name"], row["seq"]) for row in of(rows, "gap")] == [
        ("malformed", None),
        ("network", 1),
    ]


@pytest.mark.parametrize("cut", range(10))
def test_a_replay_from_anywhere_gives_the_same_rows(cut):
    log = Log()
    life(log, 0, 1, session="first")
    session = log.open()
    log.data(session, heph_event(1, 0))
    life(log, 0, 3, session="second")
    log.tick(3)
    log.stop()
    assert_replays(log.entries, cut)
