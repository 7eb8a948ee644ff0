"""The functions of the package that emit, and the switch that turns them on and off.

While they are off, a span costs a call and two functions that do nothing.
"""

from __future__ import annotations

from tailrace_client._recorder import Recorder
from tailrace_client._span import OFF, Span

_recorder: Recorder | None = None


def switch(recorder: Recorder | None, /) -> None:
    """Let the functions below record to `recorder` from now on. With None they do nothing."""
    global _recorder  # noqa: PLW0603 - one recorder a process
    _recorder = recorder


def span(name: str, /, **attributes: object) -> Span:
    """Return a span of the calling thread: `with span("step", cell=3):`. See `Span`."""
    recorder = _recorder
    return OFF if recorder is None else Span(recorder, name, attributes)


def event(name: str, /, **attributes: object) -> None:
    """Record something that takes no time: a span of zero length."""
    recorder = _recorder
    if recorder is not None:
        now = recorder.clock()
        recorder.write(name, now, now, attributes)


def counter(name: str, value: float, /, **attributes: object) -> None:
    """Record a value at this time: an event whose first attribute, `tailrace.counter`, is the value."""
    recorder = _recorder
    if recorder is not None:
        now = recorder.clock()
        attributes.pop("tailrace.counter", None)
        value = int(value) if type(value) is bool else value
        recorder.write(name, now, now, {"tailrace.counter": value, **attributes})


def write(name: str, start: int, end: int, /, **attributes: object) -> None:
    """Record a span whose times are known already, as readings of the emitter's clock."""
    recorder = _recorder
    if recorder is not None:
        recorder.write(name, start, end, attributes)
