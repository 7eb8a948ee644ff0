"""The bounds on what is remembered as missing: which range gives way, and how many are left."""

from __future__ import annotations

from tailrace.config.schema import LedgerConfig
from tests.ledger.test_counters import SECOND, events, feed
from tests.ledger.test_statements import ledger


def spans(ranges):
    return [(r.first, r.last) for r in ranges]


def kept(counters, name):
    """Return the ends of a stream's open holes, of its gaps and of what its client discarded."""
    stream = counters.state.streams[name]
    return spans(stream.holes), spans(stream.gaps), spans(stream.discarded)


def closed(counters):
    return [(f.kind, f.stream, f.seq, f.events, f.reason) for f in counters.findings]


def sums(counters):
    """Return how many ranges the source counts, and how many gaps it has forgotten."""
    state = counters._commons.state
    assert state.ranges == sum(stream.ranges for stream in counters.state.streams.values())
    return state.ranges, state.forgotten


def test_past_a_streams_bound_its_oldest_hole_is_closed():
    counters, _ = ledger(LedgerConfig(holes_max=2))
    feed(counters, events([0, 2, 4, 6]))
    assert closed(counters) == [("gap", "1", 1, 1, "network")]
    assert kept(counters, "1") == ([(3, 3), (5, 5)], [(1, 1)], [])
    assert sums(counters) == (3, 0)


def test_a_gap_that_a_late_event_splits_past_the_streams_bound_costs_the_lower_part():
    counters, _ = ledger(LedgerConfig(holes_max=1))
    feed(counters, events([0, 2], stream="other"))
    feed(counters, events([0, 4]), now=SECOND)
    counters.windows.close()
    assert sums(counters) == (2, 0)
    feed(counters, events([2]), now=2 * SECOND)
    assert kept(counters, "1") == ([], [(3, 3)], [])
    assert counters.state.streams["1"].floor == 2
    assert sums(counters) == (2, 1)


def test_as_many_ranges_as_a_source_may_have_stay_open():
    counters, _ = ledger(LedgerConfig(source_holes_max=3))
    feed(counters, events([0, 2], stream="a"))
    feed(counters, events([0, 2, 4], stream="b"))
    assert kept(counters, "a") == ([(1, 1)], [], [])
    assert kept(counters, "b") == ([(1, 1), (3, 3)], [], [])
    assert counters.findings == []
    assert sums(counters) == (3, 0)


def test_past_a_sources_bound_the_stream_with_the_next_hole_closes_its_oldest():
    counters, _ = ledger(LedgerConfig(source_holes_max=2))
    feed(counters, events([0, 2], stream="a"))
    feed(counters, events([0, 2], stream="b"))
    for oldest in [1, 3]:
        feed(counters, events([oldest + 3], stream="b"))
        assert closed(counters)[-1] == ("gap", "b", oldest, 1, "network")
        assert kept(counters, "b") == ([(oldest + 2, oldest + 2)], [], [])
        assert counters.state.streams["b"].floor == oldest + 1
    assert kept(counters, "a") == ([(1, 1)], [], [])
    assert len(counters.findings) == 2
    assert sums(counters) == (2, 2)


def test_past_a_sources_bound_a_gap_is_forgotten_before_a_hole_is_closed():
    counters, _ = ledger(LedgerConfig(source_holes_max=2))
    feed(counters, events([0, 2]))
    counters.windows.close()
    feed(counters, events([4, 6]))
    assert closed(counters) == [("gap", "1", 1, 1, "network")]
    assert kept(counters, "1") == ([(3, 3), (5, 5)], [], [])
    assert sums(counters) == (2, 1)


def test_past_a_sources_bound_what_was_discarded_goes_first_and_the_highest_of_it_before_the_rest():
    counters, statements = ledger(LedgerConfig(source_holes_max=5))
    feed(counters, events([0, 2], stream="other"))
    feed(counters, events([0, 10]))
    statements.discarded([("1", 20, 1), ("1", 22, 1), ("1", 24, 1)], 0)
    assert sums(counters) == (5, 0)
    statements.discarded([("1", 4, 2)], 0)
    assert kept(counters, "1") == ([(1, 3), (4, 5), (6, 9)], [], [(20, 20)])
    assert counters.findings == []
    assert sums(counters) == (5, 0)


def test_a_streams_only_range_stays_however_many_others_have():
    counters, _ = ledger(LedgerConfig(source_holes_max=1))
    for name in "abc":
        feed(counters, events([0, 2], stream=name))
    assert [kept(counters, name) for name in "abc"] == [([(1, 1)], [], [])] * 3
    assert counters.findings == []
    assert sums(counters) == (3, 0)
