"""The counters of a session, held against what was really dropped, doubled and reordered."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.state import decode, encode
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.counters import DUPLICATE, UNFOLLOWED_MAX, Counters
from tailrace.ledger.stream import HEAD, CountersState
from tailrace.model.gap import Finding
from tailrace.units import Duration

SECOND = 10**9
LIMITS = LedgerConfig(reorder_events=64, reorder_time=Duration(2))


def counters(limits=LIMITS, state=None, bits=32):
    return Counters(limits, bits, state or CountersState(), Commons(CommonsState()))


def events(numbers, stream="1", base_time=1_000_000):
    """(stream, counter, mark) of events whose marks grow with their number, as times do."""
    return [(stream, n % 2**32, base_time + 1000 * n) for n in numbers]


def feed(ledger, arrivals, now=0, chunk=7):
    """Feed in chunks; the unwrapped numbers given, up to a restart if there is one."""
    seqs = []
    for at in range(0, len(arrivals), chunk):
        streams, counts, marks = zip(*arrivals[at : at + chunk], strict=True)
        got, restart = ledger.observe(streams, counts, marks, now)
        seqs += got
        assert ledger.account.imbalance == 0
        if restart:
            return seqs, True
    return seqs, False


def missing_numbers(findings, stream="1"):
    """Return what gap rows claim and heal rows do not take back."""
    missing = set()
    for finding in findings:
        if finding.stream != stream:
            continue
        numbers = range(finding.seq, finding.seq + finding.events)
        if finding.kind == "gap":
            assert missing.isdisjoint(numbers), "a number claimed missing twice"
            missing.update(numbers)
        else:
            assert missing.issuperset(numbers), "healed what was not missing"
            missing.difference_update(numbers)
    return missing


@st.composite
def mangled(draw):
    """Numbered events of a few streams with losses, doubles and displacements within the window."""
    seed = draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    length = draw(st.integers(1, 400))
    first = draw(st.sampled_from([0, 2**32 - 50, 3 * 2**30]))
    lossy, doubled = draw(st.sampled_from([0, 0.02, 0.3])), draw(st.sampled_from([0, 0.05]))
    far = draw(st.sampled_from([0, 3, 30]))
    sent = list(range(first, first + length))
    kept = [n for n in sent if rng.random() >= lossy]
    twice = [n for n in kept if rng.random() < doubled]
    order = sorted(kept + twice, key=lambda n: n + rng.random() * far)
    return sent, kept, twice, order


@settings(max_examples=300, deadline=None)
@given(mangled(), st.integers(1, 50))
def test_missing_duplicate_and_numbers_are_exact_under_loss_duplication_and_reordering(case, chunk):
    sent, kept, twice, order = case
    ledger = counters(state=CountersState())
    seqs, restart = feed(ledger, events(order), chunk=chunk)
    ledger.windows.close()
    assert not restart
    stored = [seq for seq in seqs if seq != DUPLICATE]
    assert sorted(stored) == kept
    assert seqs.count(DUPLICATE) == len(twice) == ledger.account.duplicates
    if kept:
        begins = 0 if sent[0] < 2**31 else kept[0]
        assert missing_numbers(ledger.findings) == set(range(begins, kept[-1] + 1)) - set(kept)
    assert ledger.account.missing == len(missing_numbers(ledger.findings))


@settings(max_examples=100, deadline=None)
@given(mangled(), st.integers(0, 400))
def test_a_ledger_restored_from_its_state_goes_on_as_the_original(case, cut):
    *_, order = case
    arrivals = events(order)
    whole = counters()
    feed(whole, arrivals, chunk=1)
    first = counters()
    feed(first, arrivals[:cut], chunk=1)
    saved = decode(encode(first.state), CountersState)
    second = counters(state=saved)
    feed(second, arrivals[cut:], chunk=1)
    assert first.findings + second.findings == whole.findings
    assert encode(second.state) == encode(whole.state)
    assert (
        second.marks.held
        == whole.marks.held
        == 10 * sum(len(s.recent) + len(s.head) for s in whole.state.streams.values())
    )


@settings(max_examples=200, deadline=None)
@given(mangled(), st.integers(0, 2**32))
def test_lost_events_that_come_after_all_and_copies_behind_them_are_stored_once(case, seed):
    """Clients send again what was named missing, and more than that: copies of any number follow."""
    sent, kept, _, order = case
    rng = random.Random(seed)
    ledger = counters()
    feed(ledger, events(order))
    ledger.windows.close()
    begins = (sent[0] if sent[0] < 2**31 else min(kept)) if kept else len(sent)
    lost = sorted(set(range(begins, max(kept, default=0))) - set(kept))
    repaid = rng.sample(lost, len(lost) // 2)
    arrivals = repaid + rng.choices(kept, k=100) if kept else []
    rng.shuffle(arrivals)
    seqs, restart = feed(ledger, events(arrivals), now=3 * SECOND)
    assert not restart
    assert sorted(seq for seq in seqs if seq != DUPLICATE) == sorted(repaid)
    assert missing_numbers(ledger.findings) >= set(lost) - set(repaid)
    assert ledger.account.missing == len(lost) - len(repaid)
    assert ledger.account.expected == len(kept) + len(lost)


def test_a_number_that_is_repaid_takes_no_newer_numbers_place():
    """1100 and 1612 share a slot of the 512 marks that are remembered."""
    ledger = counters(LedgerConfig())
    feed(ledger, events([*range(1100), *range(1101, 2001)]))
    feed(ledger, events([1100]), now=3 * SECOND)
    seqs, _ = feed(ledger, events([1611, 1612, 1613]), now=3 * SECOND)
    assert seqs == [DUPLICATE] * 3
    assert ledger.account.expected == 2001
    assert ledger.account.duplicates == 3


def test_a_stream_that_begins_above_zero_joined_late():
    ledger = counters()
    feed(ledger, events([5, 6, 7]))
    ledger.windows.close()
    assert ledger.findings == [Finding("gap", "1", 0, 5, "late_join", estimate=False)]


def test_reordering_at_the_head_of_a_stream_is_neither_late_join_nor_duplicate():
    ledger = counters()
    seqs, _ = feed(ledger, events([1, 0, 2]), chunk=1)
    ledger.windows.close()
    assert seqs == [1, 0, 2]
    assert ledger.findings == []
    assert ledger.account.duplicates == 0


def test_the_counter_wraps_without_a_gap():
    ledger = counters()
    seqs, _ = feed(ledger, events(range(2**32 - 3, 2**32 + 3)))
    ledger.windows.close()
    assert seqs == list(range(2**32 - 3, 2**32 + 3))
    assert ledger.findings == []


def test_a_hole_becomes_a_gap_once_enough_later_events_came():
    ledger = counters()
    feed(ledger, events([0, 1, *range(3, 66)]), chunk=1)
    assert ledger.findings == []
    feed(ledger, events([66, 67]), chunk=1)
    assert [(f.seq, f.events, f.reason) for f in ledger.findings] == [(2, 1, "network")]


def test_a_hole_becomes_a_gap_once_its_time_has_passed():
    ledger = counters()
    feed(ledger, events([0, 2]), now=10 * SECOND)
    ledger.windows.expire(10 * SECOND + 2 * SECOND - 1)
    assert ledger.findings == []
    ledger.windows.expire(12 * SECOND)
    assert [(f.seq, f.events) for f in ledger.findings] == [(1, 1)]
    assert not ledger.windows.waiting


def test_an_event_that_comes_after_its_gap_was_declared_heals_it():
    ledger = counters()
    feed(ledger, events([0, 4]), now=0)
    ledger.windows.expire(3 * SECOND)
    feed(ledger, events([2]), now=4 * SECOND)
    assert [(f.kind, f.seq, f.events, f.reason) for f in ledger.findings] == [
        ("gap", 1, 3, "network"),
        ("heal", 2, 1, "network"),
    ]
    assert missing_numbers(ledger.findings) == {1, 3}
    assert ledger.account.missing == 2


def test_a_counter_and_times_that_fall_back_are_a_restart():
    ledger = counters()
    feed(ledger, events(range(100)))
    seqs, restart = feed(ledger, [("1", 0, 9_000), ("1", 1, 10_000)])
    assert restart
    assert seqs == []


def test_a_restart_is_never_billions_missing():
    ledger = counters()
    feed(ledger, events(range(100)))
    feed(ledger, [("1", 0, 900)])
    ledger.windows.close()
    assert sum(f.events for f in ledger.findings) == 0


def test_a_late_duplicate_of_an_early_event_is_no_restart():
    ledger = counters()
    feed(ledger, events(range(50)))
    seqs, restart = feed(ledger, events([0, 3]))
    assert not restart
    assert seqs == [DUPLICATE, DUPLICATE]


@pytest.mark.parametrize("first", [0, 2**32 - 3])
def test_what_came_near_zero_is_known_also_once_the_counter_has_wrapped(first):
    """A copy of an event near zero is none of the next run's, and the next run's is no copy."""
    ledger = counters()
    came = [("1", n % 2**32, 10_000 * (n - first)) for n in range(first, first + 300)]
    feed(ledger, came)
    ledger = counters(state=decode(encode(ledger.state), CountersState))
    copies = came[5:9]
    assert {count for _, count, _ in copies} < {*range(HEAD)}
    assert feed(ledger, copies) == ([DUPLICATE] * 4, False)
    assert feed(ledger, [("1", 5, 1_000)]) == ([], True)


def test_different_events_under_one_number_are_all_kept():
    ledger = counters()
    seqs, restart = feed(ledger, [("1", 0, 50_000), ("1", 1, 51_000), ("1", 1, 51_007)], chunk=1)
    assert not restart
    assert seqs == [0, 1, 1]
    assert ledger.account.duplicates == 0


def test_a_counter_that_never_counts_is_given_up_and_claims_nothing():
    ledger = counters()
    feed(ledger, [("1", 0, 50_000 + n) for n in range(200)], chunk=1)
    ledger.windows.close()
    assert ledger.findings == []
    assert ledger.account.seen == 200
    assert ledger.account.duplicates == 0


def test_a_number_before_the_first_of_all_is_kept_and_has_no_place():
    ledger = counters()
    feed(ledger, events(range(3)))
    seqs, _ = feed(ledger, [("1", 2**32 - 1, 1_009_500)])
    assert seqs == [None]
    assert ledger.account.seen == 4
    assert ledger.account.missing == 0


def test_a_counter_is_given_up_when_its_last_number_repeats_three_times_in_a_row():
    ledger = counters()
    feed(ledger, events(range(10)))
    others = [9, 9, 0, 9, 9, 5, 9, 9, 9, 9, 10]
    seqs, _ = feed(ledger, [("1", n, 1_009_500 + at) for at, n in enumerate(others)], chunk=1)
    assert seqs == [*others[:-2], None, None]
    assert ledger.state.streams["1"].counted is False
    assert ledger.numbers.ends() == {}
    assert ledger.account.seen == 10 + len(others)
    assert ledger.account.duplicates == 0


def test_what_was_forgotten_to_be_missing_is_kept_when_it_comes_and_what_came_is_a_duplicate():
    ledger = counters(LedgerConfig(reorder_events=8, holes_max=1))
    feed(ledger, events(n for n in range(400) if n % 100 not in (97, 98)))
    assert ledger._commons.state.forgotten == 2
    seqs, _ = feed(ledger, events([197, 198, 199, 297]), now=1)
    assert seqs == [197, 198, DUPLICATE, 297]


def test_streams_past_the_limit_are_counted_but_not_followed():
    ledger = counters(LedgerConfig(streams_max=2))
    seqs, _ = feed(ledger, [("a", 0, 1), ("b", 0, 1), ("c", 7, 1), ("c", 9, 2)])
    ledger.windows.close()
    assert seqs == [0, 0, None, None]
    assert unknown(ledger.findings) == [("c", "streams_max")]
    assert len(ledger.state.streams) == 2


@pytest.mark.parametrize("holes", [1, 3])
def test_holes_past_the_limit_are_closed_oldest_first(holes):
    ledger = counters(LedgerConfig(holes_max=holes))
    feed(ledger, events(range(0, 20, 2)), chunk=1)
    assert len(ledger.state.streams["1"].holes) == holes
    assert len(ledger.findings) == 9 - holes
    assert len(ledger.state.streams["1"].gaps) == min(holes, 9 - holes)


@pytest.mark.parametrize("window", [8, 64, 512])
def test_a_very_late_duplicate_of_an_early_event_is_no_restart(window):
    ledger = counters(LedgerConfig(reorder_events=window))
    feed(ledger, events(range(10_000)))
    seqs, restart = feed(ledger, events([0, 7, 63]))
    assert not restart
    assert seqs == [DUPLICATE] * 3


@pytest.mark.parametrize("last", [1000, 3 * 2**30, 2**32 - 3])
def test_a_number_ahead_with_a_time_far_behind_is_a_restart_and_not_a_hole(last):
    ledger = counters()
    feed(ledger, events([*range(10 if last < 2**31 else 0), last - 1, last], base_time=10**15))
    before = ledger.account.missing
    seqs, restart = feed(ledger, [("1", 20, 50_000)])
    assert restart
    assert seqs == []
    assert ledger.account.missing == before


def test_a_span_as_long_as_the_run_is_no_restart():
    """It began at tick 0, so its mark is half of that of a short one that ends together with it."""
    ledger = counters()
    feed(ledger, [("1", n, 2 * 10**9 * n + 80) for n in range(1000)])
    seqs, restart = feed(ledger, [("1", 1600, 10**9 * 1600 + 80)])
    assert not restart
    assert seqs == [1600]


def test_what_fits_a_run_that_is_over():
    ledger = counters()
    feed(ledger, events([*range(100), *range(103, 900)]))
    mark = 1_000_000 + 1000 * 101
    assert ledger.numbers.fits("1", 101, mark) == "near"
    assert ledger.numbers.fits("1", 850, 1_000_000 + 1000 * 850) == "same"
    assert ledger.numbers.fits("1", 850, 1_000_000) is None
    assert ledger.numbers.fits("1", 901, 1_000_000 + 1000 * 901) == "near"
    assert ledger.numbers.fits("1", 901, 1_000) is None
    assert ledger.numbers.fits("1", 5_000, 6_000_000) == "far"
    assert ledger.numbers.fits("1", 5_000, 1_000) is None
    assert ledger.numbers.fits("2", 0, 0) == "far"
    ledger.marks.give_way(2**20)
    assert ledger.numbers.fits("1", 850, 1_000_000 + 1000 * 850) == "old"
    assert ledger.numbers.fits("1", 3, 1_000_000 + 1000 * 3) == "old"


def test_all_sessions_of_a_source_share_its_limits():
    limits = LedgerConfig(source_streams_max=3, source_holes_max=4)
    commons = Commons(CommonsState())
    first, second = (Counters(limits, 32, CountersState(), commons) for _ in range(2))
    feed(first, [("a", 0, 9), ("b", 0, 9)])
    seqs, _ = feed(second, [("a", 0, 9), ("b", 0, 9)])
    assert seqs == [0, None]
    assert second.account.uncounted == 1
    first.release()
    assert feed(second, [("c", 0, 9)])[0] == [0]
    for ledger in (second, second):
        feed(ledger, events(range(0, 40, 2), stream="a"), chunk=3)
        assert commons.state.ranges == sum(s.ranges for s in ledger.state.streams.values())
    assert commons.state.ranges <= 4
    assert commons.state.forgotten > 0
    second.release()
    assert (commons.state.streams, commons.state.ranges) == (0, 0)


def unknown(findings):
    """Streams and limits of the gaps of unknown size."""
    assert all(f.seq is None and f.reason == "uncounted" for f in findings if not f.events)
    return [(f.stream, f.detail) for f in findings if not f.events]


def test_a_session_with_many_streams_gives_way_to_a_newcomer_and_says_what_it_may_lack():
    limits = LedgerConfig(source_streams_max=4)
    commons, reports = Commons(CommonsState()), []
    large = Counters(limits, 32, CountersState(), commons, name="large", report=reports.append)
    newcomer = Counters(limits, 32, CountersState(), commons, name="newcomer")
    feed(large, [("a", 0, 9), ("b", 0, 9), ("c", 0, 9), ("d", 0, 9)], now=1)
    feed(large, [("b", 3, 99)], now=2)
    feed(large, [("a", 1, 99), ("c", 1, 99), ("d", 1, 99)], now=3)
    assert feed(newcomer, [("b", 0, 9)], now=4)[0] == [0]
    assert reports == [4]
    assert [(f.stream, f.seq, f.events, f.reason) for f in large.findings] == [
        ("b", 1, 2, "network"),
        ("b", None, 0, "uncounted"),
    ]
    assert feed(large, [("b", 4, 100), ("b", 1, 20), ("a", 1, 99)], now=5)[0] == [None, None, -1]
    account = large.account
    assert (account.expected, account.seen, account.missing, account.duplicates) == (12, 11, 2, 1)
    assert account.imbalance == 0
    assert (commons.state.streams, commons.state.ranges) == (4, 0)
    assert commons.state.uncounted_sessions == 1
    large.release()
    newcomer.release()
    assert commons.state == CommonsState(known=5)


def test_a_stream_that_gave_way_is_not_begun_anew_even_where_nobody_remembers_its_name():
    limits = LedgerConfig(streams_max=1)
    commons = Commons(CommonsState())
    ledger = Counters(limits, 32, CountersState(), commons)
    many = [(str(n), n % 2, 9) for n in range(UNFOLLOWED_MAX + 10)]
    feed(ledger, many)
    assert len(ledger.state.unfollowed) == UNFOLLOWED_MAX
    named = unknown(ledger.findings)
    assert [stream for stream, _ in named] == [str(n) for n in range(1, UNFOLLOWED_MAX + 1)] + [""]
    ledger.findings.clear()
    ledger.free_places(1, 5)
    assert unknown(ledger.findings) == [("0", "source_streams_max")]
    assert feed(ledger, [("0", 1, 9), ("1", 0, 9), ("later", 7, 9), ("new", 0, 9)])[0] == [None, None, None, 0]  # fmt: skip
    assert ledger.account.imbalance == 0
    assert len(ledger.news) <= 2 * UNFOLLOWED_MAX + 10


def test_events_in_gaps_that_are_forgotten_are_given_up_but_not_those_that_were_discarded():
    ledger = counters(LedgerConfig(holes_max=2, reorder_events=1))
    feed(ledger, events([0, 3, 6, 9, 12, 15]), chunk=1)
    stream = ledger.state.streams["1"]
    lost = sum(hole.last - hole.first + 1 for hole in (*stream.holes, *stream.gaps))
    assert stream.given_up + lost == ledger.account.missing == 10
    assert stream.given_up > 0
    stream.gaps[0].reason = "sender"
    before = stream.given_up
    ledger.windows.forget_gap(stream)
    assert stream.given_up == before


@settings(max_examples=100, deadline=None)
@given(mangled(), st.integers(1, 20), st.integers(1, 6))
def test_ranges_are_counted_and_bounded_and_nothing_is_claimed_twice(case, chunk, most):
    *_, order = case
    limits = LedgerConfig(reorder_events=8, holes_max=5, source_holes_max=most)
    ledger = counters(limits)
    for at in range(0, len(order), chunk):
        feed(ledger, events(order[at : at + chunk]), chunk=chunk)
        stream = ledger.state.streams["1"]
        assert ledger._commons.state.ranges == stream.ranges <= max(most, 1)
        assert stream.gaps == sorted(stream.gaps, key=lambda gap: gap.first)
    ledger.windows.close()
    missing_numbers(ledger.findings)


def test_a_span_as_long_as_the_run_that_overtakes_others_is_no_restart():
    """Its mark is less than half of that of one which ended a little later and was before it."""
    ledger = counters()
    feed(ledger, [("1", n, 2 * 10**9 * n + 80) for n in range(1000)])
    _, restart = feed(ledger, [("1", 1003, 10**9 * 999 - 5_000)])
    assert not restart


@pytest.mark.parametrize("now", [0, 1000])
def test_a_small_event_after_a_hole_and_a_large_one_is_no_restart(now):
    """A producer whose times say nothing, or little: sizes are no times."""
    ledger = counters()
    _, restart = feed(ledger, [("1", 0, now + 60), ("1", 1, now + 65_000), ("1", 5, now + 50)])
    assert not restart


def test_an_event_of_another_stream_shows_that_a_holes_time_is_over():
    ledger = counters()
    feed(ledger, events([0, 2], stream="a"), now=0)
    feed(ledger, events([0, 2], stream="b"), now=SECOND)
    feed(ledger, events([0], stream="c"), now=2 * SECOND)
    assert [(f.stream, f.seq) for f in ledger.findings] == [("a", 1)]
    feed(ledger, events([1], stream="c"), now=3 * SECOND)
    assert [f.stream for f in ledger.findings] == ["a", "b"]


@pytest.mark.parametrize("announced", [True, False])
def test_where_gaps_are_forgotten_an_announced_session_stores_no_number_again(announced):
    ledger = counters(LedgerConfig(reorder_events=8, holes_max=1))
    ledger.announced = announced
    feed(ledger, events(n for n in range(400) if n % 100 not in (97, 98)))
    late, *copies = feed(ledger, events([197, 150, 150]), now=1)[0]
    assert late == (DUPLICATE if announced else 197)
    assert copies == [DUPLICATE if announced else 150] * 2


def test_an_event_from_a_forgotten_gap_contradicts_nothing():
    ledger = counters(LedgerConfig(reorder_events=64, holes_max=1))
    feed(ledger, events([*range(100), *range(101, 103), *range(104, 106), *range(107, 120)]))
    ledger.windows.close()
    (late,) = events([100])
    assert ledger.state.streams["1"].floor > 100
    assert not ledger.numbers.contradicts(*late)
    assert ledger.numbers.fits(*late) == "old"
