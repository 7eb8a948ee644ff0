"""The functions of the package that emit, and the switch that turns them on and off.

While they are off, they count events, which the next session states. A span then costs a call, and two functions
that do nothing.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from tailrace_client._span import OFF, Span

if TYPE_CHECKING:
    from tailrace_client._recorder import Recorder

_recorder: Recorder | None = None

miss = count().__next__
"""Count an event that no session states so far. Return how many came before it. This is one call in C, and so right
in threads and signal handlers."""


def switch(recorder: Recorder | None, /) -> None:
    """Let the functions below record to `recorder` from now on. With None they only count."""
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
    """Record something that takes no time: a span of zero length."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        now = recorder.clock()
        recorder.write(name, now, now, attributes)


def counter(name: str, value: float, /, **attributes: object) -> None:
    """Record a value at this time: an event whose first attribute, `tailrace.counter`, is the value."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        now = recorder.clock()
        attributes.pop("tailrace.counter", None)
        value = int(value) if type(value) is bool else value
        recorder.write(name, now, now, {"tailrace.counter": value, **attributes})


def write(name: str, start: int, end: int, /, **attributes: object) -> None:
    """Record a span whose times are known already, as readings of the emitter's clock."""
    recorder = _recorder
    if recorder is None:
        miss()
    else:
        recorder.write(name, start, end, attributes)
