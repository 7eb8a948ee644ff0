"""Choose between the short form of a test and the long one: the number of a property's examples, and the cases whose turn
it is.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import pytest
from hypothesis import settings

from tests.parts import today
from tests.program import TRUE

SHARE = 3
"""In the short form, one example in this number is drawn. Each run draws others."""


def is_long() -> bool:
    """Return whether this run is one of the long forms (`--slow`)."""
    return TRUE in os.environ


def examples(number, **others):
    """Return the settings of a property with this number of examples in the long form (`--slow`), and further settings
    of hypothesis.
    """
    number = number if is_long() else number // SHARE
    return settings(max_examples=number, deadline=None, **others)


TURN = "TESTS_TURN"
"""Environment variable with the number of the turn. Without it, the turn is the current date."""


def this_turn() -> int:
    """Return the number of the turn. All processes of a run have the same, even if the run lasts past midnight."""
    return int(os.environ.setdefault(TURN, str(today())))


def in_turn(*axes: Sequence[object], ways: int | None = None) -> list[object]:
    """Return the combinations of the values of some axes, as parameters of a test.

    In the short form, one combination in `ways` runs, and in the next turn another one. `ways` is the length of the last
    axis unless it is given: then each combination of values of the other axes runs in each turn, with one value of the
    last axis. The long form (`--slow`) runs all combinations.
    """
    ways = ways or len(axes[-1])
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, places, strict=True)),
            marks=[pytest.mark.slow] if (sum(places) + this_turn()) % ways else [],
        )
        for places in itertools.product(*(range(len(axis)) for axis in axes))
    ]
