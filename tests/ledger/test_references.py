"""Ids that records refer to, and the totals of a footer."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.references import References, ReferencesState
from tailrace.units import Duration

SECOND = 10**9
LIMITS = LedgerConfig(reorder_time=Duration(2), references_max=8)


def references(limits=LIMITS):
    return References(limits, "", ReferencesState())


def said(ledger):
    return [(f.kind, f.reason, f.count, f.id, f.of) for f in ledger.findings]


@given(st.lists(st.integers(-50, 50)), st.lists(st.integers(-60, 60)))
def test_an_id_is_defined_exactly_when_it_came(defined, asked):
    ledger = references(LedgerConfig())
    broken = [ledger.define(id_) for id_ in defined]
    assert broken.count("duplicate_id") == len(defined) - len(set(defined))
    assert all(ledger.defined(id_) == (id_ in defined) for id_ in asked)
    firsts, lasts = ledger.state.firsts, ledger.state.lasts
    assert firsts == sorted(firsts)
    assert all(last + 1 < first for last, first in zip(lasts, firsts[1:], strict=False))


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_memory_is_bounded_and_what_is_forgotten_is_never_claimed_missing(ids):
    ledger = references()
    for id_ in ids:
        ledger.define(id_)
    assert len(ledger.state.firsts) <= LIMITS.references_max
    assert all(ledger.defined(id_) for id_ in ids)


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
    ledger = References(LIMITS, "", ReferencesState(seen={"begin": 3}))
    ledger.count("end", 1)
    ledger.total({"begin": 3, "end": 3})
    assert said(ledger) == []


def test_an_unresolved_or_malformed_record_is_not_missing_a_second_time_by_the_totals():
    ledger = references()
    ledger.count("begin", 3)
    ledger.refer(7, now=0)
    ledger.count("instant", 10)
    ledger.add_malformed(2)
    ledger.total({"begin": 4, "instant": 12})
    assert said(ledger) == [("gap", "unresolved", 1, 7, "begin")]
    assert ledger.account.missing == 3


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
    assert len(ledger.state.unresolved) <= LIMITS.references_max
    assert ledger.account.missing == 12


def test_the_state_survives_a_checkpoint():
    ledger = references()
    ledger.define(1)
    ledger.refer(5, now=3)
    ledger.refer(6, now=3)
    ledger.close()
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(ledger.state), type=ReferencesState)
    assert msgspec.to_builtins(saved) == msgspec.to_builtins(ledger.state)
