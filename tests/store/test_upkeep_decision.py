"""Test what upkeep does when, decided from a list of files and a time."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from tailrace.config.schema import GIB, MIB, StoreConfig
from tailrace.store.layout import DataFile
from tailrace.store.turn import UpkeepState
from tailrace.store.upkeep import (
    CROWDED,
    DAY_NS,
    FIRST_FILES,
    FIRST_SIZE,
    HOUR_NS,
    SECOND_FILES,
    Merge,
    calls,
    decide,
)
from tailrace.units import Duration, Size

TODAY = 20_000
NOW = TODAY * DAY_NS + 12 * HOUR_NS
DONE = UpkeepState(merged=NOW, vacuumed=NOW, swept=NOW)
"""All was done just now."""


def _files(day, count, size, *, rows=10):
    return [DataFile(f"{day}-{n}-{size}", day, size, rows) for n in range(count)]


def test_nothing_is_due_in_a_table_without_files():
    plan = decide([], DONE, StoreConfig(), NOW)
    assert (plan.delete_below, plan.vacuum, plan.merges) == (None, None, [])


def test_many_small_files_of_a_day_are_merged_a_little():
    files = _files(TODAY, FIRST_FILES, 10_000) + _files(TODAY - 1, FIRST_FILES - 1, 10_000)
    assert decide(files, DONE, StoreConfig(), NOW).merges == [Merge(TODAY, FIRST_SIZE)]


def test_files_that_the_first_merge_made_do_not_call_for_another():
    files = _files(TODAY, 10 * FIRST_FILES // 3, FIRST_SIZE * 9 // 10)
    assert decide(files, DONE, StoreConfig(), NOW).merges == []


def test_after_an_hour_every_day_with_files_to_merge_is_merged_to_full_size():
    config = StoreConfig(compact_size=Size(64 * MIB))
    files = _files(TODAY, 2, 10_000) + _files(TODAY - 1, 3, 20 * MIB) + _files(TODAY - 2, 1, 5)
    plan = decide(files, DONE, config, NOW + HOUR_NS)
    assert plan.second
    assert plan.merges == [Merge(TODAY - 1, 64 * MIB), Merge(TODAY, 64 * MIB)]


def test_files_of_full_size_are_left_alone():
    files = _files(TODAY, 50, 120 * MIB)
    assert decide(files, UpkeepState(), StoreConfig(), NOW).merges == []


def test_very_many_files_do_not_wait_for_the_hour():
    files = _files(TODAY, SECOND_FILES, FIRST_SIZE) + _files(TODAY - 1, 2, FIRST_SIZE)
    assert decide(files, DONE, StoreConfig(), NOW).merges == []
    size = StoreConfig().compact_size
    plan = decide([*files, *_files(TODAY, 1, FIRST_SIZE)], DONE, StoreConfig(), NOW)
    assert plan.merges == [Merge(TODAY - 1, size), Merge(TODAY, size)]


def test_vacuum_is_due_every_hour_and_a_full_one_every_day():
    def due(hours):
        return decide([], DONE, StoreConfig(), NOW + hours * HOUR_NS).vacuum

    assert [due(hours) for hours in (0, 1, 23, 24)] == [None, "removed", "removed", "all"]


def test_a_clock_that_was_put_back_makes_all_due():
    plan = decide(_files(TODAY, 2, 10), DONE, StoreConfig(), NOW - 365 * DAY_NS)
    assert (plan.vacuum, plan.second) == ("all", True)


def test_a_day_goes_once_all_of_it_is_older_than_the_age():
    config = StoreConfig(retention_age=Duration(2 * 86_400))
    files = [file for day in range(TODAY - 4, TODAY + 1) for file in _files(day, 1, 10)]
    midnight = TODAY * DAY_NS

    def below(now):
        return decide(files, DONE, config, now).delete_below

    assert below(midnight) == TODAY - 2
    assert below(midnight - 1) == TODAY - 3
    assert below(midnight + DAY_NS) == TODAY - 1


def test_the_oldest_days_go_while_the_table_is_too_large():
    config = StoreConfig(retention_size=Size(GIB))
    files = [file for back in range(4) for file in _files(TODAY - back, 4, 100 * MIB)]
    assert decide(files, DONE, config, NOW).delete_below == TODAY - 1
    assert decide(files[:8], DONE, config, NOW).delete_below is None


def test_today_stays_however_large_it_is():
    config = StoreConfig(retention_size=Size(1), retention_age=Duration(0))
    files = _files(TODAY, 3, GIB) + _files(TODAY - 1, 3, GIB)
    assert decide(files, DONE, config, NOW).delete_below == TODAY
    assert decide(files[:3], DONE, config, NOW).delete_below is None


def test_what_goes_is_not_merged_first():
    config = StoreConfig(retention_age=Duration(86_400))
    files = _files(TODAY - 2, 9, 10) + _files(TODAY - 1, 1, 10) + _files(TODAY, 9, 10)
    plan = decide(files, UpkeepState(), config, NOW)
    assert plan.merges == [Merge(TODAY, config.compact_size)]


def test_a_crowded_day_calls_for_an_upkeep_whenever_the_last_was():
    assert not calls(_files(TODAY, CROWDED - 1, 10_000), DONE, StoreConfig(), NOW)
    assert calls(_files(TODAY, CROWDED, 10_000), DONE, StoreConfig(), NOW)
    assert not calls(_files(TODAY, CROWDED, FIRST_SIZE), DONE, StoreConfig(), NOW)


def test_a_table_that_no_upkeep_has_seen_calls_once_it_has_many_files_of_any_size():
    assert not calls([], UpkeepState(), StoreConfig(), NOW)
    assert not calls(_files(TODAY, CROWDED - 1, 10_000), UpkeepState(), StoreConfig(), NOW)
    days = _files(TODAY, CROWDED - 1, FIRST_SIZE) + _files(TODAY - 1, 1, FIRST_SIZE)
    assert calls(days, UpkeepState(), StoreConfig(), NOW)


def test_an_hour_after_the_last_a_table_calls_if_there_is_anything_to_do():
    merged_then = UpkeepState(merged=NOW - HOUR_NS, vacuumed=NOW, swept=NOW)
    assert calls(_files(TODAY, 2, 10_000), merged_then, StoreConfig(), NOW)
    assert not calls(_files(TODAY, 1, 10_000), merged_then, StoreConfig(), NOW)
    assert not calls(_files(TODAY, 2, 10_000), DONE, StoreConfig(), NOW)
    assert calls([], DONE, StoreConfig(), NOW + HOUR_NS), "files that nobody needs may go"


def test_a_day_beyond_the_retention_calls_at_once():
    config = StoreConfig(retention_age=Duration(86_400))
    days = [file for day in range(TODAY - 3, TODAY + 1) for file in _files(day, 1, 10_000)]
    assert calls(days, UpkeepState(), config, NOW)
    assert not calls(_files(TODAY, 1, 10_000), UpkeepState(), config, NOW)


FILES = st.lists(
    st.builds(
        DataFile,
        st.just("path"),
        st.integers(TODAY - 9, TODAY + 1),
        st.integers(1, 200 * MIB),
        st.just(1),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(
    FILES,
    st.none() | st.integers(0, 12 * 86_400).map(Duration),
    st.none() | st.integers(0, 4 * GIB).map(Size),
)
def test_what_is_kept_obeys_both_limits_but_for_today(files, age, size):
    config = StoreConfig(retention_age=age, retention_size=size)
    below, held = decide(files, UpkeepState(trusted=NOW), config, NOW)[:2]
    assert held is None
    kept = [file for file in files if below is None or file.day >= below]
    newest = max((file.day for file in files if file.day <= TODAY), default=0)
    past = [file for file in kept if file.day < TODAY]
    if age is not None:
        assert all(NOW - (f.day + 1) * DAY_NS < age.ns for f in past if f.day < newest)
    if size is not None and past:
        assert sum(file.size for file in kept) <= size
    gone = [file for file in files if file not in kept]
    assert all(file.day < TODAY for file in gone)
    if age is None and size is None:
        assert not gone


@settings(deadline=None)
@given(FILES, st.integers(0, 2), st.integers(0, 200 * MIB))
def test_a_merge_is_planned_only_where_two_files_fit_into_one(files, hours, compact_size):
    config = StoreConfig(compact_size=Size(compact_size))
    for day, size in decide(files, DONE, config, NOW + hours * HOUR_NS).merges:
        smallest = sorted(file.size for file in files if file.day == day)[:2]
        assert len(smallest) == 2
        assert sum(smallest) <= size


@settings(deadline=None)
@given(FILES, st.sampled_from([UpkeepState(), DONE]), st.integers(0, 30))
def test_after_what_it_called_for_a_table_does_not_call_again(files, state, hours):
    now = NOW + hours * HOUR_NS
    if calls(files, state, StoreConfig(), now):
        plan = decide(files, state, StoreConfig(), now)
        assert plan.delete_below is not None or plan.vacuum is not None or plan.merges
        merged = {merge.day for merge in plan.merges}
        left = [file for file in files if file.day not in merged]
        left += [DataFile("merged", day, FIRST_SIZE, 1) for day in merged]
        done = UpkeepState(
            merged=now if plan.second else state.merged,
            vacuumed=now if plan.vacuum else state.vacuumed,
            swept=now if plan.vacuum == "all" else state.swept,
        )
        assert not calls(left, done, StoreConfig(), now)
