"""Test that spans of OpenTelemetry's real SDK become events of a session."""

from __future__ import annotations

import os
from contextlib import suppress

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

import tailrace_client
from clients.python.tests.reader import attributes, events
from tailrace_client import _process
from tailrace_client.otel import SpanProcessor

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REMOTE = SpanContext(
    int(TRACE, 16), int(CALLER, 16), is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("a", "1")])
)  # fmt: skip


def tracer(**options):
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(SpanProcessor())
    return provider.get_tracer("solver")


def as_text(number, digits):
    return format(number, f"0{digits}x")


def test_a_span_is_an_event_when_it_starts_and_another_one_when_it_ends(emitted):
    with tracer().start_as_current_span("request", attributes={"cell": 3}) as outer:
        outer.set_attribute("load", [0.5, 1.5])
        with tracer().start_as_current_span("step"):
            pass
    epoch = _process.current.epoch
    found = emitted()
    assert [event.description for event in found] == ["otel.start", "otel.start", "step", "request"]
    assert [event.counter for event in found] == [0, 1, 2, 3]
    begun, _, inner, whole = found
    context = outer.get_span_context()
    ids = {
        "trace_id": as_text(context.trace_id, 32),
        "span_id": as_text(context.span_id, 16),
        "otel.scope": "solver",
    }
    assert attributes(begun) == {
        "trace_id": ids["trace_id"], "parent_id": ids["span_id"], "otel.name": "request", "otel.scope": "solver", "cell": 3,
    }  # fmt: skip
    assert attributes(whole) == {**ids, "cell": 3, "load": [0.5, 1.5]}
    assert attributes(inner)["parent_id"] == ids["span_id"]
    assert attributes(inner)["trace_id"] == ids["trace_id"]
    assert begun.start == begun.end == whole.start == outer.start_time - epoch
    assert whole.end == outer.end_time - epoch


def test_a_remote_parent_kind_and_trace_state_are_kept(emitted):
    caller = trace.set_span_in_context(NonRecordingSpan(REMOTE))
    tracer().start_span("serve", context=caller, kind=SpanKind.SERVER).end()
    begun, whole = map(attributes, emitted())
    assert (begun["otel.parent_id"], begun["parent_id"]) == (CALLER, whole["span_id"])
    assert whole["parent_id"] == CALLER
    for found in (begun, whole):
        assert found["trace_id"] == TRACE
        assert (found["otel.kind"], found["otel.trace_state"]) == ("SERVER", "a=1")
        assert found["otel.parent_remote"] == "true"


def test_events_and_an_exception_are_events_whose_parent_is_the_span(emitted):
    with suppress(ValueError), tracer().start_as_current_span("solve") as span:
        span.add_event("residual", {"norm": 0.5}, timestamp=span.start_time + 1)
        raise ValueError("no such cell")
    _, residual, exception, whole = emitted()
    mine = attributes(whole)
    assert residual.start == residual.end == whole.start + 1
    assert attributes(residual) == {"trace_id": mine["trace_id"], "parent_id": mine["span_id"], "norm": 0.5}  # fmt: skip
    assert exception.description == "exception"
    assert attributes(exception)["parent_id"] == mine["span_id"]
    assert "raise ValueError" in attributes(exception)["exception.stacktrace"]
    assert (mine["error"], mine["error_message"]) == ("ValueError", "no such cell")
    assert mine["otel.status"] == "ERROR"
    assert mine["otel.status_description"] == "ValueError: no such cell"


def test_a_status_without_an_exception_is_kept(emitted):
    for status in (Status(StatusCode.OK), Status(StatusCode.ERROR, "slow")):
        span = tracer().start_span("step")
        span.set_status(status)
        span.end()
    _, fine, _, slow = map(attributes, emitted())
    assert fine["otel.status"] == "OK"
    assert (slow["otel.status"], slow["otel.status_description"]) == ("ERROR", "slow")
    assert "error" not in slow


def test_links_are_kept_with_their_attributes_from_the_start_on(emitted):
    span = tracer().start_span("merge", links=[Link(REMOTE, {"part": 1}), Link(REMOTE, {})])
    span.add_link(REMOTE, {"part": 3})
    span.end()
    begun, whole = map(attributes, emitted())
    parent = f"00-{TRACE}-{CALLER}-01"
    assert (begun["otel.links"], begun["otel.link.0.part"]) == ([parent] * 2, 1)
    assert (whole["otel.links"], whole["otel.link.2.part"]) == ([parent] * 3, 3)


def test_what_the_sdk_drops_is_counted(emitted):
    limits = SpanLimits(
        max_span_attributes=2, max_events=3, max_links=1, max_event_attributes=1, max_link_attributes=1
    )  # fmt: skip
    spans = tracer(span_limits=limits)
    links = [Link(REMOTE, {"a": 1, "b": 2}) for _ in range(3)]
    with spans.start_as_current_span("full", attributes=dict.fromkeys("abcde", 1), links=links) as span:  # fmt: skip
        for _ in range(8):
            span.add_event("event", {"a": 1, "b": 2})
    emitter = _process.current
    begun, *inner, whole = map(attributes, emitted())
    assert (begun["otel.dropped_attributes"], begun["otel.dropped_links"]) == (3, 2)
    assert {key: value for key, value in whole.items() if "dropped" in key} == {
        "otel.dropped_attributes": 3,
        "otel.dropped_events": 5,
        "otel.dropped_links": 2,
        "otel.dropped_link_attributes": 1,
    }
    assert [event["otel.dropped_attributes"] for event in inner] == [1, 1, 1]
    assert emitter.discarded["limit"] == 5


def test_an_attribute_with_one_of_our_names_gets_a_prefix(emitted):
    given = {"trace_id": "mine", "otel.scope": 1, "tailrace.counter": 5}
    tracer().start_span("step", attributes=given).end()
    for event in emitted():
        found = attributes(event)
        assert (found["attribute.trace_id"], found["attribute.otel.scope"]) == ("mine", 1)
        assert len(found["trace_id"]) == 32
        assert event.attributes[0][0] == "trace_id", (
            "a first attribute `tailrace.counter` would make a counter"
        )
        assert found["tailrace.counter"] == 5


def test_an_attribute_with_one_of_our_names_gets_the_prefix_where_we_have_no_value(emitted):
    given = {
        "span_id": CALLER,
        "parent_id": CALLER,
        "error": True,
        "otel.status": "OK",
        "otel.link.0.a": 1,
    }
    with tracer().start_as_current_span("first", attributes=given) as span:
        span.add_event("log", given)
    for event in emitted():
        found = attributes(event)
        own = {name for name in found if not name.startswith("attribute.")}
        assert {f"attribute.{name}" for name in given} <= found.keys()
        expected = {
            "otel.start": {"parent_id", "otel.name", "otel.scope"},
            "log": {"parent_id"},
            "first": {"span_id", "otel.scope"},
        }
        assert own == {"trace_id", *expected[event.description]}


def test_a_time_before_the_session_s_first_is_kept_as_an_attribute(emitted):
    span = tracer().start_span("early", start_time=1)
    span.add_event("early too", timestamp=2)
    span.end(3)
    begun, event, whole = emitted()
    assert {each.start for each in (begun, event, whole)} == {0} == {whole.end}
    assert attributes(begun)["otel.start_time"] == attributes(whole)["otel.start_time"] == 1
    assert (attributes(event)["otel.start_time"], attributes(whole)["otel.end_time"]) == (2, 3)


def test_with_a_clock_of_the_program_s_own_a_span_lasts_as_long_as_the_clock_says(tmp_path):
    path, ticks = tmp_path / "trace", 40
    tailrace_client.connect(f"file://{path}", clock=lambda: ticks)
    span = tracer().start_span("transfer")
    other = tracer().start_span("other")
    ticks = 65
    span.add_event("half")
    span.end()
    assert tailrace_client.close(10)
    other.end()
    begun, _, half, whole = events(path.read_bytes())
    assert (begun.start, begun.end) == (40, 40)
    assert (half.start, half.end) == (65, 65)
    assert (whole.start, whole.end) == (40, 65)


def test_a_span_that_began_before_the_session_is_whole_and_one_that_ends_after_it_is_counted(tmp_path):  # fmt: skip
    path = tmp_path / "trace"
    early = tracer().start_span("early")
    tailrace_client.connect(f"file://{path}")
    late = tracer().start_span("late")
    early.end()
    assert tailrace_client.close(10)
    late.end()
    assert [event.description for event in events(path.read_bytes())] == ["otel.start", "early"]
    assert not tailrace_client.flush()


def test_a_flush_waits_for_the_events(emitted):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    provider.get_tracer("solver").start_span("step").end()
    assert provider.force_flush(10_000)
    provider.shutdown()
    tailrace_client.event("after")
    assert [event.description for event in emitted()] == ["otel.start", "step", "after"]
    assert not SpanProcessor().force_flush(0)


def test_a_child_that_was_forked_within_a_span_ends_it_in_a_session_of_its_own(tmp_path):
    path = tmp_path / "trace"
    tailrace_client.connect(f"file://{path}")
    span = tracer().start_span("request")
    child = os.fork()
    if not child:
        span.end()
        os._exit(not tailrace_client.close(10))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    span.end()
    assert tailrace_client.close(10)
    started, of_parent = events(path.read_bytes())
    (of_child,) = events(path.with_name(f"trace.{child}").read_bytes())
    assert (started.description, of_parent.description) == ("otel.start", "request")
    assert attributes(of_child) == attributes(of_parent)
