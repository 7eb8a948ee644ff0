"""Compare the missing ranges of ids (`Ids`) with a plain set of ids."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from tailrace.decoding.formats.dftracer.run import HOLES_MAX, Ids, IdsState


def ranges(numbers: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


@given(st.lists(st.integers(1, 60), unique=True), st.integers(1, 10))
def test_holes_are_what_a_set_would_lack(numbers: list[int], cut: int) -> None:
    ids = Ids()
    for begin in range(0, len(numbers), cut):
        ids.add(numbers[begin : begin + cut])
        packed = msgspec.msgpack.encode(ids.state)
        ids = Ids(msgspec.msgpack.decode(packed, type=IdsState))
    assert ids.believed
    missing = set(range(1, max(numbers, default=0))) - set(numbers)
    assert ids.holes == ranges(missing)
    assert {number for number in range(-1, 70) if ids.lacks(number)} == missing


@given(st.lists(st.integers(-3, 12), min_size=1))
def test_a_number_that_comes_twice_or_is_below_1_is_no_counter(numbers: list[int]) -> None:
    ids = Ids()
    ids.add(numbers)
    assert ids.believed == (len(set(numbers)) == len(numbers) and min(numbers) > 0)
    assert ids.believed or not ids.holes


def test_what_is_not_believed_is_never_believed_again() -> None:
    ids = Ids()
    ids.add([1, 1])
    ids.add([2, 7])
    assert not ids.believed
    assert not Ids(ids.state).believed
    assert ids.holes == []


def test_memory_is_bounded() -> None:
    ids = Ids()
    ids.add(range(2, 2 * HOLES_MAX + 1, 2))
    assert len(ids.holes) == HOLES_MAX
    assert ids.given_up == 0
    ids.add([2 * HOLES_MAX + 2])
    assert ids.given_up == HOLES_MAX + 1
    assert not ids.believed
    assert ids.state == IdsState(believed=False)


def test_holes_that_fill_soon_count_however_the_numbers_are_cut() -> None:
    odd = range(2, 2 * HOLES_MAX + 4, 2)
    numbers = [*odd, *(number - 1 for number in odd)]
    whole, cut = Ids(), Ids()
    whole.add(numbers)
    for number in numbers:
        cut.add([number])
    assert whole.state == cut.state == IdsState(believed=False)
    assert whole.given_up == cut.given_up == HOLES_MAX + 1


@given(
    st.lists(st.integers(-1, 30), max_size=20),
    st.lists(st.integers(-1, 30), unique=True, max_size=20),
)
def test_ranges_say_what_their_numbers_say(before: list[int], numbers: list[int]) -> None:
    one_by_one, at_once = Ids(), Ids()
    for ids in (one_by_one, at_once):
        ids.add(before)
    one_by_one.add(numbers)
    assert at_once.add_ranges(ranges(set(numbers)), len(numbers))
    assert at_once.state == one_by_one.state


def test_ranges_are_refused_where_their_order_may_matter() -> None:
    ids = Ids()
    ids.add(range(2, 2 * HOLES_MAX - 1, 2))
    assert len(ids.holes) == HOLES_MAX - 1
    assert ids.add_ranges([(1, 1)], 0)
    assert ids.add_ranges([(2 * HOLES_MAX, 2 * HOLES_MAX)], 0)
    assert not ids.add_ranges([(3, 3)], 1)
    assert ids.lacks(3)
