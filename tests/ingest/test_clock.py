"""The wall clock is set while the log's time goes on: waiting times count on, and rows get its time and day."""

from __future__ import annotations

import pytest

from tailrace.ingest.machine import DAY_NS, Ingest
from tailrace.ingest.state import encode
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import Heartbeat
from tests.ingest.log import SECOND, Log, heph_event, heph_session, run
from tests.ingest.test_machine import attributes, of

TEN_YEARS = 3652 * DAY_NS
STEPS = pytest.mark.parametrize("step", [TEN_YEARS, -TEN_YEARS, 3600 * SECOND, -3600 * SECOND])


@pytest.fixture
def log():
    log = Log()
    log.now = 20_000 * DAY_NS
    return log


@STEPS
@pytest.mark.parametrize("cut", range(6))
def test_rows_get_the_day_and_the_times_of_the_clock_as_it_is_set(log, step, cut):
    begin = log.now
    session = log.open()
    log.data(session, heph_event(1, 0))
    log.clock(step)
    log.data(session, heph_event(1, 1))
    log.clock(0)
    log.data(session, heph_event(1, 2))
    log.now += SECOND
    log.close(session)
    ingest, rows = run(log.entries[:cut])
    _, more = run(log.entries[cut:], Ingest.restore(ingest.snapshot()))
    rows += more
    days = [row["day"] for row in of(rows, "span")]
    today = begin // DAY_NS
    assert days == [today, (begin + step) // DAY_NS, today]
    close = of(rows, "session")[-1]
    assert (close["day"], close["time"]) == (today, begin + SECOND)
    assert attributes(close)["closed_at"] == begin + SECOND


@STEPS
def test_a_hole_that_was_open_before_the_clock_was_set_closes_in_its_time(log, step):
    session = log.open()
    log.data(session, heph_event(1, 0) + heph_event(1, 2))
    log.tick(1)
    log.clock(step)
    log.tick(0.9)
    ingest, rows = run(log.entries)
    assert of(rows, "gap") == []
    assert ingest.waiting
    before = len(log.entries)
    log.tick(0.2)
    ingest, rows = run(log.entries[before:], ingest)
    assert [row["seq"] for row in of(rows, "gap")] == [1]
    assert not ingest.waiting


@STEPS
def test_a_session_is_waited_for_as_long_as_ever_when_the_clock_is_set(log, step):
    session = log.open()
    log.data(session, heph_session(7) + heph_event(1, 0))
    log.close(session)
    log.clock(step)
    log.tick(599)
    ingest, rows = run(log.entries)
    assert ingest.state.announced["s"]
    before = len(log.entries)
    log.tick(2)
    ingest, rows = run(log.entries[before:], ingest)
    assert not ingest.state.announced["s"]
    (close,) = of(rows, "session")
    assert close["time"] == log.now + step


@STEPS
def test_a_record_that_takes_long_is_slow_by_the_time_that_has_passed(log, step):
    session = log.open()
    log.data(session, heph_event(1, 0)[:20])
    since = log.now
    log.clock(step)
    log.tick(5)
    ingest, _ = run(log.entries)
    assert ingest.slow(since + 1) == [session]
    assert ingest.slow(since) == []


def test_the_collectors_own_rows_have_the_clocks_time(log):
    log.clock(TEN_YEARS)
    log.add(EntryKind.HEARTBEAT, payload=encode(Heartbeat(session="h", number=0, about={})))
    _, rows = run(log.entries)
    (beat,) = of(rows, "instant")
    (opened,) = of(rows, "session")
    assert beat["time"] == opened["time"] == attributes(opened)["opened"] == log.now + TEN_YEARS
    assert beat["day"] == (log.now + TEN_YEARS) // DAY_NS
