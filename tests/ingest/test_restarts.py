"""Producers that begin anew behind one datagram socket, with their datagrams out of order."""

from __future__ import annotations

import pytest

from tests.ingest.log import SECOND, Log, heph_epoch, heph_event, run
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

MS = 10**6
FIRST, SECOND_RUN = 10**18, 10**18 + 3600 * SECOND
"""Epochs an hour apart."""


def old(n):
    """An event of a run that is an hour old."""
    return heph_event(1, n, start=3500 * SECOND + n * MS)


def new(n):
    return heph_event(1, n, start=n * MS)


@pytest.fixture
def log():
    return Log()


def by_session(rows):
    found = {}
    for row in of(rows, "span"):
        found.setdefault(row["session"], []).append(row["seq"])
    return found


def test_late_events_of_the_old_run_fill_its_holes_after_the_new_ones_epoch(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, [*range(90), *range(95, 100)])])
    log.datagrams(session, [heph_epoch(SECOND_RUN), *map(new, range(10))])
    log.datagrams(session, [*map(old, (90, 92, 100)), *map(new, (10, 11)), old(99), new(12)])
    ingest, rows = run(log.entries)
    assert by_session(rows) == {
        "session0": [*range(90), *range(95, 100), 90, 92, 100],
        "session0.1": list(range(13)),
    }
    account = ingest.account("s")
    assert (account.missing, account.duplicates) == (3, 1)
    assert_conserved(ingest)
    log.tick(2)
    ingest, rows = run(log.entries)
    gaps = [(row["session"], row["seq"], attributes(row)["count"]) for row in of(rows, "gap")]
    assert gaps == [("session0", 91, 1), ("session0", 93, 2)]
    closes = [row["session"] for row in of(rows, "session") if row["name"] == "close"]
    assert closes == ["session0"]
    assert not ingest.waiting


def test_a_copy_of_an_old_event_that_is_not_remembered_is_no_event_of_the_new_run(log):
    """The new run cannot have sent it yet: its clock has not come so far."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(700))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0), old(100), new(1)])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(700)), "session0.1": [0, 1]}
    assert not of(rows, "gap")
    assert ingest.account("s").duplicates == 1
    assert_conserved(ingest)


def test_the_first_event_of_a_stream_may_be_the_old_runs(log):
    """The new run cannot have sent the event yet, so it does not matter that the old run had no such stream."""
    session = log.open(transport="udp")
    late = heph_event(2, 0, start=3500 * SECOND)
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(10))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0), late, new(1), heph_event(3, 0)])
    log.tick(2)
    ingest, rows = run(log.entries)
    streams = {(r["session"], r["stream"], r["seq"]) for r in of(rows, "span") if r["seq"] < 10}
    assert {s for s in streams if s[1] != "1"} == {("session0", "2", 0), ("session0.1", "3", 0)}
    assert by_session(rows)["session0.1"] == [0, 1, 0]
    assert not of(rows, "gap")
    assert_conserved(ingest)


def test_a_burst_out_of_order_is_the_new_runs_where_its_clock_has_come_so_far(log):
    """The old run said no epoch. Its next number is 1; the new run's event 1 overtakes the new run's 0
    behind it."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, 0, start=300 * MS)])
    log.now += 300 * MS
    log.datagrams(session, [heph_epoch(SECOND_RUN)])
    log.now += 5 * MS
    log.datagrams(session, [heph_event(1, 0, start=5 * MS)])
    log.now += 1800 * MS
    log.datagrams(session, [heph_event(1, n, start=1805 * MS + n) for n in (3, 1, 2)])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0], "session0.1": [0, 3, 1, 2]}
    assert not of(rows, "gap")
    assert_conserved(ingest)


def test_a_hole_is_filled_though_the_old_run_has_gone_on_for_long(log):
    """The event's time is nearer to the new run's zero than to the old run's last event."""
    session = log.open(transport="udp")
    times = [n * 400 * SECOND for n in range(9)]
    events = [heph_event(1, n, start=time) for n, time in enumerate(times)]
    log.datagrams(session, [heph_epoch(FIRST), events[0], *events[2:]])
    log.datagrams(session, [heph_epoch(SECOND_RUN), heph_event(2, 0), events[1]])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0, *range(2, 9), 1], "session0.1": [0]}
    assert not of(rows, "gap")
    assert_conserved(ingest)


def test_a_number_far_ahead_may_be_the_old_runs(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(10))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0), old(5000), new(1)])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [*range(10), 5000], "session0.1": [0, 1]}
    assert [(r["session"], attributes(r)["count"]) for r in of(rows, "gap")] == [("session0", 4990)]
    assert_conserved(ingest)


def test_after_a_silence_what_repeats_the_old_run_to_the_bit_is_the_new_ones(log):
    """A deterministic simulation that is run again: nothing of the first run can be late any more."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(new, range(10))])
    log.tick(3)
    log.datagrams(session, [heph_epoch(SECOND_RUN), *map(new, range(3))])
    log.datagrams(session, list(map(new, range(3, 10))))
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(10)), "session0.1": list(range(10))}
    assert (ingest.account("s").missing, ingest.account("s").duplicates) == (0, 0)
    assert_conserved(ingest)
    assert_replays(log.entries, 3)


def test_what_the_old_run_sent_last_is_its_own_after_a_silence(log):
    """It has emitted again, and the next program's first datagram overtakes that."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(10))])
    log.tick(3)
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0)])
    log.datagrams(session, [old(10), new(1), old(11), old(10)])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(12)), "session0.1": [0, 1]}
    assert (ingest.account("s").missing, ingest.account("s").duplicates) == (0, 1)
    assert_conserved(ingest)
    assert_replays(log.entries, 3)


def test_a_late_event_after_the_old_run_was_closed_counts_for_the_new_one(log):
    """A documented blind spot: nobody waits longer than the window."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(100))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0)])
    log.tick(2)
    log.datagrams(session, [old(100)])
    ingest, rows = run(log.entries)
    assert by_session(rows)["session0.1"] == [0, 100]
    assert ingest.account("s").missing == 99


def test_an_epoch_that_is_repeated_late_is_the_old_runs(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(100))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0)])
    log.datagrams(session, [heph_epoch(FIRST), new(1)])
    log.tick(2)
    log.datagrams(session, [heph_epoch(FIRST), new(2)])
    ingest, rows = run(log.entries)
    assert ingest.tally("s").restarts == 1
    epochs = [row["session"] for row in of(rows, "session") if row["name"] == "epoch"]
    assert epochs == ["session0", "session0.1", "session0", "session0"]
    assert by_session(rows)["session0.1"] == [0, 1, 2]


def test_the_first_epoch_of_a_run_that_was_never_told_of_its_own_begins_a_new_one(log):
    session = log.open(transport="udp")
    log.datagrams(session, [*map(old, range(100))])
    log.datagrams(session, [heph_epoch(SECOND_RUN) + new(0) + new(1)])
    _, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(100)), "session0.1": [0, 1]}
    epochs = [row["session"] for row in of(rows, "session") if row["name"] == "epoch"]
    assert epochs == ["session0.1"]


def test_an_epoch_that_comes_after_the_first_events_is_theirs(log):
    session = log.open(transport="udp")
    log.datagrams(session, [new(0), new(1), heph_epoch(FIRST), new(2)])
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0, 1, 2]}
    assert ingest.tally("s").restarts == 0


def test_a_run_repeated_with_a_new_epoch_is_not_a_run_of_duplicates(log):
    session = log.open(transport="udp")
    for epoch in (FIRST, FIRST + SECOND // 2):
        events = [heph_event(1, n, start=SECOND + n) for n in range(20)]
        log.datagrams(session, [heph_epoch(epoch), *events])
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(20)), "session0.1": list(range(20))}
    assert ingest.account("s").duplicates == 0


def test_the_first_events_of_a_run_are_its_own_though_the_old_ones_were_slow(log):
    """The old run's only event took 0.3 s; the new run's first event is lost, its second arrives at once."""
    session = log.open(transport="udp")
    begin = 10**18 - log.now
    log.now += 3 * SECOND // 10
    log.datagrams(session, [heph_epoch(begin + log.now - 3 * SECOND // 10) + heph_event(1, 0, start=0)])  # fmt: skip
    log.now += SECOND
    log.datagrams(session, [heph_epoch(begin + log.now)])
    log.now += 10 * MS
    log.datagrams(session, [heph_event(1, n, start=n * MS) for n in (1, 2, 3)])
    _, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0], "session0.1": [1, 2, 3]}


def test_all_events_of_the_old_run_may_come_after_the_new_ones_epoch(log):
    """Nothing but its epoch came before. Both runs have a number 1 of stream 1."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST)])
    log.now += SECOND
    log.datagrams(session, [heph_epoch(FIRST + SECOND), new(0)])
    log.now += 250 * MS
    late = [heph_event(1, n, start=(900 + n) * MS) for n in (1, 0)]
    log.datagrams(session, [*late, heph_event(1, 1, start=249 * MS)])
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [1, 0], "session0.1": [0, 1]}
    assert not of(rows, "gap")
    assert_conserved(ingest)
    assert_replays(log.entries, 3)


def test_a_burst_out_of_order_is_the_new_runs_though_all_before_it_was_slow(log):
    """The collector started a little later than the old run, and an outage held up the new run's first words."""
    session = log.open(transport="udp")
    begin = 10**18
    old_run, new_run = begin - 60 * MS, begin + 3 * SECOND
    log.datagrams(session, [heph_epoch(old_run), heph_event(1, 0, start=0)])
    log.now += 3200 * MS
    log.datagrams(session, [heph_epoch(new_run)])
    log.now += 80 * MS
    burst = [heph_event(1, n, start=280 * MS + n) for n in (2, 1, 0)]
    log.datagrams(session, burst)
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0], "session0.1": [2, 1, 0]}
    assert not of(rows, "gap")
    assert_conserved(ingest)


@pytest.mark.parametrize("cut", range(7))
def test_how_fast_datagrams_are_is_known_from_the_runs_before(log, cut):
    """Two outages held up the first words of the second and the third run, and all events of the second are lost."""
    session = log.open(transport="udp")
    begin = log.now
    for at, sent in (
        (0, [heph_epoch(FIRST), heph_event(1, 0, start=0)]),
        (860, [heph_epoch(FIRST + 600 * MS)]),
        (1810, [heph_epoch(FIRST + 1710 * MS)]),
        (1910, [heph_event(1, 0, start=100 * MS)]),
        (1911, [heph_event(1, n, start=201 * MS) for n in (2, 1)]),
    ):
        log.now = begin + at * MS
        log.datagrams(session, sent)
    log.tick(2)
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": [0], "session0.2": [0, 2, 1]}
    assert not of(rows, "gap")
    assert_conserved(ingest)
    assert_replays(log.entries, cut)


def test_a_clock_that_was_set_back_between_two_runs_tells_nothing_of_later_ones(log):
    """By the first run's clock, every event of the third run would be a minute late."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), heph_event(1, 0, start=0)])
    log.now += SECOND
    epoch = FIRST - 59 * SECOND
    log.datagrams(session, [heph_epoch(epoch), *map(new, range(3))])
    log.now += SECOND
    log.datagrams(session, [heph_epoch(epoch + SECOND), new(0), heph_event(2, 1, start=900 * MS)])
    log.tick(3)
    _, rows = run(log.entries)
    late = [row["session"] for row in of(rows, "span") if row["stream"] == "2"]
    assert late == ["session0.1"]


@pytest.mark.parametrize("cut", range(7))
def test_a_replay_across_a_restart_goes_on_as_the_first_run_did(log, cut):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(FIRST), *map(old, range(0, 100, 3))])
    log.datagrams(session, [heph_epoch(SECOND_RUN), new(0)])
    log.datagrams(session, [old(50), new(3), heph_epoch(FIRST)])
    log.datagrams(session, [new(1), old(7), old(50)])
    log.tick(2)
    log.close(session)
    assert_replays(log.entries, cut)
    assert_conserved(run(log.entries)[0])


def test_on_a_connection_nothing_comes_late(log):
    session = log.open(transport="tcp")
    log.data(session, heph_epoch(FIRST) + old(0) + old(2))
    log.data(session, heph_epoch(SECOND_RUN) + new(0))
    _, rows = run(log.entries)
    assert [row["seq"] for row in of(rows, "gap")] == [1]
    assert [row["name"] for row in of(rows, "session")] == ["open", "epoch", "close", "restart", "epoch"]  # fmt: skip


def test_a_duplicate_is_the_old_runs_whatever_its_time(log):
    session = log.open(transport="udp")
    log.datagrams(
        session, [heph_epoch(FIRST), *(heph_event(1, n, start=n * SECOND) for n in range(100))]
    )
    log.datagrams(session, [heph_epoch(SECOND_RUN), heph_event(1, 0, start=50 * SECOND)])
    log.datagrams(session, [heph_event(1, 50, start=50 * SECOND)])
    ingest, rows = run(log.entries)
    assert by_session(rows) == {"session0": list(range(100)), "session0.1": [0]}
    assert ingest.account("s").duplicates == 1
