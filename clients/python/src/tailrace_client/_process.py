"""Provide one emitter for the whole process, and functions that use it.

The functions that emit are in `_recording`. This module switches them on and off.

Within a thread or task, spans nest by time and need no ids. To link spans across threads, tasks, processes and
programs, a program passes on a `traceparent` (W3C Trace Context, version 00). The spans then have ids as attributes:
`trace_id`, `span_id` if other spans may refer to the span, and `parent_id` if the span refers to another one."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

from tailrace_client._credentials import Credentials
from tailrace_client._emitter import BUFFER_BYTES, Emitter
from tailrace_client._recording import OFF, Span, miss, switch
from tailrace_client._sender import EXIT_SECONDS, after_fork, at_exit

current: Emitter | None = None
"""The emitter of this process; None while there is none. The decorator and the modules for logging, asyncio and trio
also read it."""

_off_answer = False
"""Whether the last emitter had delivered all events when it was closed."""
_warned = False
"""Whether the program was warned that the events of the current emitter are not delivered."""

_again: partial[Emitter] | None = None
"""Function that creates an emitter with the last one's settings; None before `connect`, and in a child that was forked
without an open emitter."""
_counted = 0
"""Number of events that were counted by `miss` and have been reported or reset since."""
_is_wanted = True
"""Whether to count the events that occur while no emitter is open. False after a `connect` without an address."""


def connect(
    address: str | None = None,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    clock: Callable[[], int] | None = None,
    process: str | None = None,
    credentials: Credentials | None = None,
    acknowledge: bool = True,
    labels: Mapping[str, object] | None = None,
) -> Emitter:
    """Send this process's spans and events to `address`; the default is the address in TAILRACE_ADDRESS.

    Forms: `unix:///path`, `tcp://host:port`, `tls://host:port`, `udp://host:port`, `file:///path`. Without an address, and
    after `close`, the process emits nothing. Events that occur meanwhile are counted, and the next `connect` with an address
    reports their number. If TAILRACE_ADDRESS is set when the package is imported, the package connects without this call. The
    call returns at once: no collector needs to listen yet. A second call closes the first connection, and waits for the closing
    up to a second. Raise ValueError for an invalid `address`. An invalid TAILRACE_ADDRESS is not the program's mistake: the
    call gives a RuntimeWarning, and the process emits nothing.

    `buffer_bytes` is the maximum memory for events that are not delivered yet. `clock` returns a simulator's own time,
    in integer nanoseconds, instead of wall time. `process` is a name for users, by default the program's name.
    `credentials` apply to TCP and TLS; the default is the credentials in the environment: TAILRACE_TOKEN or
    TAILRACE_TOKEN_FILE, TAILRACE_TLS_AUTHORITY, TAILRACE_TLS_CERTIFICATE and TAILRACE_TLS_KEY. `acknowledge` states
    whether the client asks the collector which events are durable. Pass False for a peer that never answers, such as a
    socket that only stores bytes. `labels` describe the run (revision, job, parameters) in the column `producer` of the
    view `sessions`. Raise ValueError if the labels take more than 400 bytes as JSON.

    The exit of the interpreter, or of a `multiprocessing` worker, waits up to a second for events that are not
    delivered yet. A process that is ended by a signal or `os._exit` does not tell the collector that its session has
    ended."""
    global current, _off_answer, _warned, _again, _is_wanted  # noqa: PLW0603 - one emitter a process
    _switch_off(1.0)
    _off_answer, _warned = False, False
    by_environment = address is None
    if by_environment:
        address = os.environ.get("TAILRACE_ADDRESS")
    make = partial(
        Emitter,
        address,
        buffer_bytes=buffer_bytes,
        clock=clock,
        process=process,
        credentials=credentials,
        acknowledge=acknowledge,
        labels=labels,
    )
    try:
        emitter = make()
    except (ValueError, ImportError) as error:
        if not by_environment:
            raise
        warnings.warn(f"TAILRACE_ADDRESS: {error}", RuntimeWarning, stacklevel=2)
        emitter = Emitter(None)
    missed = _missed()
    if emitter.recorder:
        emitter.recorder.discard("unconnected", missed)
        current = emitter
        _again = make
        switch(emitter.recorder)
    _is_wanted = emitter.enabled
    return emitter


def connect_by_environment() -> None:
    """Connect if TAILRACE_ADDRESS is set. The first event opens the transport."""
    if os.environ.get("TAILRACE_ADDRESS"):
        connect()


def use_stream(number: int | None) -> None:
    """Write the calling thread's later events to the stream with this number (u32). If `number` is None, write them to
    the thread's own stream. Threads with the same stream number share one sequence counter."""
    if current:
        current.use_stream(number)


def substream(number: int) -> AbstractContextManager[None]:
    """Write the events that are emitted within the `with` block to the substream `number` (u64): `with substream(7):`.
    This applies to the current thread or coroutine, and to the tasks that it starts."""
    return current.substream(number) if current else nullcontext()


def flush(timeout: float = 1.0) -> bool:
    """Wait at most `timeout` seconds until all earlier events are delivered. Return whether they are.

    An event is delivered once the collector has acknowledged it as durable. For a file and with `acknowledge=False`, an
    event is delivered once the kernel has accepted it. If no collector is reachable or answers, return False, and warn
    once (RuntimeWarning). Return False without a warning if the process never connected, or if events occurred since
    the last session."""
    return _warn_unless(current, current.flush(timeout)) if current else _answer_while_off()


def close(timeout: float = 1.0) -> bool:
    """Wait for earlier events as `flush` does, send the goodbye (the packet that ends the session) and switch the
    emitter off, all within `timeout` seconds. Return whether all events were delivered, as `flush` does."""
    emitter = _switch_off(timeout)
    return _warn_unless(emitter, _off_answer) if emitter else _answer_while_off()


def _answer_while_off() -> bool:
    global _counted  # noqa: PLW0603 - one emitter a process
    came = miss() - _counted
    # The call of `miss` above has counted an event that does not exist: do not report it.
    _counted += 1
    return _off_answer and not came


def _switch_off(timeout: float) -> Emitter | None:
    global current, _off_answer  # noqa: PLW0603 - one emitter a process
    emitter, current = current, None
    switch(None)
    if emitter:
        _off_answer = emitter.close(timeout)
    return emitter


def _warn_unless(emitter: Emitter, delivered: bool) -> bool:
    """Return `delivered`. If it is False because the collector is unreachable, warn once."""
    global _warned  # noqa: PLW0603 - one emitter a process
    error = emitter.last_error
    if not (delivered or _warned) and error:
        _warned = True
        warnings.warn(f"events are not delivered: {error}", RuntimeWarning, stacklevel=3)
    return delivered


def _missed() -> int:
    """Return the number of events that occurred without an emitter since the last call; 0 if such events are not
    counted."""
    global _counted  # noqa: PLW0603 - one emitter a process
    came = miss() - _counted
    _counted += came + 1  # The call of `miss` counts one event itself.
    return came if _is_wanted else 0


def _state_missed() -> None:
    """Report at the exit how many events occurred after the last emitter was closed, in a session without events."""
    if _again and (missed := _missed()):
        with suppress(Exception):  # Ignore errors: the address may have become invalid.
            emitter = _again()
            if emitter.recorder:
                emitter.recorder.discard("closed", missed)
            emitter.close(EXIT_SECONDS)


def _forked() -> None:
    global _again  # noqa: PLW0603 - one emitter a process
    _missed()  # The parent reports these events.
    if current is None:
        _again = None
    elif _again and str(_again.args[0]).startswith("file:"):
        own = f"{_again.args[0]}.{os.getpid()}"  # This must be the same path as in `File.forked`.
        _again = partial(Emitter, own, **_again.keywords)


at_exit.append(_state_missed)
after_fork.append(_forked)


_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)


def hand_on(span: Span, /, received: str | None = None) -> str:
    """Give a span an id, and return its `traceparent`. A program passes this text on to work that the span causes
    elsewhere, so that spans there become children of this span.

    `received` is the `traceparent` that this program got from its caller. The span then belongs to the caller's trace,
    and has the caller's span as its parent. If `received` is missing or invalid, a new trace begins. Each call replaces
    the span's id by a new one. While tracing is off, return a valid `received` unchanged."""
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
    """Make the span that `received` (a `traceparent`) identifies the parent of this span. Ignore an invalid
    `traceparent`."""
    cause = _read(received)
    if cause:
        span.set(trace_id=cause[0], parent_id=cause[1])


def _read(received: str | None) -> tuple[str, str] | None:
    """Return trace id and span id; None if `received` is not a valid `traceparent`."""
    found = _TRACEPARENT.fullmatch(received) if isinstance(received, str) else None
    return (found[1], found[2]) if found else None


def _random(size: int) -> str:
    while not any(drawn := os.urandom(size)):
        pass
    return drawn.hex()
