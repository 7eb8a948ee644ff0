"""Rows over ranges, held against the gaps that went in: nothing lost, nothing twice, and few rows."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.incarnation_rows import GapRows
from tailrace.ingest.state import StreamRows
from tailrace.model.gap import Finding
from tailrace.units import Duration

SECOND = 10**9
LIMITS = LedgerConfig(gap_rows_max=3, reorder_time=Duration(2))


def gap(seq, count=1, reason="network", stream="1", *, estimate=False):
    return Finding("gap", stream, seq, count, reason, estimate=estimate)


@pytest.fixture
def rows():
    return GapRows(LIMITS, {})


def short(findings):
    return [(f.kind, f.seq, f.events, f.last) for f in findings]


def test_a_few_gaps_are_rows_of_their_own_and_the_rest_is_one(rows):
    gaps = [gap(n) for n in range(0, 20, 2)]
    assert short(rows.write(gaps, 0)) == [("gap", n, 1, None) for n in (0, 2, 4)]
    assert rows.waiting
    assert short(rows.expire(2 * SECOND - 1)) == []
    assert short(rows.expire(2 * SECOND)) == [("gap", 6, 7, 18)]
    assert not rows.waiting
    assert rows.state == {}


def test_gaps_with_nothing_between_are_no_range(rows):
    list(rows.write([gap(n) for n in range(0, 6, 2)], 0))
    list(rows.write([gap(10, 5), gap(15, 2)], 0))
    assert short(rows.close()) == [("gap", 10, 7, None)]


def test_each_reason_and_stream_has_its_own(rows):
    for stream in ("1", "2"):
        list(rows.write([gap(n, stream=stream) for n in range(0, 6, 2)], 0))
        mixed = [gap(10, 2, "kernel", stream), gap(12, 1, "network", stream), gap(20, 1, "kernel", stream)]  # fmt: skip
        assert list(rows.write(mixed, 0)) == []
    written = [(f.stream, f.reason, f.seq, f.events, f.last) for f in rows.close()]
    assert written == [
        ("1", "kernel", 10, 3, 20),
        ("1", "network", 12, 1, None),
        ("2", "kernel", 10, 3, 20),
        ("2", "network", 12, 1, None),
    ]


def test_a_gap_is_written_before_it_is_healed(rows):
    list(rows.write([gap(n) for n in range(0, 10, 2)], 0))
    heal = Finding("heal", "1", 6, 1, "network")
    assert short(rows.write([heal], 0)) == [("gap", 6, 2, 8), ("heal", 6, 1, None)]


def test_records_without_a_number_are_not_held_back(rows):
    unresolved = [Finding("gap", "", None, 1, "unresolved", id_) for id_ in range(20)]
    assert list(rows.write(unresolved, 0)) == unresolved
    assert rows.state == {}


def test_a_heal_of_what_is_not_gathered_writes_nothing_else(rows):
    heal = Finding("heal", "1", 6, 1, "network")
    assert list(rows.write([heal], 0)) == [heal]
    list(rows.write([gap(n, reason="kernel") for n in range(0, 10, 2)], 0))
    assert list(rows.write([heal], 0)) == [heal]
    assert short(rows.close()) == [("gap", 6, 2, 8)]


@pytest.mark.parametrize("again", [15, 20, 21])
def test_a_gap_that_is_not_above_the_gathered_ones_is_a_row_of_its_own(rows, again):
    list(rows.write([gap(n) for n in (0, 2, 4, 10)] + [gap(20, 2)], 0))
    assert short(rows.write([gap(again)], 0)) == [("gap", again, 1, None)]
    assert short(rows.close()) == [("gap", 10, 3, 21)]


def test_a_gap_at_the_end_of_the_time_is_of_the_next(rows):
    list(rows.write([gap(n) for n in (0, 2, 4, 6)], 0))
    written = short(rows.write([gap(8)], 2 * SECOND))
    assert written == [("gap", 6, 1, None), ("gap", 8, 1, None)]


@pytest.mark.parametrize("estimates", [(True, False), (False, True), (False, False)])
def test_a_range_is_an_estimate_where_one_of_its_gaps_is(rows, estimates):
    list(rows.write([gap(n) for n in (0, 2, 4)], 0))
    list(rows.write([gap(6 + 2 * n, estimate=e) for n, e in enumerate(estimates)], 0))
    assert [f.estimate for f in rows.close()] == [any(estimates)]


def test_gathered_gaps_are_awaited_by_stream(rows):
    for stream in ("1", "2"):
        list(rows.write([gap(n, 3, stream=stream) for n in (0, 4, 8, 12, 16)], 0))
        list(rows.write([gap(20, 2, "kernel", stream)], 0))
    list(rows.write([gap(0, stream="3")], 0))
    assert list(rows.awaited()) == [("1", 8), ("2", 8)]


COURSE = st.lists(
    st.tuples(
        st.integers(1, 4), st.integers(1, 3), st.sampled_from(["network", "kernel"]),
        st.integers(0, SECOND) | st.just(2 * SECOND),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(COURSE, st.integers(0, 60))
def test_what_is_written_is_what_was_found(course, cut):
    state = {}
    rows = GapRows(LIMITS, state)
    written, missing, at, now = [], {}, 0, 0
    for number, (skip, count, reason, pause) in enumerate(course):
        if number == cut:
            saved = msgspec.msgpack.decode(
                msgspec.msgpack.encode(state), type=dict[str, StreamRows]
            )
            rows = GapRows(LIMITS, saved)
        at += skip
        missing.setdefault(reason, set()).update(range(at, at + count))
        written += rows.write([gap(at, count, reason)], now)
        written += rows.expire(now)
        at += count
        now += pause
    written += rows.close()
    spans = {}
    for finding in written:
        last = finding.last or finding.seq + finding.events - 1
        inside = {n for n in missing[finding.reason] if finding.seq <= n <= last}
        assert len(inside) == finding.events, (
            "the count is that of the numbers missing for the reason"
        )
        spans.setdefault(finding.reason, []).append((finding.seq, last))
    for reason, ranges in spans.items():
        ranges.sort()
        assert all(left[1] < right[0] for left, right in pairwise(ranges))
        assert sum(f.events for f in written if f.reason == reason) == len(missing[reason])
    windows = now // (2 * SECOND) + 1
    assert len(written) <= windows * (LIMITS.gap_rows_max + 2)
