"""Test which begin an end belongs to."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from tailrace.decoding.formats.ovni.stack import OPEN_MAX, Stack, StackState

CHANNELS = ["a", "b"]
STEPS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(CHANNELS), st.integers(0, 2), st.booleans()),
    max_size=60,
)


def key(channel: str, number: int) -> str:
    return f"{channel}{number}"


@given(STEPS)
def test_an_end_closes_the_last_begun_of_its_kind_and_what_was_begun_after_it(steps) -> None:
    """The result is compared with one list for each channel, on both stacks."""
    stack = Stack(StackState())
    open_: dict[tuple[bool, str], list[tuple[str, int]]] = {
        (own, channel): [] for own in (False, True) for channel in CHANNELS
    }
    for begins, channel, number, own in steps:
        spans = open_[own, channel]
        wanted = key(channel, number)
        if begins:
            id_, _ = stack.begin(channel, wanted, own=own)
            spans.append((wanted, id_))
            continue
        found = [i for i, (other, _) in enumerate(spans) if other == wanted]
        id_, flaw = stack.end(channel, wanted, own=own)
        if not found:
            assert (id_, flaw) == (None, "unmatched_end")
        else:
            assert id_ == spans[found[-1]][1]
            assert flaw == (None if found[-1] == len(spans) - 1 else "crossed_end")
            del spans[found[-1] :]


@given(STEPS)
def test_ids_count_begins_and_parents_are_open_and_innermost(steps) -> None:
    stack = Stack(StackState())
    begun = 0
    for begins, channel, number, own in steps:
        if not begins:
            stack.end(channel, key(channel, number), own=own)
            continue
        nested, alone = list(stack.state.nested), list(stack.state.alone)
        begun += 1
        id_, parent = stack.begin(channel, key(channel, number), own=own)
        around = [span for span in alone if span[0] == channel] if own else nested
        assert (id_, parent) == (begun, around[-1][2] if around else None)
    assert stack.innermost == (stack.state.nested[-1][2] if stack.state.nested else None)


def test_the_oldest_is_given_up_when_too_many_are_open() -> None:
    stack = Stack(StackState())
    for _ in range(OPEN_MAX + 1):
        stack.begin("a", "x", own=False)
    assert len(stack.state.nested) == OPEN_MAX
    assert stack.state.nested[0][2] == 2
    for id_ in range(OPEN_MAX + 1, 1, -1):
        assert stack.end("a", "x", own=False) == (id_, None)
    assert stack.end("a", "x", own=False) == (None, "unmatched_end")


def test_the_state_survives_its_encoding() -> None:
    stack = Stack(StackState())
    stack.begin("a", "x", own=False)
    stack.begin("b", "y", own=True)
    saved = msgspec.msgpack.encode(stack.state)
    again = Stack(msgspec.msgpack.decode(saved, type=StackState))
    assert again.end("b", "y", own=True) == (2, None)
    assert again.begin("a", "x", own=False) == (3, 1)
