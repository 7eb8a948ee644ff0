"""Attributes of two records as those of one."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from tailrace.rows.fields import united

names = st.sampled_from(["a", "b", 'quo"te', "ü", "$flaw", "$name"])
values = (
    st.none() | st.integers(-3, 3) | st.text(max_size=3) | st.lists(st.integers(0, 1), max_size=2)
)
objects = st.none() | st.dictionaries(names, values).map(
    lambda each: json.dumps(each, separators=(",", ":"))
)


@given(objects, objects)
def test_a_span_has_the_attributes_of_its_end_and_its_begin_each_name_once(ends, begins):
    pairs = json.loads(united(ends, begins) or "{}", object_pairs_hook=list)
    found = dict(pairs)
    assert len(found) == len(pairs)
    ours, theirs = json.loads(ends or "{}"), json.loads(begins or "{}")
    changed = {name: value for name, value in theirs.items() if ours.get(name, value) != value}
    changed |= {n: v for n, v in theirs.items() if n in ours and type(ours[n]) is not type(v)}
    assert dict(found.pop("$begin", [])) == changed
    assert found == theirs | ours


def test_a_span_asks_for_the_names_of_members_as_both_of_its_records_do():
    found = united('{"$late":{"a":"k1"},"x":1}', '{"$late":{"b":"k2"},"x":1}')
    assert json.loads(found) == {"$late": {"a": "k1", "b": "k2"}, "x": 1}
