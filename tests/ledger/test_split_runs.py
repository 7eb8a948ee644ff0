"""Pieces of one run in thousands of files: the work grows with the number of pieces, and no faster."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest
from hypothesis import given, strategies as st

from tailrace.ledger import run_pieces, split_runs
from tailrace.ledger.run_pieces import SplitRunsState
from tailrace.ledger.split_runs import SplitRuns
from tailrace.model.gap import Reason
from tailrace.model.record import RunPiece

JOINING = {module.__file__ for module in (run_pieces, split_runs)}
FEW, MANY = 500, 5000
IDS = 10


@contextmanager
def counted_steps(found):
    """Append to `found` the number of lines and calls of the modules in `JOINING` that run meanwhile."""
    count = 0

    def step(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename not in JOINING:
            return None
        count += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)
    found.append(count)


def piece(place, count, size=IDS):
    first = IDS * place + 1
    last = IDS * count if place == count - 1 and size == IDS else 0
    return RunPiece(pid="7", host="n1", ranges=((first, first + size - 1),), last=last, counts=True)


def take(runs, place, count, size=IDS, said=None, copy=""):
    if said is None:
        said = Reason.LATE_JOIN if place else Reason.TRUNCATED
    times = (IDS * place, IDS * place + size)
    return runs.take(f"{copy}s{place}", piece(place, count, size), times, said)


def one_after_the_other(runs, count):
    """Each file is read to its end and closed before the next."""
    for place in range(count):
        take(runs, place, count)
        runs.over(f"s{place}")


def open_at_once(runs, count):
    """All files stay open, and the first one comes last."""
    for place in reversed(range(count)):
        take(runs, place, count)
        runs.tell(0)


def growing(runs, count):
    """Each file has a half of its events at first, and then all."""
    for size in (IDS // 2, IDS):
        for place in range(count):
            take(runs, place, count, size, None if size < IDS else "")
            runs.tell(0)


def twice(runs, count):
    """Each file has a copy, and all stay open."""
    for copy in ("", "copy-"):
        for place in range(count - 1):
            take(runs, place, count, copy=copy)


def a_piece_of_islands(runs, count):
    """Behind all other files, one has many single ids, and grows."""
    for place in range(count):
        take(runs, place, count + 1)
    for more in range(3):
        ids = tuple((IDS * count + 2 * n + 1,) * 2 for n in range(count // 2 + more))
        island = RunPiece(pid="7", host="n1", ranges=ids, counts=True)
        runs.take("late", island, (IDS * count, IDS * count * (2 + more)), "")


def replaced(runs, count):
    """One file has all pieces of a run but the first, and is read again."""
    for place in range(count):
        times = (IDS * place, IDS * (place + 1))
        runs.take("first" if not place else f"rest.{place}", piece(place, count + 1), times, "")
    runs.replaced("rest")


@pytest.mark.parametrize(
    "arrive",
    [one_after_the_other, open_at_once, growing, twice, a_piece_of_islands, replaced],
)
def test_ten_times_the_pieces_take_about_ten_times_the_steps(arrive):
    found = []
    for count in (FEW, MANY):
        runs = SplitRuns(SplitRunsState())
        with counted_steps(found):
            arrive(runs, count)
    assert found[1] < 1.5 * MANY / FEW * found[0]


@given(st.data())
def test_growing_pieces_leave_the_ranges_that_their_last_states_have(data):
    """A piece grows at either end and in time. Ranges keep the latest start and the earliest end of what they contain."""
    runs, at = SplitRuns(SplitRunsState()), {}
    count = data.draw(st.integers(2, 6))
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, count - 1))
        before, behind = at.get(place, (data.draw(st.integers(2, IDS - 2)), 0))
        if place in at:
            before -= data.draw(st.integers(0, min(before - 1, 2)))
        behind = max(behind, before, data.draw(st.integers(before, IDS)))
        at[place] = before, behind
        first, last = IDS * place + before, IDS * place + behind
        ids = RunPiece(pid="7", host="n1", ranges=((first, last),))
        runs.take(f"s{place}", ids, (first - 1, last + 1), "")
        for number, run in runs.state.runs.items():
            assert run.ranges == run_pieces.ranges_of(run)
            again = run_pieces.RunIndex(run)
            for session in run.pieces:
                assert runs.goes_on(session) == again.goes_on(session)
            assert runs._index[number].counting == again.counting


def test_a_piece_that_shrinks_is_placed_again():
    """A decoder may take ids back. Files beside the piece learn that they go on, and the ranges have what is left."""
    runs = SplitRuns(SplitRunsState())
    told = []
    for place in range(3):
        runs.resting[f"s{place}"] = lambda now, place=place: told.append(place)
    take(runs, 0, 9)
    take(runs, 1, 9, 6)
    runs.tell(0)
    assert told == [0]
    fewer = RunPiece(pid="7", host="n1", ranges=((11, 12), (15, 16)))
    runs.take("s1", fewer, (10, 16), "")
    [run] = runs.state.runs.values()
    assert [(each.first, each.last) for each in run.ranges] == [(1, 12), (15, 16)]
    assert run.ranges == run_pieces.ranges_of(run)
    take(runs, 2, 9)
    runs.tell(0)
    assert told == [0, 1]
