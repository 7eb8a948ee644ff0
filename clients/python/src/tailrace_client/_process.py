"""The one emitter of a process that most programs need, and functions that use it.

Those that emit are in `_recording`, and switched on and off here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tailrace_client._credentials import Credentials
from tailrace_client._emitter import BUFFER_BYTES, Emitter
from tailrace_client._recording import switch

current: Emitter | None = None
"""The emitter of this process; None while it is off. Also the decorator and the bridges ask this."""

_off_answer = True
"""What `flush` and `close` return while it is off: whether the last emitter had delivered everything, and
none was asked for in vain."""
_warned = False
"""Whether this emitter's program was told that nothing is delivered."""


def connect(
    address: str | None = None,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    clock: Callable[[], int] | None = None,
    process: str | None = None,
    credentials: Credentials | None = None,
    acknowledge: bool = True,
) -> Emitter:
    """Send this process's spans and events to `address`, or to the one in TAILRACE_ADDRESS.

    Forms: `unix:///path`, `tcp://host:port`, `tls://host:port`, `udp://host:port`, `file:///path`.
    With neither given, and after `close`, everything is off. Where TAILRACE_ADDRESS is set when the package
    is imported, everything is on from then on without this call. It returns at once: nobody needs to
    listen yet. A second call closes the first connection. Raise ValueError for an `address` that is
    none; in TAILRACE_ADDRESS, which is not the program's mistake, it is a RuntimeWarning and off.

    `buffer_bytes` bounds the memory for what is not delivered yet. `clock` gives a simulator's own
    time, in integer nanoseconds, instead of the wall's. `process` is a name for people to read; by
    default the program's. `credentials`, for TCP and TLS, are by default those of the environment:
    TAILRACE_TOKEN or TAILRACE_TOKEN_FILE, TAILRACE_TLS_AUTHORITY, TAILRACE_TLS_CERTIFICATE and
    TAILRACE_TLS_KEY. `acknowledge`: whether the collector is asked what is durable; False is for a peer
    that never answers, such as a plain socket that writes down what comes.

    The interpreter's exit, or that of a `multiprocessing` worker, waits up to a second for what is
    not delivered yet. A process that a signal kills, or `os._exit`, ends without a goodbye.
    """
    global current, _off_answer, _warned  # noqa: PLW0603 - the one of the process
    _switch_off(1.0)
    _off_answer, _warned = True, False
    by_environment = address is None
    if by_environment:
        address = os.environ.get("TAILRACE_ADDRESS")
    try:
        emitter = Emitter(
            address,
            buffer_bytes=buffer_bytes,
            clock=clock,
            process=process,
            credentials=credentials,
            acknowledge=acknowledge,
        )
    except (ValueError, ImportError) as error:
        if not by_environment:
            raise
        warnings.warn(f"TAILRACE_ADDRESS: {error}", RuntimeWarning, stacklevel=2)
        emitter = Emitter(None)
        _off_answer = False
    if emitter.enabled:
        current = emitter
        switch(emitter.recorder)
    return emitter


def connect_by_environment() -> None:
    """Connect where TAILRACE_ADDRESS says to whom. Nothing is opened before the first event."""
    if os.environ.get("TAILRACE_ADDRESS"):
        connect()


def use_stream(number: int | None) -> None:
    """Write the calling thread's events to stream `number` (u32) from now on; None: to one of its
    own again. Threads with the same number share its counter."""
    if current:
        current.use_stream(number)


def substream(number: int) -> AbstractContextManager[None]:
    """Write what is emitted within to substream `number` (u64): `with substream(7):`. It holds for
    this thread or coroutine, and for the tasks it starts."""
    return current.substream(number) if current else nullcontext()


def flush(timeout: float = 1.0) -> bool:
    """Wait, at most `timeout` seconds, until all events so far are delivered; return whether they are.

    Delivered is what the collector has said is durable; in a file, and with `acknowledge=False`, what
    the kernel has. Where nobody was reached or nobody answers, or TAILRACE_ADDRESS is no address, return
    False, and warn once (RuntimeWarning).
    """
    return _told(current, current.flush(timeout)) if current else _off_answer


def close(timeout: float = 1.0) -> bool:
    """Flush, say goodbye, then be off, in at most `timeout` seconds; return whether all events were
    delivered, in the sense of `flush`."""
    emitter = _switch_off(timeout)
    return _told(emitter, _off_answer) if emitter else _off_answer


def _switch_off(timeout: float) -> Emitter | None:
    """Close the emitter of the process; return which that was."""
    global current, _off_answer  # noqa: PLW0603 - the one of the process
    emitter, current = current, None
    switch(None)
    if emitter:
        _off_answer = emitter.close(timeout)
    return emitter


def _told(emitter: Emitter, delivered: bool) -> bool:
    """Pass on an answer, and warn once if it is no because the collector is not there."""
    global _warned  # noqa: PLW0603 - of the one of the process
    error = emitter.last_error
    if not (delivered or _warned) and error:
        _warned = True
        warnings.warn(f"events are not delivered: {error}", RuntimeWarning, stacklevel=3)
    return delivered
