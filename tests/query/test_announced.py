"""Test what the views make of a session that its client announced."""

from __future__ import annotations

import json

import pytest

from tailrace.decoding.formats.heph.session import stored_name
from tests.ingest.log import (
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_report,
    heph_session,
    run,
)
from tests.query.memory import Views
from tests.query.tables import DAY


@pytest.fixture(scope="module")
def views():
    return Views()


def stored(log):
    return [row | {"day": DAY} for row in run(log.entries)[1]]


def resumed():
    """Return the rows of one session with two connections. On the second connection, the client reports discarded
    events and says goodbye.
    """
    log = Log()
    about = {"process": "solver", "pid": 4711, "acknowledge": True}
    first = log.open()
    log.data(first, heph_epoch(10**18) + heph_session(7, **about))
    log.data(first, b"".join(heph_event(1, n) for n in range(10)))
    log.close(first)
    second = log.open()
    log.data(second, heph_epoch(10**18) + heph_session(7, turn=1, **about))
    log.data(second, heph_report([1, 12, 3]) + heph_event(1, 15) + heph_goodbye({"1": 20, "2": 5}))
    log.close(second)
    return stored(log)


def test_it_is_one_session_with_its_clients_words(views):
    (found,) = views.of(resumed(), "SELECT * FROM sessions")
    assert (found["session"], found["closed"]) == ("session0", "goodbye")
    assert (found["events"], found["missing"]) == (11, 14)
    assert (found["epoch"], found["clock"]) == (10**18, "monotonic_ns")
    assert json.loads(found["producer"]) == {
        "pid": 4711, "process": "solver", "session": stored_name(f"{7:032x}"),
    }  # fmt: skip


def test_its_streams_say_what_each_reason_cost(views):
    rows = resumed()
    streams = views.of(rows, "SELECT stream, events, missing FROM streams ORDER BY stream")
    assert [tuple(row.values()) for row in streams] == [("1", 11, 9), ("2", 0, 5)]
    reasons = views.of(
        rows, "SELECT reason, sum(remaining)::INT AS n FROM gaps GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row.values()) for row in reasons] == [("network", 11), ("sender", 3)]


def test_a_gap_that_turns_out_to_be_the_senders_counts_once(views):
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7)] + [heph_event(1, n) for n in (0, 10, 20)])
    log.tick(3)
    log.datagrams(session, [heph_report([1, 3, 12])])
    log.datagrams(session, [heph_event(1, 5)])
    rows = stored(log)
    reasons = views.of(
        rows, "SELECT reason, sum(remaining)::INT AS n FROM gaps GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row.values()) for row in reasons] == [("network", 2 + 5), ("sender", 7 + 4 - 1)]
