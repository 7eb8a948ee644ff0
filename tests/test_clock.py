"""Time that goes on steadily while the wall clock is set."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

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
@example(steps=[(0, -4), (0, STEP_NS + 3)], last=0)
def test_time_advances_by_what_has_passed_whatever_the_wall_clock_shows(steps, last):
    clock = SetClock()
    timeline = Timeline(clock, clock.wall + last)
    begin = timeline.now()
    assert begin == clock.wall + max(0, last)
    assert begin + timeline.ahead == clock.wall
    made = told = 0
    for passed, step in steps:
        clock.passes(passed)
        clock.wall += step
        made += step
        told += timeline.look()
        # Steps too small to be told add up.
        assert abs(told - made) <= STEP_NS + len(steps)
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


@given(st.integers(-10 * YEAR, 10 * YEAR), st.integers(0, YEAR), st.integers(0, 10**9))
def test_time_goes_on_between_two_lives_although_the_clock_was_set_in_the_first(step, before, away):
    """Without that, a clock that was set back had to be as late as the log's last entry again first."""
    clock = SetClock()
    timeline = Timeline(clock, 0)
    clock.passes(before)
    clock.wall += step
    timeline.look()
    last = timeline.now()
    clock.passes(away)
    later = Timeline(clock, last)
    later.go_on(timeline.ahead)
    assert abs(later.now() - last - away) <= STEP_NS
    assert later.now() + later.ahead == clock.wall


def test_time_stands_still_between_two_lives_where_the_clock_was_set_back_meanwhile():
    clock = SetClock()
    last = clock.wall + YEAR
    clock.passes(1000)
    timeline = Timeline(clock, last)
    timeline.go_on(7)
    assert timeline.now() == last
    assert timeline.ahead == clock.wall - last
