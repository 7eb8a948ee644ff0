"""Places for streams run out: whose streams give way, and what rows and answers say of it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tests.ingest.log import Log, heph_event, heph_report, heph_session, run
from tests.ingest.test_announced import told
from tests.ingest.test_machine import assert_conserved, attributes, of

LIMITS = LedgerConfig(streams_max=64, source_streams_max=256)


def unknown(rows):
    """Session and stream of each gap of unknown size that is there for want of room."""
    gaps = [row for row in of(rows, "gap") if row["name"] == "uncounted"]
    assert all(attributes(row)["count"] == 0 for row in gaps)
    return [(row["session"], row["stream"]) for row in gaps]


def attacked(transport="tcp"):
    """A log in which four sessions have taken all places."""
    log = Log()
    for peer in range(4):
        session = log.open(transport=transport, limits=LIMITS, peer=f"127.0.0.1:{peer + 5}")
        events = [heph_event(1000 + n, 0) for n in range(64)]
        if transport == "udp":
            log.datagrams(session, events)
        else:
            log.data(session, b"".join(events))
    return log


def restored(entries, at):
    """The rows and the ingest, which goes on from a checkpoint in between."""
    ingest, rows = run(entries[:at])
    ingest, more = run(entries[at:], Ingest.restore(ingest.snapshot()))
    return ingest, rows + more


@pytest.mark.parametrize("cut", [0, 5, 9, 14])
@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_newcomers_losses_are_counted_to_the_event_when_all_places_are_taken(transport, cut):
    log = attacked(transport)
    log.now += 10**9
    honest = log.open(transport=transport, limits=LIMITS, peer="127.0.0.2:5")
    lost = {*range(10, 200, 19)}
    for number in set(range(200)) - lost:
        event = heph_event(1, number)
        log.datagrams(honest, [event]) if transport == "udp" else log.data(honest, event)
    log.tick(3)
    log.close(honest)
    ingest, rows = restored(log.entries, cut)
    name = f"session{honest}"
    gaps = [row for row in of(rows, "gap") if row["session"] == name]
    assert {row["seq"] for row in gaps} == lost
    assert all(attributes(row)["count"] == 1 for row in gaps)
    (given_way,) = unknown(rows)
    assert given_way == (f"session{0}", "1000")
    assert ingest.account("s").missing == len(lost)
    assert_conserved(ingest)


def test_what_is_sent_again_on_other_connections_is_stored_once_beside_an_attacker():
    log = attacked()
    events = b"".join(heph_event(1, n) for n in range(10))
    for _ in range(3):
        connection = log.open(limits=LIMITS, peer="127.0.0.2:6")
        log.data(connection, heph_session(7, acknowledge=True) + events)
        log.close(connection)
    _, rows = run(log.entries)
    stored = Counter(row["seq"] for row in of(rows, "span") if row["stream"] == "1")
    assert stored == Counter(range(10))


def test_a_session_beyond_its_limit_says_so_of_each_stream_and_once_of_very_many():
    log = Log()
    session = log.open(limits=LIMITS)
    log.data(session, b"".join(heph_event(n, 0) + heph_event(n, 5) for n in range(1000)))
    log.tick(3)
    ingest, rows = run(log.entries)
    gaps = unknown(rows)
    assert len(gaps) == len(set(gaps)) == 64 + 1
    assert gaps[-1] == (f"session{session}", "")
    assert ingest.common("s").state.uncounted_sessions == 1
    log.close(session)
    ingest, _ = run(log.entries)
    assert ingest.common("s").state.uncounted_sessions == 0
    assert_conserved(ingest)


def test_a_client_is_told_that_a_stream_is_not_counted_instead_of_that_it_is_durable():
    log = Log()
    limits = LedgerConfig(streams_max=1)
    session = log.open(limits=limits)
    log.data(session, heph_session(7, acknowledge=True) + heph_event(1, 0) + heph_event(2, 0))
    ingest, _ = run(log.entries)
    ((_, said),) = told(ingest)
    assert (said["streams"], said["uncounted"]) == ({"1": 1}, [2])
    assert told(ingest) == []
    before = len(log.entries)
    log.data(session, heph_event(2, 1))
    run(log.entries[before:], ingest)
    ((_, said),) = told(ingest)
    assert (said["streams"], said["uncounted"]) == ({}, [2])
    # All that is known is said again to a client that asks, after a restart, too.
    ingest = Ingest.restore(ingest.snapshot())
    ((_, said),) = told(ingest)
    assert (said["streams"], said["uncounted"]) == ({"1": 1}, [2])


def test_a_client_is_told_of_a_stream_that_gave_way_to_another_session():
    log = Log()
    limits = LedgerConfig(source_streams_max=3)
    large = log.open(limits=limits)
    log.data(large, heph_session(7, acknowledge=True))
    log.data(large, b"".join(heph_event(n, 0) for n in range(1, 4)))
    ingest, _ = run(log.entries)
    ((_, said),) = told(ingest)
    assert said["streams"] == {"1": 1, "2": 1, "3": 1}
    before = len(log.entries)
    log.data(log.open(limits=limits), heph_event(9, 0))
    log.data(large, heph_event(1, 1) + heph_event(2, 1))
    run(log.entries[before:], ingest)
    ((_, said),) = told(ingest)
    assert (said["streams"], said["uncounted"]) == ({"2": 2}, [1])


def given_up(ingest, log, more):
    before = len(log.entries)
    more()
    run(log.entries[before:], ingest)
    ((_, said),) = told(ingest)
    return said.get("given_up", {}), said["holes"]


def test_holes_that_are_forgotten_are_given_up_and_said_to_be():
    log = Log()
    limits = LedgerConfig(holes_max=4, reorder_events=1)
    session = log.open(limits=limits)
    log.data(session, heph_session(7, acknowledge=True))
    ingest, _ = run(log.entries)
    told(ingest)
    events = b"".join(heph_event(1, n) for n in range(0, 30, 3))
    counts, holes = given_up(ingest, log, lambda: log.data(session, events))
    missing = ingest.account("s").missing
    assert missing == 18
    assert counts["1"] + sum(count for *_, count in holes) == missing
    assert counts["1"] > 0


def test_holes_that_are_older_than_a_session_is_waited_for_are_given_up_and_said_to_be():
    log = Log()
    session = log.open()
    log.data(session, heph_session(7, acknowledge=True) + heph_event(1, 0) + heph_event(1, 3))
    log.data(session, heph_event(2, 0) + heph_event(2, 3) + heph_report([2, 1, 2]))
    log.tick(3)
    ingest, _ = run(log.entries)
    assert given_up(ingest, log, lambda: log.data(session, heph_event(1, 4))) == ({}, [[1, 1, 2]])
    log.now += 601 * 10**9
    both = heph_event(1, 5) + heph_event(2, 4)
    assert given_up(ingest, log, lambda: log.data(session, both)) == ({"1": 2}, [])


def test_an_answer_fits_a_datagram_whatever_it_says():
    log = Log()
    limits = LedgerConfig(streams_max=40, holes_max=1, reorder_events=1)
    session = log.open(limits=limits)
    log.data(session, heph_session(7, acknowledge=True, turn=2**32 - 1))
    first, last = 2**32 - 1, 2**31 - 100
    for stream in range(first, first - 60, -1):
        numbers = (0, last // 3, last // 2, last)
        log.data(session, b"".join(heph_event(stream, n, start=0, end=9) for n in numbers))
    ingest, _ = run(log.entries)
    answers = [said for _, said in told(ingest)]
    names = [int(stream) for said in answers for stream in said["streams"]]
    assert sorted(names + [s for said in answers for s in said.get("uncounted", [])]) == [
        *range(first - 59, first + 1)
    ]
    assert len(names) == 40
    assert sum(len(said.get("given_up", {})) for said in answers) == 40
    json.dumps(answers)
