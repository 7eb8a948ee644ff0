"""Ids that records refer to, and the totals of a footer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.references import CLAIM_MAX, UNKNOWN_BYTES, References, ReferencesState
from tailrace.model.gap import Finding
from tailrace.units import Duration

SECOND = 10**9
LIMITS = LedgerConfig(reorder_time=Duration(2), references_max=8)
STREAM = ""


def references(limits=LIMITS):
    return References(limits, ReferencesState())


def said(ledger):
    """Return the findings, all of which are of the one stream and have no number."""
    assert {(f.stream, f.seq) for f in ledger.findings} <= {(STREAM, None)}
    return [(f.kind, f.reason, f.events, f.id, f.of) for f in ledger.findings]


@given(st.lists(st.integers(-8, 8), min_size=4, max_size=40))
def test_an_id_is_defined_exactly_when_it_came(defined):
    """In so narrow a range ids touch, join two ranges and come twice in most courses."""
    ledger = references(LedgerConfig())
    came = set()
    for id_ in defined:
        assert ledger.define(id_) == ("duplicate_id" if id_ in came else None)
        came.add(id_)
        assert [n for n in range(-10, 11) if ledger.defined(n)] == sorted(came)
        firsts, lasts = ledger.state.firsts, ledger.state.lasts
        assert all(last + 1 < first for last, first in zip(lasts, firsts[1:], strict=False))


@given(st.lists(st.integers(0, 10**6).map(lambda n: 2 * n), min_size=20, max_size=60, unique=True))
def test_memory_is_bounded_and_what_is_forgotten_is_never_claimed_missing(ids):
    """No two ids touch, so each is a range of its own until the older half is forgotten, twice at least."""
    ledger = references()
    longest = 0
    for id_ in ids:
        ledger.define(id_)
        longest = max(longest, len(ledger.state.firsts))
    assert longest == LIMITS.references_max
    assert all(ledger.defined(id_) for id_ in ids)
    assert not ledger.defined(max(ids) + 1)
    assert not ledger.defined(-1)


def test_each_unknown_id_is_one_missing_record_after_its_window():
    ledger = references()
    for _ in range(5):
        ledger.refer(7, now=0)
    ledger.refer(9, now=SECOND)
    ledger.expire(2 * SECOND)
    assert said(ledger) == [("gap", "unresolved", 1, 7, "begin")]
    ledger.close()
    ledger.refer(7, now=9 * SECOND)
    ledger.close()
    assert said(ledger)[1:] == [("gap", "unresolved", 1, 9, "begin")]


def test_a_definition_within_the_window_leaves_nothing_missing():
    ledger = references()
    ledger.refer(7, now=0)
    assert ledger.define(7) == "forward_reference"
    ledger.close()
    assert said(ledger) == []


def test_a_definition_after_its_gap_repays_it():
    ledger = references()
    ledger.refer(7, now=0)
    ledger.close()
    assert ledger.define(7) == "forward_reference"
    assert said(ledger)[1] == ("heal", "unresolved", 1, 7, "begin")
    assert ledger.account.missing == 0


def test_totals_tell_what_is_missing_of_each_kind():
    ledger = references()
    ledger.count("begin", 3)
    ledger.count("instant", 10)
    ledger.total({"begin": 3, "instant": 12, "annotation": 1})
    assert said(ledger) == [
        ("gap", "network", 1, None, "annotation"),
        ("gap", "network", 2, None, "instant"),
    ]


def test_ends_are_held_against_their_total_and_are_no_events():
    ledger = references()
    ledger.count("begin", 3)
    ledger.count("end", 1)
    assert ledger.account.seen == 3
    ledger.total({"begin": 3, "end": 3})
    assert said(ledger) == [("gap", "network", 2, None, "end")]
    assert (ledger.account.expected, ledger.account.missing) == (5, 2)
    ledger.count("end", 1)
    assert said(ledger)[1:] == [("heal", "network", 1, None, "end")]
    assert (ledger.account.expected, ledger.account.missing) == (4, 1)


def test_ends_that_an_earlier_version_did_not_count_are_not_missing():
    ledger = References(LIMITS, ReferencesState(seen={"begin": 3}))
    ledger.count("end", 1)
    ledger.total({"begin": 3, "end": 3, "instant": 1})
    assert said(ledger) == [("gap", "network", 1, None, "instant")]


def test_an_unresolved_or_malformed_record_is_not_missing_a_second_time_by_the_totals():
    ledger = references()
    ledger.count("begin", 3)
    ledger.refer(7, now=0)
    ledger.count("instant", 10)
    ledger.add_malformed(2)
    ledger.total({"begin": 4, "instant": 12})
    assert said(ledger) == [("gap", "unresolved", 1, 7, "begin")]
    assert ledger.account.missing == 3


def test_an_unresolved_record_is_one_that_began():
    ledger = references()
    assert not ledger.refer(7, now=0)
    ledger.count("begin", 1)
    ledger.define(8)
    assert ledger.refer(8, now=0)
    ledger.total({"begin": 2, "instant": 1})
    assert said(ledger) == [
        ("gap", "unresolved", 1, 7, "begin"),
        ("gap", "network", 1, None, "instant"),
    ]


def test_the_older_half_of_many_ranges_is_taken_as_one():
    ledger = references()
    for id_ in range(0, 18, 2):
        ledger.define(id_)
    assert [id_ for id_ in range(20) if not ledger.defined(id_)] == [7, 9, 11, 13, 15, 17, 18, 19]


def test_a_footer_that_comes_twice_says_nothing_new():
    ledger = references()
    ledger.count("begin", 1)
    ledger.refer(7, now=0)
    ledger.add_malformed(2)
    ledger.total({"begin": 2, "instant": 6})
    once = said(ledger)
    ledger.total({"begin": 2, "instant": 6})
    assert said(ledger) == once
    assert ledger.account.missing == 1 + 2 + 4


def test_records_after_the_footer_repay_what_it_lacked():
    ledger = references()
    ledger.total({"instant": 2})
    ledger.count("instant", 1)
    assert said(ledger) == [
        ("gap", "network", 2, None, "instant"),
        ("heal", "network", 1, None, "instant"),
    ]
    assert ledger.account.missing == 1


def test_a_footer_that_claims_less_than_came_says_nothing():
    ledger = references()
    ledger.count("instant", 5)
    ledger.total({"instant": 3})
    assert said(ledger) == []


def test_unknown_references_past_the_limit_are_given_up_oldest_first():
    ledger = references()
    for id_ in range(100, 120):
        ledger.refer(id_, now=0)
    assert len(ledger.state.unknown) == LIMITS.references_max
    assert len(ledger.state.unresolved) == LIMITS.references_max
    assert ledger.account.missing == 12


def test_the_state_survives_a_checkpoint():
    ledger = references()
    ledger.define(1)
    ledger.refer(5, now=3)
    ledger.refer(6, now=3)
    ledger.close()
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(ledger.state), type=ReferencesState)
    assert msgspec.to_builtins(saved) == msgspec.to_builtins(ledger.state)


def test_a_malformed_record_explains_one_missing_record_of_one_kind():
    ledger = references()
    ledger.add_malformed(1)
    ledger.add_malformed(2)
    ledger.total({"annotation": 2, "instant": 4})
    assert said(ledger) == [("gap", "network", 3, None, "instant")]
    ledger.total({"instant": 5})
    assert said(ledger)[1:] == [("gap", "network", 1, None, "instant")]
    assert ledger.account.missing == 7
    ledger.add_malformed(1)
    for _ in range(2):
        ledger.total({"instant": 6})
    assert len(said(ledger)) == 2
    assert ledger.account.missing == 8


@pytest.mark.parametrize(("copies", "estimate"), [(0, False), (1, True)])
def test_what_totals_lack_is_an_estimate_where_equal_datagrams_were_taken_for_copies(
    copies, estimate
):
    ledger = references()
    ledger.add_copies(copies)
    ledger.total({"instant": 1})
    assert [f.estimate for f in ledger.findings] == [estimate]
    assert ledger.account.duplicates == copies
    assert ledger.account.imbalance == 0


def test_a_total_beyond_belief_is_a_gap_of_unknown_size_and_hides_no_other():
    ledger = references()
    ledger.total({"annotation": CLAIM_MAX, "begin": CLAIM_MAX + 1, "instant": 2})
    assert said(ledger) == [
        ("gap", "network", CLAIM_MAX, None, "annotation"),
        ("gap", "network", 0, None, "begin"),
        ("gap", "network", 2, None, "instant"),
    ]
    assert ledger.account.missing == CLAIM_MAX + 2


def test_a_claim_of_the_decoder_is_missing_until_it_is_taken_back():
    ledger = references()
    claim = Finding("gap", STREAM, 4, 3, "network", detail="id")
    ledger.claim(claim)
    ledger.claim(claim._replace(seq=9, events=1))
    ledger.claim(claim._replace(kind="heal", seq=9, events=1))
    del ledger.findings[1:]
    ledger.claim(claim._replace(kind="heal", seq=5, events=2))
    assert ledger.account.missing == 1
    ledger.claim(claim._replace(kind="heal", events=2))
    assert ledger.account.missing == 1
    ledger.claim(claim._replace(kind="heal", events=1))
    assert ledger.account.missing == 0
    assert [(f.kind, f.seq, f.events) for f in ledger.findings] == [
        ("gap", 4, 3), ("heal", 5, 2), ("heal", 4, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "stands"), [(CLAIM_MAX, (4, CLAIM_MAX)), (CLAIM_MAX + 1, (None, 0))]
)
def test_a_claim_beyond_belief_is_a_gap_of_unknown_size(count, stands):
    ledger = references()
    ledger.claim(Finding("gap", STREAM, 4, count, "network", detail="id"))
    assert [(f.seq, f.events) for f in ledger.findings] == [stands]
    assert ledger.account.missing == stands[1]


KINDS = st.sampled_from(["begin", "instant", "annotation", "end"])
STEPS = st.one_of(
    st.tuples(st.just("count"), KINDS, st.integers(0, 4)),
    st.tuples(st.sampled_from(["add_malformed", "add_copies"]), st.integers(0, 3)),
    st.tuples(st.just("define"), st.integers(0, 12)),
    st.tuples(st.just("refer"), st.integers(0, 12), st.integers(0, 9).map(SECOND.__mul__)),
    st.tuples(st.just("expire"), st.integers(0, 9).map(SECOND.__mul__)),
    st.tuples(st.just("total"), st.dictionaries(KINDS, st.integers(0, 20))),
)


@given(st.lists(STEPS, max_size=40))
def test_the_findings_sum_up_to_what_is_missing(steps):
    """But for malformed records, which have rows of their own. No kind is repaid more than it lacks."""
    ledger = references()
    counted = dict.fromkeys(("begin", "instant", "annotation", "end", "malformed", "copies"), 0)
    for name, *arguments in steps:
        getattr(ledger, name)(*arguments)
        if name == "count":
            counted[arguments[0]] += arguments[1]
        elif name.startswith("add_"):
            counted[name.removeprefix("add_")] += arguments[0]
        state, account = ledger.state, ledger.account
        assert state.ends == counted["end"]
        assert (state.malformed, state.copies) == (counted["malformed"], counted["copies"])
        assert account.seen == sum(counted.values()) - state.ends - state.malformed
        assert state.unreported + sum(state.explained.values()) == state.malformed
        lacks = {}
        for f in ledger.findings:
            of = f.of, f.reason
            lacks[of] = lacks.get(of, 0) + (f.events if f.kind == "gap" else -f.events)
            assert lacks[of] >= 0
        assert sum(lacks.values()) == account.missing - state.malformed
        assert account.imbalance == 0
        assert list(ledger.awaited()) == ([(STREAM, len(state.unknown))] if ledger.waiting else [])


def test_giving_way_makes_unknown_ids_gaps_and_joins_ranges():
    ledger = references(LedgerConfig())
    for id_ in range(0, 100, 2):
        ledger.define(id_)
    for id_ in (1, 3, 5):
        ledger.refer(id_, SECOND)
    ledger.give_way(UNKNOWN_BYTES)
    assert said(ledger) == [("gap", "unresolved", 1, n, "begin") for n in (1, 3)]
    assert (ledger.evicted, ledger.defined(7)) == (2, False)
    assert ledger.define(1) == "forward_reference"  # a gap of before is repaid
    before = ledger.held
    ledger.give_way(before)
    assert ledger.held < before // 10
    assert said(ledger)[-2:] == [
        ("heal", "unresolved", 1, 1, "begin"), ("gap", "unresolved", 1, 5, "begin"),
    ]  # fmt: skip
    assert ledger.defined(7)  # nothing is claimed of it any more
    assert ledger.evicted > 40
    assert ledger.account.imbalance == 0


def test_an_id_that_is_awaited_is_no_duplicate_though_the_ranges_around_it_were_joined():
    ledger = references(LedgerConfig(references_max=4))
    ledger.define(1)
    ledger.refer(2, SECOND)
    ledger.expire(100 * SECOND)
    ledger.refer(4, 100 * SECOND)
    for id_ in (3, 5, 7, 9):
        ledger.define(id_)  # with all that lies between
    for id_ in (11, 13):
        ledger.define(id_)
    assert ledger.state.hull == (1, 7)
    assert (ledger.define(2), ledger.define(4)) == ("forward_reference",) * 2
    assert said(ledger) == [
        ("gap", "unresolved", 1, 2, "begin"), ("heal", "unresolved", 1, 2, "begin"),
    ]  # fmt: skip
    assert (ledger.define(2), ledger.waiting, ledger.account.missing) == ("duplicate_id", False, 0)
