"""Compare `Forgotten` with sets of event numbers, which give the right result if only numbers matter."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from clients.python.tests.recorders import PURE, recorder_of
from tailrace_client._chunk import Chunk, runs
from tailrace_client._queue import Forgotten
from tailrace_client._session import Answer, Range

NUMBERS = st.integers(0, 60)
HOLES = st.lists(st.tuples(NUMBERS, st.integers(1, 9)), max_size=4)
CHUNKS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 1)), max_size=30)
ANSWERS = st.lists(st.tuples(st.integers(0, 9), NUMBERS, HOLES), max_size=6)


@settings(max_examples=300)
@given(CHUNKS, ANSWERS)
def test_it_is_what_sets_of_numbers_say(chunks, answers):
    """Each chunk is sent after the same announcement (turn) as the chunk before, or after the next one."""
    forgotten, open_, lost = Forgotten(), {}, set()
    at = turn = 0
    for skipped, size, more in chunks:
        turn += more
        first = at + skipped
        forgotten.add(Chunk(b"x" * size, 1, first, first + size), 10 * first, turn)
        open_ |= dict.fromkeys(range(first, first + size), turn)
        at = first + size
    for answered, below, holes in answers:
        named = {1: [Range(1, first, first + size) for first, size in holes]} if holes else {}
        found = forgotten.settle(Answer(answered, {1: below}, named))
        missing = {n for first, size in holes for n in range(first, first + size)}
        gone = {
            number
            for number, sent in open_.items()
            if sent < answered and (number in missing if number < below else not holes)
        }
        durable = set(range(below)) - missing
        open_ = {n: sent for n, sent in open_.items() if n not in gone | durable}
        lost |= gone
        assert {n for _, r in found for n in range(r.first, r.next)} == gone
        assert sum(r.next - r.first for _, r in found) == len(gone)
        assert {
            n for first, next_ in forgotten.spans(1) for n in range(first, next_)
        } == open_.keys()
        assert bool(forgotten) == bool(open_)


def test_a_collector_that_never_answers_costs_no_more_and_more():
    forgotten = Forgotten()
    for turn in range(10_000):
        forgotten.add(Chunk(b"x", 1, turn, turn + 1), turn, turn)
    assert len(forgotten.spans(1)) <= 64
    assert forgotten.begin == 0
    assert forgotten.settle(Answer(10**6, {1: 0}))[0] == (0, Range(1, 0, 1))


def test_answers_cut_it_into_no_more_and_more_pieces():
    forgotten = Forgotten()
    forgotten.add(Chunk(b"x" * 5000, 1, 0, 5000), 0, 0)
    forgotten.settle(Answer(0, {1: 5000}, {1: [Range(1, n, n + 1) for n in range(0, 5000, 2)]}))
    spans = forgotten.spans(1)
    assert len(spans) == 1024
    assert (spans[0], spans[-1]) == ((0, 1), (2046, 4999))
    lost = forgotten.settle(Answer(1, {1: 5000}, {1: [Range(1, 4998, 4999)]}))
    assert lost == [(0, Range(1, 4998, 4999))]
    assert not forgotten


def test_runs_are_the_events_that_a_chunk_has():
    """Some events in the middle of the chunk were discarded."""
    recorder = recorder_of(PURE, limit=1000, chunk=10**6)
    for _ in range(30):
        recorder.event("x")
    (before,) = recorder.take()
    recorder.release(len(before.data))
    for number in range(9):
        recorder.event("x", text="tailrace.report" if number == 7 else b"")
    (after,) = recorder.take()
    assert list(runs(before)) == [(0, before.next)]
    assert list(runs(after)) == [(30, 39)]
    whole = Chunk(before.data + after.data, 1, 0, 39)
    assert list(runs(whole)) == [(0, before.next), (30, 39)]
    assert before.next < 30
