"""Which days go, decided from the days that a table has and a clock that may be wrong."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from tailrace.config.schema import StoreConfig
from tailrace.store.layout import DataFile
from tailrace.store.upkeep import DAY_NS, Jump, retention
from tailrace.units import Duration, Size

TODAY = 20_000
AGE = 30
CONFIG = StoreConfig(retention_age=Duration(AGE * 86_400))
HALF = AGE // 2


def files_of(days):
    return [DataFile(f"day{day}", day, 100, 10) for day in days]


def noon(day):
    return day * DAY_NS + DAY_NS // 2


def below(days, today, **more):
    return retention(files_of(days), CONFIG, noon(today), **more)


@pytest.mark.parametrize("ahead", [HALF + 1, AGE + 2, 400, 100_000])
@pytest.mark.parametrize("wrong", [0, 1, 5])
def test_a_clock_that_is_far_ahead_deletes_nothing_and_is_named(ahead, wrong):
    """Also once some days are there that were written with it."""
    days = [*range(TODAY - 20, TODAY + 1), *range(TODAY + ahead, TODAY + ahead + wrong)]
    today = TODAY + ahead + max(0, wrong - 1)
    found = below(days, today)
    assert found.below is None
    if ahead + wrong > AGE:
        assert found.held == Jump(TODAY, TODAY + ahead)
        assert "--clock-is-right" in str(found.held)


def test_days_go_that_were_too_old_before_the_clock_was_set():
    assert below(range(TODAY - 40, TODAY + 1), TODAY).below == TODAY - AGE
    found = below(range(TODAY - 40, TODAY + 1), TODAY + 400)
    assert found == (TODAY - AGE + 1, Jump(TODAY, TODAY + 400))


def test_the_clock_is_believed_once_somebody_says_so_until_it_jumps_again():
    days = [*range(TODAY - 20, TODAY + 1), TODAY + 400]
    said = noon(TODAY + 400)
    assert below(days, TODAY + 400, trusted=said) == (TODAY + 400 - AGE, None)
    days = [TODAY + 400, TODAY + 401]
    assert below(days, TODAY + 900, trusted=said) == (None, Jump(TODAY + 401, TODAY + 900))


def test_the_clock_is_believed_once_the_table_has_days_enough_behind_the_jump():
    """Nobody has collected for a while: old days go later then, and without a word of anybody."""
    before = [*range(TODAY - 5, TODAY + 1)]
    after = TODAY + 60
    for passed in range(HALF):
        days = [*before, *range(after, after + passed + 1)]
        assert below(days, after + passed) == (None, Jump(TODAY, after))
    days = [*before, *range(after, after + HALF + 1)]
    assert below(days, after + HALF) == (after + HALF - AGE, None)


@given(st.sets(st.integers(TODAY - 60, TODAY + 60), min_size=1), st.integers(-50, 500))
def test_the_newest_day_stays_and_no_day_goes_that_a_right_clock_would_keep_half_as_long(
    days, ahead
):
    today = TODAY + ahead
    assume(min(days) <= today)
    newest = max(day for day in days if day <= today)
    found = below(days, today)
    if found.below is not None:
        assert found.below <= newest
        assert found.below <= today - AGE
        assert any(day < found.below for day in days)
    gone = {day for day in days if found.below is not None and day < found.below}
    # The last day that is no further from the day before it than half of the age.
    steady = sorted(days)[:1]
    for day in sorted(day for day in days if day <= today)[1:]:
        if day - steady[-1] > HALF:
            break
        steady.append(day)
    if steady[-1] == newest and today - newest > HALF:
        assert all(day <= newest - AGE for day in gone)


def test_the_newest_day_is_kept_whatever_its_age_but_not_whatever_its_size():
    day = Duration(86_400)
    files = files_of([TODAY - 1])
    config = StoreConfig(retention_age=day)
    assert retention(files, config, noon(TODAY + 1), noon(TODAY + 1)).below is None
    config = StoreConfig(retention_age=day, retention_size=Size(10))
    assert retention(files, config, noon(TODAY + 1), noon(TODAY + 1)).below == TODAY


def test_days_of_the_future_are_neither_deleted_nor_a_measure():
    """They are what is left of a clock that was ahead."""
    days = [*range(TODAY - 40, TODAY + 1), TODAY + 3652]
    assert below(days, TODAY) == (TODAY - AGE, None)
