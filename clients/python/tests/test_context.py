from __future__ import annotations

import re

import pytest

import tailrace_client as trace
from tailrace_client._recording import OFF

REMOTE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
INVALID = [
    None,
    "",
    "no traceparent",
    REMOTE + "-more",
    REMOTE.upper(),
    "ff" + REMOTE[2:],
    "00-" + "0" * 32 + REMOTE[35:],
    REMOTE[:36] + "0" * 16 + "-01",
    17,
]


class Kept:
    """A span that keeps the attributes that are set on it."""

    def __init__(self):
        self.attributes = {}

    def set(self, **attributes):
        self.attributes |= attributes


def parts(traceparent):
    found = re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-01", traceparent)
    assert found, traceparent
    return found.groups()


def test_a_context_goes_from_span_to_span():
    first, second, third = Kept(), Kept(), Kept()
    onward = trace.hand_on(first)
    further = trace.hand_on(second, onward)
    trace.take_up(third, further)
    (trace_id, one), (same, two) = parts(onward), parts(further)
    assert trace_id == same
    assert one != two
    assert first.attributes == {"trace_id": trace_id, "span_id": one}
    assert second.attributes == {"trace_id": trace_id, "span_id": two, "parent_id": one}
    assert third.attributes == {"trace_id": trace_id, "parent_id": two}


def test_another_programs_trace_goes_on():
    span = Kept()
    trace_id, span_id = parts(trace.hand_on(span, REMOTE))
    assert span.attributes == {
        "trace_id": REMOTE[3:35], "span_id": span_id, "parent_id": REMOTE[36:52],
    }  # fmt: skip
    assert trace_id == REMOTE[3:35]


@pytest.mark.parametrize("received", INVALID)
def test_what_is_no_context_begins_a_trace_and_names_no_parent(received):
    begun, leaf = Kept(), Kept()
    trace_id, span_id = parts(trace.hand_on(begun, received))
    trace.take_up(leaf, received)
    assert begun.attributes == {"trace_id": trace_id, "span_id": span_id}
    assert leaf.attributes == {}


def test_a_program_without_tracing_passes_a_context_through():
    assert trace.hand_on(OFF, REMOTE) == REMOTE
    assert trace.hand_on(OFF).endswith("-00")  # the flag states that no span is recorded
    trace.take_up(OFF, REMOTE)
