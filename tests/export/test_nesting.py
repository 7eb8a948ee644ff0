"""Slices on tracks, as a viewer puts them together again."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tailrace.export.drawing import DEEPEST, Nesting

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 20))), max_size=40
)


def drawn(spans):
    """The spans as tracks give them back, and how deep they nest; begins and ends in order of time."""
    nesting = Nesting()
    events = []
    for begin, end in spans:
        number, ended = nesting.begin(begin, end)
        events += [(track, time, "E") for track, time in ended]
        events.append((number, begin, "B"))
    events += [(track, time, "E") for track, time in nesting.rest()]
    stacks, found, deepest = {}, [], 0
    for track, time, phase in sorted(events, key=lambda event: event[1]):
        stack = stacks.setdefault(track, [])
        if phase == "B":
            stack.append(time)
            deepest = max(deepest, len(stack))
        else:
            found.append((stack.pop(), time))
    found += [(begin, None) for stack in stacks.values() for begin in stack]
    return sorted(found, key=str), len(stacks), deepest


@given(SPANS)
def test_every_span_comes_back_with_its_times(given_spans):
    spans = [(begin, None if more is None else begin + more) for begin, more in given_spans]
    in_order = sorted(spans, key=lambda s: (s[0], -(99 if s[1] is None else s[1])))
    for each in (spans, in_order):
        assert drawn(each)[0] == sorted(spans, key=str)


def test_spans_that_nest_take_one_track():
    assert drawn([(0, 9), (0, 4), (1, 4), (4, 4), (4, 9), (9, 10)])[1] == 1


def test_spans_that_overlap_take_as_many_tracks_as_they_must():
    assert drawn([(0, 4), (2, 6), (3, 8), (4, 7)])[1] == 3


def test_no_track_is_deeper_than_viewers_draw():
    spans = [(n, None) for n in range(2 * DEEPEST + 1)]
    found, tracks, deepest = drawn(spans)
    assert len(found) == len(spans)
    assert (tracks, deepest) == (3, DEEPEST)
