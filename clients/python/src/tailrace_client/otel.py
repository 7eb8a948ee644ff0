"""Record the spans of a program that OpenTelemetry instruments. Needs the extra `tailrace-client[otel]`.

    provider = opentelemetry.sdk.trace.TracerProvider()
    provider.add_span_processor(tailrace_client.otel.SpanProcessor())

The processor emits an event `otel.start` when a span starts, and the span when it ends. So the table has a span that
was open when its program was killed: an `otel.start` without its span. Each event that the program has added to a span,
such as an exception, becomes an event of its own when the span ends. Attributes of a span:

    trace_id, span_id, parent_id    the ids in hexadecimal, as in W3C Trace Context
    otel.parent_remote              true if the parent is in another process
    otel.trace_state                the trace state as a header, unless it is empty
    otel.scope                      the name of the library that created the span
    otel.kind                       "SERVER", "CLIENT", "PRODUCER" or "CONSUMER"; missing for an internal span
    otel.status                     "OK" or "ERROR", unless it is unset
    otel.status_description         the description of the status
    error, error_message            if the status is ERROR: type and message of the last recorded exception
    otel.links                      the linked spans, each as a `traceparent`
    otel.link.N.NAME                the attribute NAME of the link N, counted from 0
    otel.dropped_attributes, otel.dropped_events, otel.dropped_links, otel.dropped_link_attributes
                                    how many of them the SDK dropped because of its limits
    otel.start_time, otel.end_time  the time (Unix ns), if it lies before tick 0 of the session
    …                               the program's attributes; one with a name from this list gets the prefix "attribute."

`otel.start` has the attributes that the span has at its start, but the span's id is `parent_id`, its parent's id is
`otel.parent_id`, and its name is `otel.name`. An event of a span has `trace_id`, the span's id as `parent_id`, its own
attributes, and `otel.dropped_attributes`. Events that the SDK dropped are discarded events with the reason `limit`."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, format_span_id, format_trace_id

from tailrace_client import _process
from tailrace_client._emitter import Emitter
from tailrace_client._recording import miss

Attributes = dict[str, object]

_OWN = frozenset(
    {
        "trace_id", "span_id", "parent_id", "error", "error_message",
        *(f"otel.{name}" for name in (
            "name", "parent_id", "parent_remote", "trace_state", "scope", "kind", "status", "status_description",
            "links", "start_time", "end_time", "dropped_attributes", "dropped_events", "dropped_links",
            "dropped_link_attributes",
        )),
    }
)  # fmt: skip
"""Names of the client's own attributes, besides `otel.link.N.NAME`. A program's attribute with such a name is always
renamed, even on a span without the client's attribute: a program's `parent_id` would otherwise give the span a
parent."""


class SpanProcessor(sdk.SpanProcessor):
    """A span processor that emits the spans of OpenTelemetry's SDK with this process's emitter. While no emitter is open, the
    processor only counts the spans that end. It never raises, and only `force_flush` and `shutdown` wait."""

    def __init__(self) -> None:
        """Begin without spans. A processor may serve several providers."""
        self._starts: dict[int, int] = {}
        """For each open span, by its id: the emitter's time at the start of the span. Only needed if the program
        supplies the emitter's clock, because OpenTelemetry's times cannot be converted to this clock."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's signature
        """Emit the event `otel.start`."""
        emitter = _process.current
        context = span.get_span_context()
        if emitter is None or context is None:
            return
        own = _own(span, context)
        start = _reading(emitter, span.start_time, "otel.start_time", own)
        if start is None:
            start = self._starts[context.span_id] = emitter.now()
        if "parent_id" in own:
            own["otel.parent_id"] = own["parent_id"]
        own |= {"parent_id": own.pop("span_id"), "otel.name": span.name}
        emitter.write("otel.start", start, start, _with(own, span.attributes))

    def on_end(self, span: ReadableSpan) -> None:
        """Emit the events of a span, and the whole span."""
        emitter = _process.current
        context = span.get_span_context()
        if emitter is None or context is None:
            miss()
            return
        own = _own(span, context)
        start = _reading(emitter, span.start_time, "otel.start_time", own)
        end = _reading(emitter, span.end_time, "otel.end_time", own)
        if start is None or end is None:
            end = emitter.now()
            start = self._starts.pop(context.span_id, end)
        for event in span.events:
            about: Attributes = {"trace_id": own["trace_id"], "parent_id": own["span_id"]}
            time = _reading(emitter, event.timestamp, "otel.start_time", about)
            time = end if time is None else time
            if dropped := getattr(event, "dropped_attributes", 0):
                about["otel.dropped_attributes"] = dropped
            emitter.write(event.name, time, time, _with(about, event.attributes))
        if span.dropped_events and emitter.recorder:
            emitter.recorder.discard("limit", span.dropped_events)
        emitter.write(span.name, start, end, _with(own, span.attributes))

    def shutdown(self) -> None:
        """Wait up to a second until all earlier events are delivered. The emitter stays open, because the program may emit
        events of its own."""
        self.force_flush(1000)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Wait until all earlier events are delivered, as `tailrace_client.flush` does. Return whether they are."""
        emitter = _process.current
        return emitter is not None and emitter.flush(timeout_millis / 1000)


def _reading(emitter: Emitter, time: int | None, name: str, own: Attributes) -> int | None:
    """Return the reading of the emitter's clock at a time (Unix ns). Return None if the clock is the program's own.

    If the time lies before tick 0, return the reading at tick 0, and add the time to `own` as the attribute `name`."""
    if emitter.epoch is None:
        return None
    if time is None:
        return emitter.now()
    if time < emitter.epoch:
        own[name] = time
    return emitter.reading(max(time, emitter.epoch))


def _own(span: ReadableSpan, context: SpanContext) -> Attributes:
    """Return the client's own attributes of a span, as far as they are known now."""
    own: Attributes = {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }
    if span.parent is not None:
        own["parent_id"] = format_span_id(span.parent.span_id)
        if span.parent.is_remote:
            own["otel.parent_remote"] = True
    if context.trace_state:
        own["otel.trace_state"] = context.trace_state.to_header()
    if span.instrumentation_scope is not None:
        own["otel.scope"] = span.instrumentation_scope.name
    if span.kind is not SpanKind.INTERNAL:
        own["otel.kind"] = span.kind.name
    if span.status.status_code is not StatusCode.UNSET:
        own["otel.status"] = span.status.status_code.name
    if span.status.description:
        own["otel.status_description"] = span.status.description
    if span.status.status_code is StatusCode.ERROR:
        for event in span.events:
            if event.name == "exception" and event.attributes:
                own["error"] = event.attributes.get("exception.type", "")
                own["error_message"] = event.attributes.get("exception.message", "")
    return own | _links(span) | _dropped(span)


def _links(span: ReadableSpan) -> Attributes:
    if not span.links:
        return {}
    found: Attributes = {"otel.links": [_traceparent(link.context) for link in span.links]}
    for number, link in enumerate(span.links):
        for name, value in (link.attributes or {}).items():
            found[f"otel.link.{number}.{name}"] = value
    return found


def _dropped(span: ReadableSpan) -> Attributes:
    """Return the attributes that state how much the SDK has dropped because of its limits."""
    dropped = {
        "attributes": span.dropped_attributes,
        "events": span.dropped_events,
        "links": span.dropped_links,
        "link_attributes": sum(link.dropped_attributes for link in span.links),
    }
    return {f"otel.dropped_{name}": count for name, count in dropped.items() if count}


def _traceparent(context: SpanContext) -> str:
    ids = f"{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
    return f"00-{ids}-{context.trace_flags:02x}"


def _with(own: Attributes, given: Mapping[str, object] | None) -> Attributes:
    """Return the client's own attributes of a span, and then those that the program has given to the span."""
    more = {
        f"attribute.{name}" if name in _OWN or name.startswith("otel.link.") else name: value
        for name, value in (given or {}).items()
    }
    return own | more
