"""Time that goes on steadily while the wall clock is set."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace.clock import STEP_NS, Timeline

YEAR = 365 * 86_400 * 10**9


class SetClock:
    def __init__(self, wall=10**18):
        self.wall, self.passed = wall, 0

    def passes(self, nanoseconds):
        self.wall += nanoseconds
        self.passed += nanoseconds

    def wall_ns(self):
        return self.wall

    def monotonic(self):
        return self.passed / 1e9


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(-10 * YEAR, 10 * YEAR)), max_size=20),
    st.integers(-10 * YEAR, 10 * YEAR),
)
def test_time_advances_by_what_has_passed_whatever_the_wall_clock_shows(steps, last):
    clock = SetClock()
    timeline = Timeline(clock, clock.wall + last)
    begin = timeline.now()
    assert begin == clock.wall + max(0, last)
    assert begin + timeline.ahead == clock.wall
    for passed, step in steps:
        clock.passes(passed)
        clock.wall += step
        found = timeline.look()
        assert abs(found - step) <= STEP_NS + len(steps)
        assert abs(timeline.now() - begin - clock.passed) <= 1
        assert abs(timeline.now() + timeline.ahead - clock.wall) <= STEP_NS
        assert timeline.at(timeline.now() + timeline.ahead) == timeline.now()


@pytest.mark.parametrize("slewed", [-STEP_NS + 1, STEP_NS - 1])
def test_a_clock_that_is_slewed_is_not_called_set_until_it_is_far_off(slewed):
    clock = SetClock()
    timeline = Timeline(clock, 0)
    clock.wall += slewed
    assert timeline.look() == 0
    clock.wall += slewed
    assert timeline.look() == 2 * slewed
    assert timeline.look() == 0


@pytest.mark.parametrize("step", [YEAR, -YEAR])
def test_a_clock_that_was_set_before_a_start_moves_the_log_by_the_time_without_a_daemon_only(step):
    clock = SetClock()
    before = Timeline(clock, 0)
    clock.wall += step
    before.look()
    last = before.now()
    clock.passes(7)
    after = Timeline(clock, last)
    after.go_on(before.ahead)
    assert after.now() == last + 7
    assert after.ahead == before.ahead


def test_a_clock_that_is_set_back_while_no_daemon_runs_moves_the_log_not_back():
    clock = SetClock()
    last = Timeline(clock, 0).now()
    clock.wall -= YEAR
    after = Timeline(clock, last)
    after.go_on(0)
    assert (after.now(), after.ahead) == (last, -YEAR)
