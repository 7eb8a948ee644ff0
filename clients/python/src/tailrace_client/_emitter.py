"""One connection to a collector: a recorder, and the sender of what is recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tailrace_client._credentials import Credentials
from tailrace_client._recording import OFF, Recorder, Span, miss
from tailrace_client._sender import Sender
from tailrace_client._session import Session
from tailrace_client._tasks import SUBSTREAM
from tailrace_client._transport import parse

__all__ = ["BUFFER_BYTES", "OFF", "Emitter", "Span"]

BUFFER_BYTES = 4 * 2**20
"""Room for some 50 000 events of usual size: two seconds at 25 000 events a second."""

_SUBSTREAM_MAX = 2**64 - 1

_IMPORTED = time.monotonic_ns()
"""Tick 0 of all emitters. It is the time of the import and not of `connect`, so that a span that began
before `connect` (or before a fork) has a start that is not negative."""


class Emitter:
    """Emits to one collector, from any thread. Without an address it is off: nothing is kept or
    sent.

    Once made, an emitter never raises into its program. It waits only in `flush` and `close`, and
    no longer than asked. The functions here are those of an emitter that is off. An emitter that is
    on has its recorder's functions in their places.
    """

    def __init__(
        self,
        address: str | None,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        clock: Callable[[], int] | None = None,
        process: str | None = None,
        credentials: Credentials | None = None,
        acknowledge: bool = True,
        labels: Mapping[str, object] | None = None,
    ) -> None:
        """Begin to emit to `address`. Raise ValueError for an invalid address, or labels that are too long.

        `buffer_bytes` bounds the events that wait and, with up to half of it, those that are sent
        and not known to be durable. `clock` counts nanoseconds of a simulator's own time; by default
        times are the monotonic clock's, and tied to wall time. `process` is a name for people.
        `credentials`, for TCP and TLS, are by default those of the environment. `acknowledge`:
        whether the collector is asked what is durable; only an answer counts as delivery then. Pass
        False for a peer that never answers. `labels` say which run this is: revision, job, parameters.
        """
        self.epoch: int | None = None
        """Tick 0 in Unix nanoseconds; None with a clock of the program's own."""
        self.session: str | None = None
        """The session's name in the collector's table: `session` in the column `producer` of the view
        `sessions`. None while the emitter is off."""
        self._own_clock = clock
        self._ticks: Callable[[], int] | None = None
        """Returns the time since the epoch (ns); None with a clock of the program's own."""
        self._process = process
        self._acknowledge = acknowledge
        self._labels = checked(labels or {})
        self._sender: Sender | None = None
        self.recorder: Recorder | None = None
        """The recorder; None while the emitter is off."""
        if not address:
            return
        transport = parse(address, credentials)
        self._sender = Sender(transport, room=buffer_bytes // 2, on_fork=self._forked, on_late=miss)
        self.recorder = recorder = Recorder(
            clock or time.monotonic_ns,
            self._zero(),
            limit=buffer_bytes,
            chunk=transport.chunk_bytes,
            longest=transport.packet_max,
            started=self._sender.started,
            filled=self._sender.filled,
        )
        self._begin()
        self.span = recorder.span  # type: ignore[method-assign] # one call less for each event
        self.event = recorder.event  # type: ignore[method-assign]
        self.counter = recorder.counter  # type: ignore[method-assign]
        self.write = recorder.write  # type: ignore[method-assign]
        self.use_stream = recorder.use_stream  # type: ignore[method-assign]

    def _zero(self) -> int:
        """Return the clock's reading at tick 0: at the import, or 0 of a simulator's own clock."""
        if self._own_clock is not None:
            return 0
        now = time.monotonic_ns()
        zero = min(
            _IMPORTED, now
        )  # a process that was moved to another host may have a clock with less
        elapsed = now - zero
        self.epoch = max(0, time.time_ns() - elapsed)  # noqa: TID251 - the epoch
        self._ticks = lambda: time.monotonic_ns() - zero
        return zero

    def _forked(self) -> None:
        if self.recorder:
            self.recorder.reset(self._zero())
        self._begin()

    def _begin(self) -> None:
        if self._sender and self.recorder:
            asks = self._acknowledge and self._sender.transport.answers
            session = Session(
                epoch=self.epoch,
                ticks=self._ticks,
                process=self._process,
                asks=asks,
                labels=self._labels,
            )
            self.session = session.name
            self._sender.begin(self.recorder, session)

    @property
    def enabled(self) -> bool:
        """Whether events go anywhere."""
        return self._sender is not None

    @property
    def last_error(self) -> str | None:
        """Why the collector could not be reached or was lost, for people to read; None while nothing is
        known to be wrong."""
        return self._sender.last_error if self._sender else None

    @property
    def discarded(self) -> dict[str, int]:
        """Events discarded so far, by reason. The README lists the reasons."""
        if self.recorder is None:
            return {}
        counts = dict(self.recorder.discarded)
        return counts | {"closed": counts["closed"] + self.recorder.late}

    def span(self, name: str, /, **attributes: object) -> Span:  # noqa: ARG002 - used when it is on
        """Return a span to be entered: `with emitter.span("step", cell=3):`."""
        return OFF

    def event(self, name: str, /, **attributes: object) -> None:
        """Emit something that takes no time: a span of zero length."""

    def counter(self, name: str, value: float, /, **attributes: object) -> None:
        """Emit a value at this time."""

    def write(self, name: str, start: int, end: int, attributes: Mapping[str, object], /) -> None:
        """Emit a span whose times are known already, as readings of the clock."""

    def use_stream(self, stream: int | None, /) -> None:
        """Write the calling thread's events to `stream` (u32) from now on; None: to its own again.
        Threads with the same number share one counter. Raise ValueError for a number out of range."""

    @contextmanager
    def substream(self, number: int) -> Iterator[None]:
        """Write the events emitted within the block to substream `number` (u64), in this thread or
        coroutine. Raise ValueError for a number out of range."""
        if not 0 <= number <= _SUBSTREAM_MAX:
            raise ValueError(f"{number} is not a substream: 0 to {_SUBSTREAM_MAX}")
        token = SUBSTREAM.set(number)
        try:
            yield
        finally:
            SUBSTREAM.reset(token)

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait at most `timeout` seconds until the collector has said that all events so far are
        durable. Return whether it has. For a file, and with `acknowledge=False`, wait until the kernel
        has the events. An emitter without an address delivers nothing."""
        return self._sender is not None and self._sender.flush(timeout)

    def close(self, timeout: float = 1.0) -> bool:
        """Flush, say goodbye and end within `timeout` seconds. Return whether all events were
        delivered, as `flush` does."""
        return self._sender is not None and self._sender.close(timeout)


LABELS_BYTES_MAX = 400
"""Labels are in datagrams beside events, and a datagram may have as little as 1432 bytes."""


def checked(labels: Mapping[str, object]) -> dict[str, str]:
    """Return labels as texts, without those that are None. Raise ValueError if they are too long."""
    texts = {str(name): str(value) for name, value in labels.items() if value is not None}
    size = len(json.dumps(texts))
    if size > LABELS_BYTES_MAX:
        raise ValueError(f"labels of {size} bytes as JSON: at most {LABELS_BYTES_MAX} are possible")
    return texts
