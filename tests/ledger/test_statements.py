"""A client's statements about its own numbers, held against what was really thrown away and lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.state import decode, encode
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.counters import UNFOLLOWED_MAX, Counters
from tailrace.ledger.statements import DISCARDED_MAX, RANGES_MAX, TAILS_MAX, Statements
from tailrace.ledger.stream import CountersState
from tailrace.model.gap import Finding, Reason
from tailrace.units import Duration
from tests.forms import examples
from tests.ledger.test_counters import events, feed

SECOND = 10**9
LIMITS = LedgerConfig(reorder_events=64, reorder_time=Duration(2))


def ledger(limits=LIMITS, bits=32):
    commons = Commons(CommonsState())
    counters = Counters(limits, bits, CountersState(), commons)
    return counters, Statements(counters)


def restored(counters):
    """Return the same ledger after a checkpoint."""
    saved = decode(encode(counters.state), CountersState)
    commons = counters._commons
    again = Counters(LIMITS, 32, saved, commons)
    again.findings += counters.findings
    return again, Statements(again)


def reasons(findings, stream="1"):
    """By number, why it is missing now. No number is claimed twice, or repaid for another reason."""
    missing = {}
    for finding in findings:
        assert finding.stream is not None
        if finding.stream != stream or finding.seq is None:
            continue
        for number in range(finding.seq, finding.seq + finding.events):
            if finding.kind == "gap":
                assert number not in missing
                missing[number] = finding.reason
            else:
                assert missing.pop(number) == finding.reason
    return missing


def ranges(numbers):
    """Numbers as ranges of a report: first and how many."""
    found = []
    for number in sorted(numbers):
        if found and sum(found[-1]) == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


@st.composite
def courses(draw):
    """A stream's numbers with what was thrown away, what was lost, and in which order things came."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    first = draw(st.sampled_from([0, 2**32 - 40]))
    share = draw(st.sampled_from([0, 0.05, 0.5]))
    far = draw(st.sampled_from([0, 3, 10]))
    sent = range(first, first + draw(st.integers(1, 300)))
    thrown = {n for n in sent if rng.random() < share} - {first}
    lost = {n for n in sent if n not in thrown and rng.random() < 0.1} - {first}
    steps = [(n + rng.random() * far, "event", n) for n in sent if n not in thrown | lost]
    # Reports come before or behind the events after them, some of them when their hole is a gap.
    late = draw(st.sampled_from([0, 100]))
    steps += [(n + rng.random() * (far + late), "report", (n, size)) for n, size in ranges(thrown)]
    for what in ("time", "checkpoint"):
        steps += [(first + rng.random() * len(sent), what, None) for _ in range(rng.randrange(4))]
    steps.append((sent.stop + rng.random() * far, "goodbye", None))
    # A number before the wrap of a stream comes first.
    steps.sort(key=lambda step: (first > 0 and step[1:] != ("event", first), step[0]))
    return sent, thrown, lost, [step[1:] for step in steps]


@examples(300)
@given(courses())
def test_each_number_that_did_not_come_is_missing_for_its_own_reason(course):
    sent, thrown, lost, steps = course
    counters, statements = ledger()
    now = 0
    for what, about in steps:
        if what == "event":
            feed(counters, events([about]), now=now)
        elif what == "report":
            statements.discarded([("1", about[0] % 2**32, about[1])], now)
        elif what == "goodbye":
            statements.goodbye({"1": sent.stop % 2**32}, now)
        elif what == "checkpoint":
            counters, statements = restored(counters)
        else:
            now += 3 * SECOND
            counters.windows.expire(now)
        assert counters.account.imbalance == 0
        stream = counters.state.streams.get("1")
        ranges_kept = stream.ranges if stream else 0
        assert not stream or all(d.first >= stream.next for d in stream.discarded)
        assert counters._commons.state.ranges == ranges_kept
    counters.windows.close()
    missing = reasons(counters.findings)
    assert missing.keys() == thrown | lost
    assert counters.account.missing == len(missing)
    assert {number for number, reason in missing.items() if reason == "sender"} == thrown


@settings(max_examples=100, deadline=None)
@given(courses(), st.integers(1, 6))
def test_within_tight_bounds_nothing_is_claimed_twice(course, most):
    sent, *_, steps = course
    counters, statements = ledger(
        LedgerConfig(reorder_events=8, reorder_time=Duration(2), holes_max=3, source_holes_max=most)
    )
    for what, about in steps:
        if what == "event":
            feed(counters, events([about]))
        elif what == "report":
            statements.discarded([("1", about[0] % 2**32, about[1])], 0)
        elif what == "goodbye":
            statements.goodbye({"1": sent.stop % 2**32}, 0)
        stream = counters.state.streams.get("1")
        assert counters.account.imbalance == 0
        assert counters._commons.state.ranges == (stream.ranges if stream else 0) <= max(most, 1)
    counters.windows.close()
    reasons(counters.findings)


def test_the_numbers_below_a_goodbye_are_missing_of_streams_of_which_nothing_came_too():
    counters, statements = ledger()
    feed(counters, events([0, 1]))
    statements.goodbye({"1": 4, "2": 3, "3": 0}, 0)
    counters.windows.close()
    assert reasons(counters.findings) == {2: "network", 3: "network"}
    assert reasons(counters.findings, "2") == dict.fromkeys(range(3), "network")
    assert set(counters.state.streams) == {"1", "2"}


def test_a_goodbye_that_is_behind_says_nothing():
    counters, statements = ledger()
    feed(counters, events(range(10)))
    statements.goodbye({"1": 4}, 0)
    statements.goodbye({"1": (10 + 2**31) % 2**32}, 0)
    assert counters.account.missing == 0
    assert counters.findings == []
    statements.goodbye({"1": 10}, 0)
    assert not counters.windows.waiting
    assert set(counters.state.streams) == {"1"}


def test_a_goodbye_in_the_upper_half_shows_that_all_of_an_unknown_stream_is_missing():
    """It may be about to wrap, and had an event: nobody knows how many. Nothing came, so it has no place."""
    counters, statements = ledger(LedgerConfig(streams_max=1))
    feed(counters, events([0]) + events([0], stream="uncounted"))
    counters.findings.clear()
    for _ in range(2):
        statements.goodbye({"1": 1, "0": 0, "uncounted": 2**31, "2": 2**31, "3": 2**32 - 1}, 0)
    assert counters.findings == [Finding("gap", "2", None, 0, "network", detail="goodbye")]
    assert counters.account.missing == 0
    assert set(counters.state.streams) == {"1"}


def test_goodbyes_are_believed_so_much_and_what_goes_beyond_is_named_once():
    counters, statements = ledger()
    finals = {str(n): 2**31 - 1 for n in range(9)} | {"9": TAILS_MAX - 7, "10": 8, "11": 7}
    statements.goodbye(finals, 0)
    statements.goodbye(finals, 0)
    counters.windows.close()
    assert counters.account.missing == TAILS_MAX
    (beyond,) = [f for f in counters.findings if not f.events]
    assert beyond == Finding("gap", "0", None, 0, "network", detail="goodbye")


def test_events_after_a_goodbye_count_as_ever():
    counters, statements = ledger()
    feed(counters, events([0, 1]))
    statements.goodbye({"1": 4}, 0)
    seqs, _ = feed(counters, events([2, 4, 6]))
    counters.windows.close()
    assert seqs == [2, 4, 6]
    assert reasons(counters.findings) == {3: "network", 5: "network"}


def test_a_run_that_ends_without_a_goodbye_went_at_least_as_far_as_it_threw_away():
    counters, statements = ledger()
    feed(counters, events([0, 1]))
    statements.discarded([("1", 4, 2)], 0)
    assert counters.account.missing == 0
    statements.over(0, comes_back=False)
    counters.windows.close()
    assert reasons(counters.findings) == {2: "network", 3: "network", 4: "sender", 5: "sender"}


def test_thrown_away_numbers_of_a_new_stream_are_no_late_joining():
    counters, statements = ledger()
    statements.discarded([("1", 0, 5)], 0)
    feed(counters, events([7]))
    counters.windows.close()
    assert reasons(counters.findings) == dict.fromkeys(range(5), "sender") | dict.fromkeys(
        (5, 6), "late_join"
    )


@pytest.mark.parametrize("first", [0, 5, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("count", [1, 2**31, 2**32 - 1])
def test_any_report_is_taken_and_makes_nothing_missing(first, count):
    counters, statements = ledger()
    feed(counters, events(range(10)))
    statements.discarded([("1", first, count), ("2", first, count)] * 3, 0)
    assert counters.account.missing == 0
    assert counters.account.imbalance == 0
    for stream in counters.state.streams.values():
        assert all(d.first <= d.last < stream.next + 2**32 for d in stream.discarded)
    feed(counters, events([10, 12]))
    assert counters.account.missing == 1


def test_a_report_of_very_many_ranges_costs_and_keeps_little():
    counters, statements = ledger()
    statements.discarded((("1", 2 * n, 1) for n in range(10**5)), 0)
    assert len(counters.state.streams["1"].discarded) == DISCARDED_MAX
    many = iter([("1", 0, 1)] * (RANGES_MAX + 5))
    statements.discarded(many, 0)
    assert len(list(many)) == 5


def test_a_number_that_is_sent_after_it_was_thrown_away_repays_its_gap():
    counters, statements = ledger()
    feed(counters, events([0, 4]))
    statements.discarded([("1", 1, 3)], 0)
    feed(counters, events([2]))
    counters.windows.close()
    feed(counters, events([3]))
    assert reasons(counters.findings) == {1: "sender"}
    assert counters.findings[-1][:5] == ("heal", "1", 3, 1, "sender")


def test_what_was_named_missing_and_is_then_said_to_be_thrown_away_is_named_anew():
    counters, statements = ledger()
    feed(counters, events([0, 9]))
    counters.windows.close()
    del counters.findings[:]
    for _ in range(2):
        statements.discarded([("1", 2, 3)], 0)
    assert counters.findings == [
        Finding("heal", "1", 2, 3, "network"),
        Finding("gap", "1", 2, 3, "sender"),
    ]
    assert counters.account.missing == 8


def test_a_stream_for_which_there_is_no_room_hides_no_other():
    counters, statements = ledger(LedgerConfig(streams_max=2))
    feed(counters, events([0], stream="a") + events([0], stream="b"))
    statements.discarded([("c", 1, 2), ("b", 1, 2)], 0)
    statements.goodbye({"c": 5, "d": 0, "e": 2**31, "b": 3, "a": 2}, 0)
    counters.windows.close()
    assert reasons(counters.findings, "b") == {1: "sender", 2: "sender"}
    assert reasons(counters.findings, "a") == {1: "network"}
    assert set(counters.state.streams) == {"a", "b"}


def test_a_stream_that_does_not_count_is_told_nothing():
    counters, statements = ledger()
    feed(counters, [("1", 0, 50_000 + n) for n in range(9)])
    statements.discarded([("1", 5, 2)], 0)
    statements.goodbye({"1": 9}, 0)
    assert counters.account.missing == 0
    assert counters.state.streams["1"].ranges == 0


@pytest.mark.parametrize("first", [0, 3 * 2**30])
def test_numbers_are_thrown_away_and_streams_end_in_either_half_of_the_range(first):
    counters, statements = ledger()
    statements.discarded([("1", first + 10, 5)], 0)
    feed(counters, events([first, first + 20]))
    statements.goodbye({"1": first + 22}, 0)
    counters.windows.close()
    missing = reasons(counters.findings)
    assert missing.keys() == {*range(first + 1, first + 20), first + 21}
    assert {n - first for n, reason in missing.items() if reason == "sender"} == set(range(10, 15))


def test_a_stream_of_which_one_event_was_lost_is_known_by_its_goodbye():
    counters, statements = ledger()
    statements.goodbye({"1": 1}, 0)
    counters.windows.close()
    assert reasons(counters.findings) == {0: "network"}


@pytest.mark.parametrize("say", ["discarded", "goodbye"])
def test_what_is_said_of_a_stream_that_may_have_lost_its_place_does_not_begin_it_anew(say):
    """More streams lost their places than are remembered by name; the client hears that this one is not counted."""
    counters, statements = ledger(LedgerConfig(streams_max=1))
    for number in range(UNFOLLOWED_MAX + 2):
        feed(counters, events([0], stream=str(number)))
    counters.free_places(1, 0)
    counters.news.clear()
    counters.findings.clear()
    arguments = {"discarded": [("0", 0, 1)], "goodbye": {"0": 1}}[say]
    getattr(statements, say)(arguments, 0)
    counters.windows.close()
    assert not counters.findings
    assert "0" not in counters.state.streams
    assert [*counters.news] == ["0"]


@pytest.mark.parametrize("say", ["discarded", "goodbye", "over"])
def test_there_is_news_of_the_streams_that_something_was_said_of(say):
    counters, statements = ledger()
    feed(counters, events([0], stream="a") + events([0], stream="b"))
    statements.discarded([("a", 5, 1)], 0)
    counters.news.clear()
    match say:
        case "discarded":
            statements.discarded([("a", 7, 1)], 0)
        case "goodbye":
            statements.goodbye({"a": 2}, 0)
        case "over":
            statements.over(0, comes_back=False)
    assert [*counters.news] == ["a"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(1, 12)), max_size=12))
def test_the_numbers_thrown_away_ahead_are_kept_as_few_ranges(said):
    counters, statements = ledger(bits=8)
    feed(counters, events([0]))
    numbers = set()
    for first, count in said:
        statements.discarded([("1", first, count)], 0)
        numbers |= {n for n in range(first, first + count) if n > 0}
        kept = counters.state.streams["1"].discarded
        expected = ranges(numbers)
        assert [[d.first, d.last - d.first + 1] for d in kept] == expected[:DISCARDED_MAX]
        numbers &= {n for d in kept for n in range(d.first, d.last + 1)}


def test_no_range_reaches_further_than_the_counter():
    counters, statements = ledger(bits=8)
    feed(counters, events([0, 1]))
    statements.discarded([("1", 5, 10**6)], 0)
    assert [(d.first, d.last) for d in counters.state.streams["1"].discarded] == [(5, 2 + 255)]


def test_what_another_collector_has_acknowledged_has_a_reason_of_its_own_and_is_not_asked_for():
    counters, statements = ledger()
    feed(counters, events([0, 9]))
    statements.discarded([("1", 1, 3), ("1", 20, 5)], 0, Reason.ELSEWHERE)
    counters.windows.close()
    found = reasons(counters.findings)
    assert found == dict.fromkeys(range(1, 4), "elsewhere") | dict.fromkeys(range(4, 9), "network")
    assert counters.state.streams["1"].discarded == [], "numbers ahead are to come"
