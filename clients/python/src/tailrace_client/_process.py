"""The one emitter of a process that most programs need, and functions that use it."""

from __future__ import annotations

import os
import warnings

from tailrace_client._emitter import OFF, Emitter, Span

current: Emitter | None = None
"""The emitter of this process; None while it is off. Also the decorator and the bridges ask this."""


def connect(address: str | None = None) -> Emitter:
    """Send this process's spans and events to `address`, or to the one in TAILRACE_ADDRESS.

    Forms: `udp://host:port`, `tcp://host:port`, `file:///path`. With neither given, and after
    `close`, everything is off. It returns at once: nobody needs to listen yet. A second call closes
    the first connection. Raise ValueError for an `address` that is none; in TAILRACE_ADDRESS, which
    is not the program's mistake, it is a RuntimeWarning and off.

    The interpreter's exit waits up to a second for what is not sent yet. (A `multiprocessing`
    worker has no such exit: call `close` at its end.)
    """
    global current  # noqa: PLW0603 - the one of the process
    close()
    if address is not None:
        emitter = Emitter(address)
    else:
        try:
            emitter = Emitter(os.environ.get("TAILRACE_ADDRESS"))
        except ValueError as error:
            warnings.warn(f"TAILRACE_ADDRESS: {error}", RuntimeWarning, stacklevel=2)
            emitter = Emitter(None)
    if emitter.enabled:
        current = emitter
    return emitter


def span(name: str, /, **attributes: object) -> Span:
    """A span of the calling thread: `with span("step", cell=3):`. See `Span`."""
    return Span(current, name, attributes) if current else OFF


def event(name: str, /, **attributes: object) -> None:
    """Something that takes no time: a span of zero length."""
    if current:
        now = current.clock()
        current.write(name, now, now, attributes)


def use_stream(number: int) -> None:
    """Write the calling thread's events to stream `number` (u32) from now on."""
    if current:
        current.use_stream(number)


def flush(timeout: float = 1.0) -> bool:
    """Wait, at most `timeout` seconds, until the kernel has all events so far; say whether."""
    return current.flush(timeout) if current else True


def close(timeout: float = 1.0) -> bool:
    """Flush, then be off, in at most `timeout` seconds; say whether the kernel has all events."""
    global current
    emitter, current = current, None
    return emitter.close(timeout) if emitter else True
