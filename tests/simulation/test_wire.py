"""Programs without a client: the book of what they sent, and the oracle that holds the table against it."""

from __future__ import annotations

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.units import Duration
from tests.ingest.log import as_seen
from tests.simulation import facts, oracle
from tests.simulation.copies import without_copies
from tests.simulation.facts import Scenario
from tests.simulation.play import Play
from tests.simulation.violation import Violation
from tests.simulation.wire import Part, Sent
from tests.simulation.world import MS, SECOND


def play(transport, *, garbled=True, **fates):
    begin = facts.Begin(at=0, program=0, transport=transport, address="a:1", buffer=0)
    course = [
        facts.Emit(at=10 * MS, program=0, stream=1, count=5),
        facts.Close(at=SECOND, program=0, seconds=0),
    ]
    if garbled:
        course.append(facts.Garble(at=20 * MS, program=0, how="behind"))
    course.sort(key=lambda fact: fact.at)
    found = Play(Scenario(seed=1, facts=[begin, *course], fates=fates))
    found.run()
    return found


def kind_of(play):
    try:
        oracle.check(play)
    except Violation as violation:
        return violation.kind
    return None


@pytest.mark.parametrize("transport", ["raw", "heph-tcp", "jets-udp", "jets-tcp"])
def test_the_oracle_misses_each_row_that_is_left_out(transport):
    """Each row of an event or of bytes that cannot be read is demanded."""
    whole = play(transport)
    assert kind_of(whole) is None
    rows = whole.collector.rows
    seen = {id(row) for row in as_seen(rows) if row["kind"] not in {"session", "heal"}}
    events = [n for n, row in enumerate(rows) if id(row) in seen]
    assert len(events) >= 6
    for place in events:
        row = rows.pop(place)
        assert kind_of(whole) is not None, row
        rows.insert(place, row)
    assert kind_of(whole) is None


@pytest.mark.parametrize("transport", ["raw", "jets-udp"])
def test_a_lost_datagram_is_a_gap_that_the_oracle_demands(transport):
    lossy = play(transport, garbled=False, **{"up/2": []})
    rows = lossy.collector.rows
    lost = [row for row in rows if row["kind"] == "gap"]
    assert len(lost) == 1
    assert kind_of(lossy) is None
    rows.remove(lost[0])
    assert kind_of(lossy) is not None


def test_an_event_that_is_stored_twice_is_told():
    for transport in ("heph-tcp", "jets-tcp"):
        doubled = play(transport)
        rows = doubled.collector.rows
        rows.append(next(row for row in rows if row["name"] == "0/1/0"))
        assert kind_of(doubled) is not None


def test_what_is_cut_off_is_not_good():
    sent = Sent()
    connection = object()
    sent.streams[connection] = [Part(b"abc", "first"), Part(b"defg", "second")]
    assert list(sent.parts(connection, 7)) == sent.streams[connection]
    assert list(sent.parts(connection, 5)) == [Part(b"abc", "first"), Part(b"de", good=False)]


def test_copies_are_known_for_a_time_and_among_the_last():
    limits = LedgerConfig(reorder_events=2, reorder_time=Duration(2))
    arriving = [(0, b"a"), (1, b"a"), (2 * SECOND, b"a"), (2 * SECOND, b"b"), (2 * SECOND, b"c")]
    arriving += [(3 * SECOND, b"a"), (3 * SECOND, b"c"), (3 * SECOND, b"!"), (3 * SECOND, b"!")]
    kept = without_copies(arriving, limits, lambda datagram: datagram != b"!")
    assert kept == [b"a", b"a", b"b", b"c", b"a", b"!", b"!"]


def test_only_a_session_that_gave_up_what_it_knew_of_copies_may_store_one_again():
    begin = facts.Begin(at=0, program=0, transport="jets-udp", address="a:1", buffer=0)
    emit = facts.Emit(at=10 * MS, program=0, stream=1, count=60, over=60 * MS)
    found = Play(Scenario(seed=1, facts=[begin, emit], fates={"up/2": [0, 200 * MS]}, state=2**12))
    found.run()
    rows = found.collector.rows
    assert sum(row["name"] == "0/1/1" for row in rows) == 2
    assert kind_of(found) is None
    rows[:] = [row for row in rows if row["name"] != "evicted"]
    assert kind_of(found) == "stored another time"


def test_a_session_that_has_one_end_of_a_record_has_it_stored():
    """It has no name; all else was lost."""
    begin = facts.Begin(at=0, program=0, transport="jets-udp", address="a:1", buffer=0)
    emit = facts.Emit(at=10 * MS, program=0, stream=1, count=8)
    fates = {f"up/{number}": [] for number in range(9) if number != 4}
    found = Play(Scenario(seed=1, facts=[begin, emit], fates=fates))
    found.run()
    (end,) = [row for row in found.collector.rows if row["kind"] == "end"]
    assert kind_of(found) is None
    found.collector.rows.remove(end)
    assert kind_of(found) == "taken in and not stored"
