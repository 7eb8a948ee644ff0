"""Spans and events, numbered per stream, as Heph packets.

A stream is one thread's sequence of events: by default each thread has its own, numbered from 1,
and its events count from 0. A thread that starts after another one ended takes over that one's
stream and goes on counting, so there are never more streams than threads at a time; a program that
wants other numbers calls `use_stream`. Spans are written when they end. An event that is discarded
has used up its number: the collector sees the hole, and `Emitter.dropped` says why.

Times are nanoseconds of the monotonic clock; the epoch, sent first on every connection, ties them
to wall time. A forked child is a producer of its own: new epoch, new connection, counters from 0,
none of the parent's waiting events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from types import TracebackType

from tailrace_client import _wire
from tailrace_client._channel import LIMIT_BYTES, Channel
from tailrace_client._substream import SUBSTREAM
from tailrace_client._transport import parse

_STREAM_MAX = 2**32 - 1
_COUNTER_MASK = 2**32 - 1


class _Stream:
    """A stream's number and the counter of its next event; `next` on it is atomic."""

    __slots__ = ("counter", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counter = count()


class _Lease:
    """A thread's hold on a stream of its own; it ends with the thread."""

    __slots__ = ("_free", "_stream")

    def __init__(self, stream: _Stream, free: list[_Stream]) -> None:
        self._stream = stream
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._stream)


class _Thread(threading.local):
    """What an emitter knows of the thread that asks."""

    stream: _Stream | None = None
    lease: _Lease | None = None


class Span:
    """Something that takes time; a context manager. One that an exception ends has the attribute
    `error`, the exception's type."""

    __slots__ = ("_attributes", "_emitter", "_name", "_start")

    def __init__(self, emitter: Emitter, name: str, attributes: dict[str, object]) -> None:
        self._emitter = emitter
        self._name = name
        self._attributes = attributes

    def set(self, **attributes: object) -> None:
        """Add attributes known only now."""
        self._attributes.update(attributes)

    def __enter__(self) -> Span:
        self._start = self._emitter.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        emitter = self._emitter
        end = emitter.clock()
        if kind is not None:
            self._attributes.setdefault("error", kind.__name__)
        emitter.write(self._name, self._start, end, self._attributes)


class _Off(Span):
    """The span of an emitter that is off: one for all."""

    __slots__ = ()

    def __init__(self) -> None:
        """Nothing to keep."""

    def set(self, **attributes: object) -> None:
        """Nobody would see them."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing to write."""


OFF = _Off()


class Emitter:
    """One connection to a collector. Without an address it is off: nothing is kept or sent.

    Once made, it never raises into its program and never waits (`_channel`), but in `flush` and
    `close`, and there no longer than asked. It may be used from any thread.
    """

    def __init__(
        self,
        address: str | None,
        *,
        buffer_bytes: int = LIMIT_BYTES,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,  # noqa: TID251 - the emitter's epoch
    ) -> None:
        """Raise ValueError for an address that is none. Both clocks count nanoseconds."""
        self.clock = clock
        self._wall_clock = wall_clock
        self._channel: Channel | None = None
        if address:
            self._channel = Channel(parse(address), limit=buffer_bytes, on_fork=self._begin)
        self._begin()

    def _begin(self) -> None:
        self._zero = self.clock()
        self.epoch = self._wall_clock()
        if self._channel:
            self._channel.transport.preamble = _wire.epoch(self.epoch)
        self._lock = threading.RLock()
        self._streams: dict[int, _Stream] = {}
        self._free: list[_Stream] = []
        self._thread = _Thread()

    @property
    def enabled(self) -> bool:
        """Whether events go anywhere."""
        return self._channel is not None

    @property
    def dropped(self) -> dict[str, int]:
        """Events discarded so far, by reason: full, oversize, nested, encoding, closed, refused."""
        return self._channel.dropped if self._channel else {}

    def span(self, name: str, /, **attributes: object) -> Span:
        """A span to be entered: `with emitter.span("step", cell=3):`."""
        return Span(self, name, attributes) if self._channel else OFF

    def event(self, name: str, /, **attributes: object) -> None:
        """Something that takes no time: a span of zero length."""
        if self._channel:
            now = self.clock()
            self.write(name, now, now, attributes)

    def write(self, name: str, start: int, end: int, attributes: dict[str, object]) -> None:
        """A span whose times, nanoseconds of `clock`, are known already."""
        channel = self._channel
        if channel is None:
            return
        stream = self._thread.stream or self._take_stream()
        counter = next(stream.counter) & _COUNTER_MASK
        zero = self._zero
        try:
            body = _wire.body(name, attributes)
            packet = _wire.event(
                stream.number,
                counter,
                SUBSTREAM.get(),
                start - zero if start > zero else 0,
                end - zero if end > zero else 0,
                body,
            )
        except Exception:  # noqa: BLE001 - a value's own __str__ may raise anything
            channel.drop("encoding")
            return
        channel.put(packet)

    def use_stream(self, number: int) -> None:
        """Write the calling thread's events to stream `number` (u32) from now on. Threads with the
        same number share its counter. Raise ValueError for a number out of range."""
        if not 0 <= number <= _STREAM_MAX:
            raise ValueError(f"{number} is not a stream: 0 to {_STREAM_MAX}")
        with self._lock:
            self._thread.stream = self._streams.setdefault(number, _Stream(number))
            self._thread.lease = None

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait, at most `timeout` seconds, until the kernel has all events so far; say whether."""
        return self._channel.flush(timeout) if self._channel else True

    def close(self, timeout: float = 1.0) -> bool:
        """Flush and end, in at most `timeout` seconds; say whether the kernel has all events."""
        return self._channel.close(timeout) if self._channel else True

    def _take_stream(self) -> _Stream:
        """A stream for a thread that has none: one left by an ended thread, or the next free
        number."""
        with self._lock:
            if self._free:
                stream = self._free.pop()
            else:
                number = 1 + len(self._streams)
                while number in self._streams:
                    number += 1
                stream = self._streams[number] = _Stream(number)
            self._thread.stream = stream
            self._thread.lease = _Lease(stream, self._free)
            return stream
