"""One connection to a collector: what is recorded, and the sender that gets it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tailrace_client._credentials import Credentials
from tailrace_client._recording import OFF, Recorder, Span
from tailrace_client._sender import Sender
from tailrace_client._session import Session
from tailrace_client._substream import SUBSTREAM
from tailrace_client._transport import parse

__all__ = ["BUFFER_BYTES", "OFF", "Emitter", "Span"]

BUFFER_BYTES = 4 * 2**20
"""Some 50 000 events of usual size; two seconds of 25 000 a second."""

_SUBSTREAM_MAX = 2**64 - 1


class Emitter:
    """Emits to one collector, from any thread. Without an address it is off: nothing is kept or
    sent.

    Once made, it never raises into its program and never waits (`_sender`), but in `flush` and
    `close`, and there no longer than asked. The functions here are those of an emitter that is off;
    one that is on has those of its recorder in their places.
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
    ) -> None:
        """Raise ValueError for an address that is none.

        `buffer_bytes`: of events that wait, and, up to a half of it, of those that are sent and not
        known to be durable. `clock` counts nanoseconds of a simulator's own time; by default times
        are the monotonic clock's, and tied to wall time. `process`: a name for people to read.
        `credentials`: for TCP and TLS; by default those of the environment. `acknowledge`: whether the
        collector is asked what is durable, so that nothing is delivered which it has not answered
        for; False is for a peer that never answers.
        """
        self.epoch: int | None = None
        """Unix nanoseconds of tick 0; None with a clock of its own."""
        self.session: str | None = None
        """What the collector's table calls this process's session: `session` in the column `producer` of
        the view `sessions`. None while it is off."""
        self._own_clock = clock
        self._process = process
        self._acknowledge = acknowledge
        self._sender: Sender | None = None
        self.recorder: Recorder | None = None
        """What records for it; None while it is off."""
        if not address:
            return
        transport = parse(address, credentials)
        self._sender = Sender(transport, room=buffer_bytes // 2, on_fork=self._forked)
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
        """The clock's reading at tick 0, which is now, or a simulator's own 0."""
        if self._own_clock is not None:
            return 0
        self.epoch = time.time_ns()  # noqa: TID251 - the epoch
        return time.monotonic_ns()

    def _forked(self) -> None:
        if self.recorder:
            self.recorder.reset(self._zero())
        self._begin()

    def _begin(self) -> None:
        if self._sender and self.recorder:
            asks = self._acknowledge and self._sender.transport.answers
            session = Session(epoch=self.epoch, process=self._process, asks=asks)
            self.session = session.name
            self._sender.begin(self.recorder, session)

    @property
    def enabled(self) -> bool:
        """Whether events go anywhere."""
        return self._sender is not None

    @property
    def last_error(self) -> str | None:
        """Why the collector was not reached, or lost, at the last attempt, for people to read; None
        while nothing is known to be wrong."""
        return self._sender.last_error if self._sender else None

    @property
    def discarded(self) -> dict[str, int]:
        """Events discarded so far, by reason: full, oversize, nested, encoding, closed, refused, lost."""
        return dict(self.recorder.discarded) if self.recorder else {}

    def span(self, name: str, /, **attributes: object) -> Span:  # noqa: ARG002 - of one that is on
        """A span to be entered: `with emitter.span("step", cell=3):`."""
        return OFF

    def event(self, name: str, /, **attributes: object) -> None:
        """Something that takes no time: a span of zero length."""

    def counter(self, name: str, value: float, /, **attributes: object) -> None:
        """A value at this time."""

    def write(self, name: str, start: int, end: int, attributes: Mapping[str, object], /) -> None:
        """A span whose times, in readings of the clock, are known already."""

    def use_stream(self, stream: int | None, /) -> None:
        """Write the calling thread's events to `stream` (u32) from now on; None: to one of
        its own again. Threads with the same number share its counter. Raise ValueError for a
        number out of range."""

    @contextmanager
    def substream(self, number: int) -> Iterator[None]:
        """Write what is emitted within to substream `number` (u64), in this thread or coroutine.
        Raise ValueError for a number out of range."""
        if not 0 <= number <= _SUBSTREAM_MAX:
            raise ValueError(f"{number} is not a substream: 0 to {_SUBSTREAM_MAX}")
        token = SUBSTREAM.set(number)
        try:
            yield
        finally:
            SUBSTREAM.reset(token)

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait, at most `timeout` seconds, until the collector has said that all events so far are
        durable; return whether it has. In a file, and with `acknowledge=False`, wait until the kernel
        has them."""
        return self._sender.flush(timeout) if self._sender else True

    def close(self, timeout: float = 1.0) -> bool:
        """Flush, say goodbye and end, in at most `timeout` seconds; return whether all was delivered,
        in the sense of `flush`."""
        return self._sender.close(timeout) if self._sender else True
