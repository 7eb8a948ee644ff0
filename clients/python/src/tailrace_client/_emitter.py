"""Connect a recorder to a collector. A sender sends the recorded events."""

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
"""Default size (bytes) of the buffer for events: some 50 000 events of usual size, or two seconds at 25 000 a second."""

_SUBSTREAM_MAX = 2**64 - 1

_IMPORTED = time.monotonic_ns()
"""Reading of the monotonic clock (ns) at the import, tick 0 of all emitters. So a span that began before `connect` (or
before a fork) has no negative start."""


class Emitter:
    """An emitter to one collector, usable from any thread. Without an address the emitter is off: it keeps and sends nothing.

    After its construction, an emitter never raises an error in the program. Only `flush` and `close` wait, and no
    longer than their timeout. The methods of this class are for an emitter that is off. An emitter that is on replaces
    them by its recorder's methods."""

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
        """Begin to emit to `address`. Raise ValueError for an invalid address, or for labels that are too long.

        `connect` describes the parameters. Sent events that are not known to be durable may take up to half of
        `buffer_bytes`. The default of `clock` is the monotonic clock, converted to wall time."""
        self.epoch: int | None = None
        """Tick 0 in Unix nanoseconds; None if the program has its own clock."""
        self.session: str | None = None
        """The session's name in the collector's table (`session` in the column `producer` of the view `sessions`);
        None while the emitter is off."""
        self._own_clock = clock
        self._at_zero = 0
        """Reading of the clock at tick 0."""
        self._ticks: Callable[[], int] | None = None
        """Function that returns the time since tick 0 (ns); None if the program has its own clock."""
        self._process = process
        self._acknowledge = acknowledge
        self._labels = checked(labels or {})
        self._cpu_zero = 0
        """CPU time (ns) of the process when the session began."""
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
        if self._own_clock is not None:
            return 0
        now = time.monotonic_ns()
        # The clock may read less than at the import, if the process was moved to another host since then.
        zero = min(_IMPORTED, now)
        elapsed = now - zero
        self.epoch = max(0, time.time_ns() - elapsed)  # noqa: TID251 - the epoch
        self._ticks = lambda: time.monotonic_ns() - zero
        self._at_zero = zero
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
                cost=self._cost,
            )
            self._cpu_zero = time.process_time_ns()
            self.session = session.name
            self._sender.begin(self.recorder, session)

    def _cost(self, events: int) -> dict[str, int] | None:
        """Return what the session's events cost: the number of events, how many of them were timed (`sampled`), and CPU
        times (ns). The time for `emitting` is an estimate. `sending` is measured in the thread that sends, and
        `program` in the whole process since the session began. Return None if a time is unknown."""
        if self.recorder is None or self._sender is None:
            return None
        sampled, taken = self.recorder.sampled
        sending = self._sender.thread_ns
        program = time.process_time_ns() - self._cpu_zero
        if not sampled or sending is None or program <= 0:
            return None
        emitting = taken * events // sampled
        return {"events": events, "sampled": sampled, "emitting": emitting, "sending": sending, "program": program}  # fmt: skip

    @property
    def enabled(self) -> bool:
        """Whether the emitter is on, so that it sends events."""
        return self._sender is not None

    @property
    def last_error(self) -> str | None:
        """The reason why the collector cannot be reached or was lost; None if no problem is known."""
        return self._sender.last_error if self._sender else None

    @property
    def discarded(self) -> dict[str, int]:
        """Number of events discarded so far, by reason. The README lists the reasons."""
        if self.recorder is None:
            return {}
        counts = dict(self.recorder.discarded)
        return counts | {"closed": counts["closed"] + self.recorder.late}

    def now(self) -> int:
        """Return the present reading of the emitter's clock, in the form in which `write` takes times."""
        return (self._own_clock or time.monotonic_ns)()

    def reading(self, unix_ns: int) -> int:
        """Return the reading of the clock at a wall time (Unix ns). Raise ValueError if the clock is the program's own."""
        if self.epoch is None:
            raise ValueError("the program's own clock has no wall time")
        return unix_ns - self.epoch + self._at_zero

    def span(self, name: str, /, **attributes: object) -> Span:  # noqa: ARG002 - used when it is on
        """Return a span to use in a `with` statement: `with emitter.span("step", cell=3):`."""
        return OFF

    def event(self, name: str, /, **attributes: object) -> None:
        """Emit an event without a duration: a span of zero length."""

    def counter(self, name: str, value: float, /, **attributes: object) -> None:
        """Emit a value with the current time."""

    def write(self, name: str, start: int, end: int, attributes: Mapping[str, object], /) -> None:
        """Emit a span whose start and end times are given (readings of the emitter's clock)."""

    def use_stream(self, stream: int | None, /) -> None:
        """Write the calling thread's later events to the stream with the number `stream` (u32). If it is None, write
        them to the thread's own stream. Threads with the same stream number share one sequence counter. Raise
        ValueError for a number out of range."""

    @contextmanager
    def substream(self, number: int) -> Iterator[None]:
        """Write the events that are emitted within the `with` block to the substream `number` (u64). This applies to
        the current thread or coroutine. Raise ValueError for a number out of range."""
        if not 0 <= number <= _SUBSTREAM_MAX:
            raise ValueError(f"{number} is not a substream: 0 to {_SUBSTREAM_MAX}")
        token = SUBSTREAM.set(number)
        try:
            yield
        finally:
            SUBSTREAM.reset(token)

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait at most `timeout` seconds until the collector has acknowledged all earlier events as durable. Return
        whether it has. For a file, and with `acknowledge=False`, wait until the kernel has accepted the events. Return
        False for an emitter without an address."""
        return self._sender is not None and self._sender.flush(timeout)

    def close(self, timeout: float = 1.0) -> bool:
        """Wait for earlier events as `flush` does, send the goodbye (the packet that ends the session) and close the
        connection, all within `timeout` seconds. Return whether all events were delivered, as `flush` does."""
        return self._sender is not None and self._sender.close(timeout)


LABELS_BYTES_MAX = 400
"""Maximum size (bytes) of the labels as JSON. A datagram may have as little as 1432 bytes, and contains events, too."""


def checked(labels: Mapping[str, object]) -> dict[str, str]:
    """Return the values of labels as strings, without None. Raise ValueError if the labels are too long."""
    texts = {str(name): str(value) for name, value in labels.items() if value is not None}
    size = len(json.dumps(texts))
    if size > LABELS_BYTES_MAX:
        raise ValueError(f"labels of {size} bytes as JSON: at most {LABELS_BYTES_MAX} are possible")
    return texts
