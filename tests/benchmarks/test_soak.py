"""The soak: each event is stored once, named missing, or in a gap of unknown size, and the collector does not grow."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.places import PUBLISHED
from benchmarks.soak.__main__ import (
    PAGE,
    PICTURE,
    RESULTS,
    Results,
    faults,
    growth,
    page,
    picture,
)
from benchmarks.soak.driver import Plan, Soak
from benchmarks.soak.verdict import STRICT, Found, Life, Share, compare

PUBLISHED_RESULTS = msgspec.json.decode((PUBLISHED / RESULTS).read_bytes(), type=Results)


def check(outcome, kinds):
    assert [share.kind for share in outcome.shares] == sorted(kinds)
    for share in outcome.shares:
        assert share.faults == 0, share.named
        assert (share.open, share.lacking) == (0, 0), share
        parts = share.stored + share.counted + share.unknown + share.unshown
        assert parts == share.emitted > 0, share
        assert share.stored > 0, share
    assert outcome.checks
    assert not any(check.faults for check in outcome.checks)


def test_no_event_is_unaccounted_for_under_all_faults(tmp_path):
    soak = Soak(tmp_path, Plan(seconds=30.0, seed=1, rate=200.0))
    outcome = soak.run()
    check(outcome, soak.kinds)
    assert outcome.faults
    assert outcome.samples
    # One more event in the journal of each program that ended in order must be noticed.
    ended = [life for life in soak.lives if not life.killed and life.kind in STRICT]
    for life in ended:
        with (soak.journals / life.name).open("ab") as journal:
            journal.write(b".")
    shares = compare(soak.collector.store, ended, soak.journals)
    assert sum(share.unaccounted for share in shares) == len(ended) > 0


@pytest.mark.slow
def test_nor_does_the_collector_grow_in_ten_minutes(tmp_path):
    plan = Plan(seconds=600.0, seed=2, rate=300.0)
    soak = Soak(tmp_path, plan)
    outcome = soak.run()
    check(outcome, soak.kinds)
    compared = growth(outcome.samples, plan.seconds, busy=True)
    assert [each for each in compared if not each.is_within] == []


LIFE = Life("heph_tcp-00001", "heph_tcp", rate=10.0, killed=True, over=1.0)
ENDED = LIFE._replace(killed=False)
ALL = Found(sessions=True, rows=10, stored=10, most=9)
SEVEN = ALL._replace(rows=7, stored=7, most=6)


@pytest.mark.parametrize(
    ("life", "found", "member"),
    [
        (LIFE, SEVEN._replace(named=3), "counted"),
        (LIFE, SEVEN._replace(unknown=True), "unknown"),
        (LIFE, SEVEN._replace(closed=False), "open"),
        (LIFE, SEVEN, "unaccounted"),
        (ENDED, SEVEN._replace(unknown=True), "unaccounted"),
        (ENDED._replace(kind="heph_c"), SEVEN._replace(unknown=True), "unknown"),
        (LIFE._replace(kind="jets"), SEVEN, "unshown"),
        (LIFE._replace(kind="jets", rate=5.0), SEVEN, "unaccounted"),
        (ENDED._replace(kind="jets"), SEVEN, "unaccounted"),
    ],
)
def test_three_missing_events_are_in_one_place(life, found, member):
    share = Share(kind=life.kind)
    share.add(life, 10, found)
    parts = ("stored", "counted", "unknown", "unshown", "open", "unaccounted")
    assert {part: getattr(share, part) for part in parts if getattr(share, part)} == {
        "stored": 7,
        member: 3,
    }
    assert share.faults == (3 if member == "unaccounted" else 0)
    assert share.lacking == (3 if life is ENDED else 0)


def test_a_life_of_which_nothing_came_must_have_been_killed():
    share = Share(kind="heph_tcp")
    share.add(LIFE, 10, Found())
    share.add(LIFE._replace(killed=False), 10, Found())
    assert (share.unshown, share.unaccounted) == (10, 10)


@pytest.mark.parametrize(
    ("found", "member"),
    [
        (ALL._replace(rows=11), "twice"),
        (ALL._replace(most=10), "invented"),
        (ALL._replace(least=-1), "invented"),
    ],
)
def test_rows_that_no_journal_has_are_faults(found, member):
    share = Share(kind="heph_tcp")
    share.add(LIFE, 10, found)
    assert (getattr(share, member), share.faults, len(share.named)) == (1, 1, 1)


def test_the_published_run_has_no_fault():
    assert faults(PUBLISHED_RESULTS) == []
    check(PUBLISHED_RESULTS.outcome, [share.kind for share in PUBLISHED_RESULTS.outcome.shares])


def test_the_page_is_made_from_its_results():
    assert page(PUBLISHED_RESULTS) == (PUBLISHED / PAGE).read_text()
    assert picture(PUBLISHED_RESULTS) == (PUBLISHED / PICTURE).read_text()
