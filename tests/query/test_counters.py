"""Test the view `counters`: the numbers in a counter's attributes must be those that a second implementation in Python
finds.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from tests.forms import examples
from tests.query.memory import Views
from tests.query.tables import SECOND, clocked, row

NUMBERS = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 1e300, 2**53 + 1])
)
OTHERS = st.none() | st.booleans() | st.text(max_size=3) | st.just({"$f64": "7ff8000000000000"})
NAMES = st.sampled_from(["value", "tailrace.counter", "a", "a/b", "~", "", "$.x", "é"])
ARGS = st.dictionaries(NAMES, NUMBERS | OTHERS, max_size=4) | NUMBERS | OTHERS
ATTRIBUTES = st.fixed_dictionaries(
    {}, optional={"value": NUMBERS | OTHERS, "tailrace.counter": NUMBERS | OTHERS, "args": ARGS}
).map(json.dumps) | st.sampled_from(["", "no JSON", "[1]", "7", None])


@pytest.fixture(scope="module")
def views():
    return Views()


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(name, attributes):
    """Return the numbers in the attributes of a counter, by name."""
    try:
        members = json.loads(attributes or "")
    except ValueError:
        members = None
    if not isinstance(members, dict):
        members = {}
    for key in ("value", "tailrace.counter"):
        if is_number(members.get(key)):
            return [(name, members[key])]
    args = members.get("args")
    several = args.items() if isinstance(args, dict) else ()
    found = [(key if name is None else f"{name}.{key}", v) for key, v in several if is_number(v)]
    return found or [(name, None)]


@examples(60)
@given(st.lists(st.tuples(st.none() | st.just("load"), ATTRIBUTES), min_size=1, max_size=12))
def test_a_counter_has_a_row_for_each_number_that_it_gave(views, counters):
    rows = [
        row("counter", name=name, attributes=attributes, offset=place)
        for place, (name, attributes) in enumerate(counters)
    ]
    found = views.of(rows, 'SELECT "offset", name, value, attributes FROM counters')
    expected = [
        (place, called, None if number is None else float(number), attributes)
        for place, (name, attributes) in enumerate(counters)
        for called, number in numbers(name, attributes)
    ]
    assert sorted(map(repr, (tuple(each.values()) for each in found))) == sorted(
        map(repr, expected)
    )


def test_a_counter_has_its_time_and_its_place(views):
    rows = [
        clocked(epoch=1000, ticks_per_second=SECOND),
        row("counter", name="load", start=5, seq=3, category="cpu", attributes={"value": 0.5}, offset=40),
        row("instant", name="load", start=6, attributes={"value": 7}, offset=50),
    ]  # fmt: skip
    (counter,) = views.of(rows, "SELECT * EXCLUDE (wall) FROM counters")
    wanted = {"source": "sim", "session": "a", "stream": "1", "seq": 3, "name": "load", "value": 0.5,
              "category": "cpu", "start": 5, "time": 1005, "aligned": 5, "offset": 40}  # fmt: skip
    assert counter.items() >= wanted.items()


def test_a_name_that_came_late_is_in_front_of_the_numbers_names(views):
    rows = [
        row("counter", id=7, attributes={"args": {"user": 1, "system": 2}}, offset=1),
        row("name", stream="", name="cpu", id=7, offset=2),
    ]
    found = views.of(rows, "SELECT name, value FROM counters ORDER BY name")
    assert [tuple(each.values()) for each in found] == [("cpu.system", 2.0), ("cpu.user", 1.0)]
