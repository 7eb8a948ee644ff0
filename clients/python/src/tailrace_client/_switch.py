"""Define the package's functions that emit, and the switch that turns them on and off.

While the functions are off, they only count events, and the next session reports the count. A span then costs one call
and two functions that do nothing."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from tailrace_client._span import OFF, Span

if TYPE_CHECKING:
    from tailrace_client._recorder import Recorder

_recorder: Recorder | None = None

miss = count().__next__
"""Count an event that occurs outside of all sessions. Return how many such events occurred before it. It is a single
call in C, so it is correct in threads and signal handlers."""


def switch(recorder: Recorder | None, /) -> None:
    """Let the functions below record their events to `recorder` from now on. If it is None, they only count events."""
    global _recorder  # noqa: PLW0603 - one recorder a process
    _recorder = recorder


def span(name: str, /, **attributes: object) -> Span:
    """Return a span of the calling thread: `with span("step", cell=3):`. See `Span`."""
    recorder = _recorder
    if recorder is None:
        miss()
        return OFF
    return Span(recorder, name, attributes)


def event(name: str, /, **attributes: object) -> None:
    """Record an event without a duration: a span of zero length."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        now = recorder.clock()
        recorder.write(name, now, now, attributes)


def counter(name: str, value: float, /, **attributes: object) -> None:
    """Record a value with the current time. It is an event whose first attribute, `tailrace.counter`, is the value."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        now = recorder.clock()
        attributes.pop("tailrace.counter", None)
        value = int(value) if type(value) is bool else value
        recorder.write(name, now, now, {"tailrace.counter": value, **attributes})


def write(name: str, start: int, end: int, /, **attributes: object) -> None:
    """Record a span whose start and end times are given (readings of the emitter's clock)."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        recorder.write(name, start, end, attributes)
