"""How the containers of one session share what it has to give up."""

from __future__ import annotations

import pytest

from tailrace.ingest.limits import give_way
from tailrace.model.holding import Evicted


class Container:
    """Entries of equal size, of which the oldest are given up first."""

    def __init__(self, entries, size=1, what=Evicted.MARKS):
        self.what, self.evicted = what, 0
        self._entries, self._size = entries, size

    @property
    def held(self):
        return self._entries * self._size

    def give_way(self, size):
        goal = max(0, self.held - size)
        while self._entries and self.held > goal:
            self._entries -= 1
            self.evicted += 1


@pytest.mark.parametrize(
    ("held", "size", "left"),
    [
        ((100, 90), 50, [70, 70]),
        ((90, 100), 5, [90, 95]),
        ((100, 90, 10), 50, [70, 70, 10]),
        ((100, 90), 10, [90, 90]),
        ((100, 90), 190, [0, 0]),
        ((100, 90), 500, [0, 0]),
        ((100,), 30, [70]),
        ((), 30, []),
    ],
)
def test_the_largest_containers_give_way_down_to_the_size_of_the_next(held, size, left):
    containers = [Container(each) for each in held]
    give_way(containers, size)
    assert [each.held for each in containers] == left


def test_a_container_that_frees_more_than_it_was_asked_for_spares_the_others():
    coarse, fine = Container(1, size=100), Container(90)
    give_way([coarse, fine], 60)
    assert (coarse.held, fine.held) == (0, 90)


def test_as_much_is_free_as_was_asked_for_however_large_the_entries_are():
    containers = [Container(7, size=13), Container(9, size=10), Container(80)]
    before = sum(each.held for each in containers)
    give_way(containers, 101)
    assert before - sum(each.held for each in containers) >= 101
