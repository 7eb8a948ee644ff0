"""A span's name for spans elsewhere: on other threads, in other tasks, processes and programs.

Within a thread or task, spans contain one another, and nothing needs a name. Across threads a program hands
a `traceparent` (W3C Trace Context, version 00) on. The spans have the ids as attributes: `trace_id`,
`span_id` where others may refer to the span, and `parent_id` where the span refers to another.
"""

from __future__ import annotations

import os
import re

from tailrace_client._recording import OFF, Span

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)


def hand_on(span: Span, /, received: str | None = None) -> str:
    """Name a span, and return the `traceparent` to hand on to what it causes elsewhere.

    `received` is the `traceparent` that was handed to this span: the span belongs to the same trace, and
    that span is its parent. Without it, or if it is not valid, a trace begins. Each call gives the span a
    new name, and the last one counts. While tracing is off, return a valid `received` unchanged.
    """
    cause = _read(received)
    if span is OFF and received is not None and cause is not None:
        return received
    trace_id = cause[0] if cause else _random(16)
    span_id = _random(8)
    if cause:
        span.set(trace_id=trace_id, span_id=span_id, parent_id=cause[1])
    else:
        span.set(trace_id=trace_id, span_id=span_id)
    return f"00-{trace_id}-{span_id}-{'00' if span is OFF else '01'}"


def take_up(span: Span, /, received: str | None) -> None:
    """Make the span that `received` names the parent of this span. Ignore what is no `traceparent`."""
    cause = _read(received)
    if cause:
        span.set(trace_id=cause[0], parent_id=cause[1])


def _read(received: str | None) -> tuple[str, str] | None:
    """Return trace id and span id; None if there are none."""
    found = _TRACEPARENT.fullmatch(received) if isinstance(received, str) else None
    return (found[1], found[2]) if found else None


def _random(size: int) -> str:
    """Return random digits, of which not all are 0."""
    while not any(drawn := os.urandom(size)):
        pass
    return drawn.hex()
