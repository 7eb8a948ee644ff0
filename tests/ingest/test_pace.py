"""How fast sessions' clocks go: exact, since the times of arrival are given."""

from __future__ import annotations

import json
from random import Random

import pytest

from tailrace.ingest.clocks import STEP, WINDOW, Pace, Paces, Progress
from tailrace.ingest.machine import Ingest
from tests.ingest.log import SECOND, Log, heph_epoch, heph_event, heph_session, run

BEGIN = 1_700_000_000 * SECOND


def paced(times, *, ticks_per_second=None):
    """A pace that was told of (seconds, tick)."""
    pace = Pace("s")
    pace.ticks_per_second = ticks_per_second
    for seconds, tick in times:
        pace.add(BEGIN + round(seconds * SECOND), tick)
    return pace


def steps(pace):
    return len(pace._steps)


@pytest.mark.parametrize("every", [0.05, 1, 7, 100])
def test_a_steady_clock_has_its_pace_exactly(every):
    pace = paced([(every * n, round(250 * every * n)) for n in range(200)])
    assert pace.ticks_per_wall_second == pytest.approx(250, rel=1e-9)
    assert pace.slowdown is None
    pace.ticks_per_second = 1000.0
    assert pace.slowdown == pytest.approx(4, rel=1e-9)


def test_the_pace_is_that_of_the_last_minute_and_not_since_the_beginning():
    fast = [(n, 1000 * n) for n in range(600)]
    slow = [(600 + n, 600_000 + 10 * n) for n in range(70)]
    assert paced(fast).ticks_per_wall_second == pytest.approx(1000)
    assert paced(fast + slow).ticks_per_wall_second == pytest.approx(10)


def test_what_had_gathered_before_the_first_contact_is_no_pace():
    pace = paced([(0, 5_000_000), (10, 5_000_100), (20, 5_000_200)])
    assert pace.ticks_per_wall_second == 10


def test_of_one_moment_no_pace_is_known():
    pace = paced([(0, 7), (0, 9)], ticks_per_second=1.0)
    assert (pace.reached, pace.ticks_per_wall_second, pace.slowdown) == (9, None, None)


def test_a_clock_that_stands_is_stalled_after_a_minute_and_not_silent():
    times = [(n, 100 * min(n, 10)) for n in range(70)]
    assert paced(times).progress(BEGIN + 69 * SECOND) is Progress.ADVANCING
    pace = paced([*times, (70, 1000)], ticks_per_second=100.0)
    assert pace.progress(BEGIN + 70 * SECOND) is Progress.STALLED
    assert (pace.heard - pace.advanced) == 60 * SECOND
    pace = paced([*times, (70, 1000), (80, 1000)], ticks_per_second=100.0)
    assert (pace.ticks_per_wall_second, pace.slowdown) == (0, None)
    pace.add(BEGIN + 81 * SECOND, 1001)
    assert pace.progress(BEGIN + 81 * SECOND) is Progress.ADVANCING


def test_streams_behind_one_another_do_not_make_a_clock_that_stands_look_alive():
    times = [(n, 100 * n) for n in range(10)] + [(10 + n, (1000, 900)[n % 2]) for n in range(70)]
    pace = paced(times)
    assert pace.progress(pace.heard) is Progress.STALLED


def test_a_session_of_which_nothing_comes_is_silent_and_not_stalled():
    for tick in (lambda n: n, lambda _: 5):
        pace = paced([(n, tick(n)) for n in range(70)])
        assert pace.progress(pace.heard + WINDOW) is not Progress.SILENT
        assert pace.progress(pace.heard + WINDOW + 1) is Progress.SILENT


def test_a_tick_that_is_nonsense_is_forgotten_with_its_step():
    times = [(n, 2**62 if n == 100 else 10 * n) for n in range(200)]
    pace = paced(times)
    assert pace.ticks_per_wall_second == pytest.approx(10)
    assert pace.reached == 1990
    # Also where events are few.
    for every in (1, 10):
        times = [(every * n, 2**62 if n == 100 else 10 * n) for n in range(200)]
        seen = {paced(times[:n]) for n in range(101, 200)}
        assert {pace.progress(pace.heard) for pace in seen} == {Progress.ADVANCING}


def test_a_clock_that_begins_anew_is_followed_within_a_window():
    times = [(n, 1000 + n) for n in range(100)] + [(100 + n, n) for n in range(80)]
    pace = paced(times)
    assert pace.ticks_per_wall_second == pytest.approx(1)
    assert paced(times[:120]).ticks_per_wall_second == 0
    assert {paced(times[:n]).progress(BEGIN + n * SECOND) for n in range(100, 180)} == {
        Progress.ADVANCING
    }


def test_a_session_takes_a_bounded_number_of_steps():
    random = Random(1)
    pace, seconds = Pace("s"), 0.0
    for _ in range(5000):
        seconds += random.choice((0.001, 1, 4, 30, 300))
        pace.add(BEGIN + round(seconds * SECOND), random.getrandbits(64))
        assert steps(pace) <= WINDOW // STEP + 2


def test_at_most_so_many_sessions_are_followed_and_the_others_are_counted():
    paces = Paces(3)
    for second in range(10):
        for name in "abcde":
            told(paces, name, second)
    assert set(paces.of("s")) == set("abc")
    assert (paces.unfollowed("s"), paces.unfollowed("other")) == (2, 0)
    # One that is over gives up its place at once, one that is silent after a minute.
    paces.over("b")
    told(paces, "d", 10)
    told(paces, "a", 50)
    told(paces, "e", 71)
    assert set(paces.of("s")) == {"a", "d", "e"}
    assert paces.unfollowed("s") == 1
    paces.over("c")
    assert paces.unfollowed("s") == 0
    assert paces.of("other") == {}


def test_with_a_lower_limit_those_silent_longest_are_let_go_of():
    paces = Paces(3)
    for second, name in enumerate("abca"):
        told(paces, name, second)
    paces.limit(1)
    assert (set(paces.of("s")), paces.unfollowed("s")) == ({"a"}, 2)
    paces.limit(2)
    told(paces, "b", 5)
    assert (set(paces.of("s")), paces.unfollowed("s")) == ({"a", "b"}, 1)


def test_none_may_be_followed():
    paces = Paces(0)
    told(paces, "a", 0)
    assert (paces.of("s"), paces.unfollowed("s")) == ({}, 1)


def told(paces, name, second):
    paces.take("s", name, second, None, BEGIN + second * SECOND)


# Through the ingest


def test_a_simulation_that_says_how_many_ticks_a_second_has():
    log = Log()
    number = log.open()
    log.data(number, heph_session(1, clock="logical", ticks_per_second=1e6))
    for second in range(30):
        # A tenth of a simulated second each second: two streams, one behind.
        log.data(number, heph_event(1, second, start=0, end=100_000 * second))
        log.data(number, heph_event(2, second, start=0, end=90_000 * second))
        log.tick(1)
    ingest, _ = run(log.entries)
    ((name, pace),) = ingest.paces.of("s").items()
    assert name == f"session{number}"
    assert (pace.reached, pace.ticks_per_wall_second) == (2_900_000, 100_000)
    assert pace.slowdown == pytest.approx(10)
    assert pace.progress(log.now) is Progress.ADVANCING


def test_a_design_whose_header_says_its_frequency():
    log = Log()
    number = log.open("jets")
    header = {"type": "header", "version": "2.0", "metadata": {"clock_frequency_mhz": 500}}
    log.data(number, json.dumps(header).encode() + b"\n")
    for second in range(30):
        event = {"clk": 2000 * second, "type": "event", "name": "stall", "record_id": 1}
        log.data(number, json.dumps(event | {"description": ""}).encode() + b"\n")
        log.tick(1)
    ingest, _ = run(log.entries)
    (pace,) = ingest.paces.of("s").values()
    assert (pace.reached, pace.ticks_per_wall_second) == (58_000, 2000)
    assert pace.slowdown == 250_000


def test_a_run_that_begins_anew_is_a_session_of_its_own_and_what_is_over_is_gone():
    log = Log()
    number = log.open()
    for epoch in (1, 2):
        log.data(number, heph_epoch(epoch * 10**18))
        for count in range(12):
            log.data(number, heph_event(1, count, start=count * SECOND))
            log.tick(1)
    ingest, _ = run(log.entries)
    assert list(ingest.paces.of("s")) == [f"session{number}.1"]
    (pace,) = ingest.paces.of("s").values()
    assert pace.slowdown == pytest.approx(1)
    log.close(number)
    ingest, _ = run(log.entries)
    assert ingest.paces.of("s") == {}


def test_what_is_followed_changes_nothing_of_the_rows_nor_of_the_state():
    log = Log()
    numbers = [log.open() for _ in range(3)]
    for count in range(20):
        for number in numbers:
            log.data(number, heph_event(number, count))
        log.tick(1)
    narrow = Ingest()
    narrow.paces.limit(1)
    first, rows = run(log.entries)
    second, others = run(log.entries, narrow)
    assert (len(first.paces.of("s")), len(second.paces.of("s"))) == (3, 1)
    assert rows == others
    assert first.snapshot() == second.snapshot()
