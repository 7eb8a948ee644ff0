"""Record spans and events in the program's threads, as Heph packets with sequence numbers.

By default each thread has its own stream, a numbered sequence of events. A new thread continues the stream of a thread
that has ended, so there are never more streams than concurrent threads. The hot path takes no lock:

- While the flag `inside` of a thread's `Lane` (the thread's recording state) is set, a signal handler or destructor
  that interrupts the thread cannot record: its event is discarded (`nested`).
- Recording begins by taking the event's number, in one call in C, so every discarded event has used up a number. After
  an exception of a signal handler (Ctrl-C), `Lane.account` finds the number.
- Packets wait in a list for each stream. To add a packet is one operation, as is each slice in `take`.
- A lane gets memory in large grants (`Memory`). Only a stream that several threads use has a lock.

The recorder discards an event (`encoding`) if a time, relative to `zero`, is below 0 or does not fit into 64 bits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import error as struct_error
from typing import Any

from tailrace_client import _wire
from tailrace_client._chunk import Chunk, cut, number
from tailrace_client._span import Span
from tailrace_client._switch import miss
from tailrace_client._tasks import SUBSTREAM
from tailrace_client._wire import MisfitError, Packer, no_packer, packer

REASONS = (
    "full", "oversize", "nested", "encoding", "unconnected", "closed", "refused", "lost", "given_up",
    "uncounted", "limit",
)  # fmt: skip

DOUBT = [-1, 0]
"""Entry in a stream's list of discarded events (`holes`). It states that some event numbers may be neither in a packet
nor in the list."""

_NUMBERS_END = 2**62
"""Sequence number that no stream can reach."""


class Stream:
    """A stream's sequence counter, and the packets that wait to be taken."""

    __slots__ = ("counter", "holes", "lock", "number", "packets", "taken", "user")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counter: Any = iter(range(_NUMBERS_END))
        """Iterator over the sequence numbers of future events. One call of `next`, in C, takes one number."""
        self.packets: list[bytes] = []
        self.taken = 0
        """The number of the last event that the sender has taken, plus one."""
        self.holes: list[list[int]] = []
        """Discarded events that no report contains yet, as pairs: the first number, and how many."""
        self.user: Lane | None = None
        """The lane (state of a thread) that alone writes to the stream, which otherwise has a lock."""
        self.lock: threading.Lock | None = None

    @property
    def next(self) -> int:
        # Compute the number from the length hint of the range's iterator, which is exact.
        left: int = self.counter.__length_hint__()
        return _NUMBERS_END - left


class Lane:
    """The recorder's state for one thread. After the end of the thread, a later thread reuses the lane."""

    __slots__ = ("discarded", "due", "inside", "owed", "own", "room", "stream")

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.own: Stream | None = None
        self.room = 0
        """Number of bytes that the thread may still record before `Memory` must grant it more."""
        self.inside = False
        """Whether the thread is recording an event. Another event meanwhile, as in a signal handler, is discarded."""
        self.owed = 0
        """Number of nested events (recorded while the thread was recording another event) that occurred before the
        thread had a stream. They get sequence numbers once the thread has a stream."""
        self.due = False
        """Whether the recorder must call `filled` for this thread, because enough bytes wait to be sent."""
        self.discarded = dict.fromkeys(REASONS, 0)

    def lose(self, stream: Stream, first: int, reason: str, lost: int = 1) -> None:
        """Count `lost` events as discarded, from number `first` on."""
        self.discarded[reason] += lost
        holes = stream.holes
        at = len(holes)
        # A signal handler that interrupted this thread may have added later holes.
        while at and holes[at - 1][0] > first:
            at -= 1
        if at and sum(holes[at - 1]) == first:
            holes[at - 1][1] += lost
        else:
            holes.insert(at, [first, lost])

    def account(self, stream: Stream, until: int) -> None:
        """Count as discarded each event below the number `until` whose number is neither in a packet nor in the list
        `holes`. An exception within a recording leaves such numbers. If this call fails, too, the entry `DOUBT` stays
        in `holes`, and the next event repeats the call."""
        following = stream.next
        waiting = stream.packets[-1:]
        at = number(waiting[0], following) + 1 if waiting else stream.taken
        for first, lost in [*sorted(hole for hole in stream.holes if hole[1]), [until, 0]]:
            if at < first:
                self.lose(stream, at, "nested", first - at)
            at = max(at, first + lost)
        while DOUBT in stream.holes:
            stream.holes.remove(DOUBT)


_SHARES = 8
"""Divisor for the memory that one thread gets in advance: at most the memory limit divided by this number and by the
number of threads."""


class Memory:
    """The memory budget in bytes of packets: from their recording until they are released."""

    __slots__ = ("_chunk", "_free", "_granted", "_limit", "_lock", "_longest", "_released")

    def __init__(self, limit: int, chunk: int, longest: int) -> None:
        """Grant at most `limit` bytes in total, and `longest` bytes at once. Each time that `chunk` more bytes were
        granted, the recorder must call `filled` to have them sent (`Lane.due`)."""
        self._limit, self._chunk, self._longest = limit, chunk, longest
        self._lock = threading.Lock()
        self._free = limit
        self._granted = 0
        """Number of bytes that were granted since a lane last became `due`."""
        self._released: list[int] = []

    def release(self, size: int) -> None:
        self._released.append(size)

    def draw(self, lane: Lane, size: int, lanes: int) -> bool:
        """Grant a lane memory for a packet of `size` bytes, and some in advance for later packets: at most `chunk`
        bytes, less if there are many `lanes`. Return False if the packet does not fit."""
        with self._lock:
            while self._released:
                self._free += self._released.pop()
            least = size - lane.room
            share = min(self._chunk, self._limit // (_SHARES * lanes))
            # The caller has already checked that the packet is not longer than allowed.
            grant = min(self._free, max(least, min(share, self._longest - lane.room)))
            if grant < least:
                return False
            self._free -= grant
            lane.room += grant
            lane.due = lane.due or self._granted >= self._chunk
            self._granted = grant + (0 if lane.due else self._granted)
        return True


_JOIN_SECONDS = 0.1


class _Lease:
    """The use of a lane (recorder state) by one thread. When the thread ends, another thread can use the lane."""

    __slots__ = ("_free", "_lane")

    def __init__(self, lane: Lane, free: list[Lane]) -> None:
        self._lane = lane
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._lane)


class _Local(threading.local):
    lane: Lane | None = None
    lease: _Lease | None = None


class Lanes:
    """The lanes (states) of a recorder's threads, and the streams of these lanes. There are never more lanes than
    concurrent threads."""

    __slots__ = ("_free", "_lock", "all", "local", "streams")

    def __init__(self) -> None:
        self.all: list[Lane] = []
        self.streams: dict[int, Stream] = {}
        """All streams of this recorder, by their number."""
        self.local = _Local()
        self._free: list[Lane] = []
        self._lock = threading.Lock()

    def join(self) -> Lane:
        """Return the lane of the calling thread. At the thread's first call, this is a free lane or a new one."""
        try:
            lane = self._free.pop()
        except IndexError:
            lane = Lane()
            self.all.append(lane)
        else:
            # Take no lock here: a signal handler that joins meanwhile would wait for the lock forever.
            self._leave(lane)
        lease = _Lease(lane, self._free)
        local = self.local
        # A signal handler that interrupted this method may have given the thread a lane (recording state) already.
        if local.lane is None:
            local.lease = lease
            local.lane = lane
        return local.lane

    def own(self, lane: Lane) -> Stream:
        """Give a lane a stream of its own, with the lowest free number."""
        with self._lock:
            free = 1
            while free in self.streams:
                free += 1
            stream = self.streams[free] = lane.own = lane.stream = Stream(free)
            stream.user = lane
        return stream

    def use(self, lane: Lane, number: int | None) -> None:
        """Make a lane write to stream `number`, or to its own stream if `number` is None."""
        other = None
        lane.inside = True
        try:
            with self._lock:
                self._leave(lane)
                if number is not None:
                    chosen = self.streams.setdefault(number, Stream(number))
                    other = chosen.user
                    if other is None:
                        chosen.user = lane
                    elif other is not lane and chosen.lock is None:
                        chosen.lock = threading.Lock()
                    lane.stream = chosen
        finally:
            lane.inside = False
        # The stream's first user may still be recording an event that it began without the lock. Wait for its end.
        deadline = time.monotonic() + _JOIN_SECONDS
        while other and other is not lane and other.inside and time.monotonic() < deadline:
            time.sleep(0)

    def _leave(self, lane: Lane) -> None:
        """Let a lane write to its own stream again. Another thread may call `use` for the old stream meanwhile. Then
        either that stream gets a lock, or the other thread's lane becomes its only user; both outcomes are correct."""
        stream = lane.stream
        if stream and stream is not lane.own and stream.user is lane and not stream.lock:
            stream.user = None
        lane.stream = lane.own


STREAM_MAX = 2**32 - 1

_U64_MAX = 2**64 - 1
_SHAPES_MAX = 4096
_RANGES_PER_REPORT = 16
ENCODING_ERRORS = (
    _wire.EncodingError, ArithmeticError, AttributeError, MemoryError, RecursionError, TypeError, ValueError, struct_error
)  # fmt: skip
"""Exceptions that the encoding of an event may raise. All other exceptions come from signal handlers, and are passed
on."""

_Encoded = tuple[int, int, int, bytes]
_substream = SUBSTREAM.get


class Recorder:
    """Records events in any thread and in signal handlers. A recorder never raises. It waits only for another thread
    that writes to the same stream, for a few instructions."""

    __slots__ = (
        "_chunk", "_chunks", "_closed", "_elsewhere", "_filled", "_idle", "_lanes", "_latest",
        "_limit", "_local", "_longest", "_memory", "_shapes", "_started", "_stated", "_taking", "_zero",
        "clock", "late",
    )  # fmt: skip

    sampled = (0, 0)
    """Number of events whose recording was timed, and the CPU time (ns) that this took. Only the compiled recorder times
    events."""

    def __init__(
        self,
        clock: Callable[[], int],
        zero: int,
        *,
        limit: int,
        chunk: int,
        started: Callable[[], object],
        filled: Callable[[], object],
        longest: int = 2**31,
    ) -> None:
        """Record times in nanoseconds, as readings of `clock()` minus `zero`.

        `limit` is the maximum number of bytes of packets that were recorded and not yet released (`release`). `chunk`
        is the number of bytes that are worth a system call, and `longest` the maximum size (bytes) of a packet. The
        recorder calls `started` after the first packet that is recorded since the last call of `take`, and `filled`
        each time that `chunk` more bytes wait. Both calls run in the thread that recorded the event, maybe in a signal
        handler. If they raise an Exception, it is suppressed.
        """
        self.clock = clock
        self._limit, self._chunk, self._longest = limit, max(1, chunk), longest
        self._started, self._filled = started, filled
        self.reset(zero)

    def reset(self, zero: int) -> None:
        """Clear all state, as in a forked child."""
        self._zero = zero
        self._lanes = Lanes()
        self._local = self._lanes.local
        self._memory = Memory(self._limit, self._chunk, self._longest)
        self._shapes: dict[tuple[object, ...], Packer] = {}
        self._latest: dict[str, Packer] = {}
        """For each event name, the packer of the last event with this name, which usually fits the next one."""
        self._elsewhere = dict.fromkeys(REASONS, 0)
        self._idle = True
        self._taking = False
        self._closed = False
        self.late = 0
        """Number of events that were discarded because the recorder was closed. These events have no sequence
        number."""
        self._chunks: list[Chunk] = []
        self._stated: dict[int, int] = {}
        """For each stream, the number of its next event when the last goodbye (the packet that ends the session) was
        made."""

    def span(self, name: str, /, **attributes: object) -> Span:
        """Return a span to use in a `with` statement: `with recorder.span("step", cell=3):`."""
        return Span(self, name, attributes)

    def event(self, name: str, /, **attributes: object) -> None:
        """Record an event without a duration: a span of zero length."""
        now = self.clock()
        self.write(name, now, now, attributes)

    def counter(self, name: str, value: float, /, **attributes: object) -> None:
        """Record a value at the current time, as an event whose first attribute is the value."""
        now = self.clock()
        attributes.pop("tailrace.counter", None)
        value = int(value) if type(value) is bool else value
        self.write(name, now, now, {"tailrace.counter": value, **attributes})

    def write(  # noqa: PLR0912, PLR0915 - the hot path, in one piece
        self, name: str, start: int, end: int, attributes: Mapping[str, object], /
    ) -> None:
        """Record a span whose start and end times are given (readings of the clock)."""
        lane = self._local.lane or self._lanes.join()
        stream = lane.stream
        if stream is None or lane.inside:
            self._write(lane, name, start, end, attributes)
            return
        packet = None
        lane.inside = True
        try:
            # Read the stream's lock while `lane.inside` is set: another thread that joins the stream gives it a lock,
            # and then waits until the flag is cleared.
            if not stream.lock:
                substream, zero = _substream(), self._zero
                begin = start - zero
                finish = begin if end is start else end - zero
                pack = self._latest.get(name, no_packer)
                packet = pack(stream, substream, begin, finish, attributes)
                if packet is None:
                    pack = self._shape(name, attributes)
                    packet = pack(stream, substream, begin, finish, attributes)
            if packet:
                room = lane.room - len(packet)
                if room < 0 or stream.holes:
                    self._store(lane, stream, number(packet, stream.next), packet)
                else:
                    lane.room = room
                    stream.packets.append(packet)
        except MisfitError as misfit:
            encoded = self._encode(name, start, end, attributes)
            self._finish(lane, stream, misfit.number, encoded)
            packet = b""  # The event has a sequence number already. Do not record it a second time.
        except BaseException as error:
            stream.holes += (DOUBT,)
            lane.account(stream, stream.next)
            if not isinstance(error, ENCODING_ERRORS):
                raise
            packet = None
        finally:
            lane.inside = False
        if packet is None:
            self._write(lane, name, start, end, attributes)
        elif self._idle or lane.due:
            self._call(lane)

    def use_stream(self, stream: int | None, /) -> None:
        """Write the calling thread's later events to the stream with the number `stream` (u32). If it is None, write
        them to the thread's own stream. Threads with the same stream number share one sequence counter. Raise
        ValueError for a number out of range. A call in a signal handler that interrupts this recorder has no effect."""
        if stream is not None and not 0 <= stream <= STREAM_MAX:
            raise ValueError(f"{stream} is not a stream: 0 to {STREAM_MAX}")
        lane = self._local.lane or self._lanes.join()
        if not lane.inside:
            self._lanes.use(lane, stream)

    def take(self) -> list[Chunk]:
        """Return all recorded chunks, for one caller at a time. In a signal handler that interrupts `take`, return no
        chunks."""
        if self._taking:
            return []
        self._taking = True
        try:
            self._idle = True
            for stream in list(self._lanes.streams.values()):
                packets = stream.packets[:]
                if packets:
                    size, following = len(packets), stream.next
                    taken = number(packets[-1], following) + 1
                    chunks = list(cut(packets, stream.number, following, self._chunk))
                    waiting = stream.packets
                    # These statements call no function, so no signal handler can run between them.
                    stream.taken = taken
                    self._chunks += chunks
                    del waiting[:size]
            chunks, self._chunks = self._chunks, []
            return chunks
        finally:
            self._taking = False

    def release(self, size: int) -> None:
        self._memory.release(size)

    def next_numbers(self) -> dict[int, int]:
        """Return the next event's number of each stream that has events, not wrapped to 32 bits."""
        numbers = {stream.number: stream.next for stream in list(self._lanes.streams.values())}
        self._stated = {stream: following for stream, following in numbers.items() if following}
        return self._stated

    def discard(self, reason: str, count: int = 1, /) -> None:
        with suppress(KeyError):
            self._elsewhere[reason] += count

    @property
    def discarded(self) -> dict[str, int]:
        """Number of discarded events by reason."""
        counts = [self._elsewhere, *(lane.discarded for lane in list(self._lanes.all))]
        return {reason: sum(count[reason] for count in counts) for reason in REASONS}

    def close(self) -> None:
        """Discard all later events, which `miss` counts, so that the next session reports them."""
        self._closed = True
        self._shapes, self._latest = {}, {}

    def _shape(self, name: str, attributes: Mapping[str, object]) -> Packer:
        """Return the packer for events with these attribute names, which is tried first for the next event with the
        same name."""
        key = (name, *attributes)
        pack = self._shapes.get(key)
        if pack is None:
            if self._closed or len(self._shapes) >= _SHAPES_MAX:
                return no_packer
            pack = self._shapes[key] = packer(name, attributes)
        self._latest[name] = pack
        return pack

    def _write(
        self, lane: Lane, name: str, start: int, end: int, attributes: Mapping[str, object]
    ) -> None:
        """Record an event of any shape to any stream, more slowly than `write`."""
        if self._closed:
            miss()
            self.late += 1
            return
        if lane.inside:
            if lane.stream:
                lane.stream.holes.append([next(lane.stream.counter), 1])
            else:
                lane.owed += 1
            lane.discarded["nested"] += 1
            return
        # Encode before `inside` is set, because encoding may call methods of the program's values.
        encoded = self._encode(name, start, end, attributes)
        lane.inside = True
        try:
            stream = lane.stream or self._lanes.own(lane)
            while lane.owed:
                lane.owed -= 1
                stream.holes.append([next(stream.counter), 1])
            if stream.lock:
                with stream.lock:
                    self._number(lane, stream, encoded)
            else:
                self._number(lane, stream, encoded)
        finally:
            lane.inside = False
        if self._idle or lane.due:
            self._call(lane)

    def _encode(
        self, name: str, start: int, end: int, attributes: Mapping[str, object]
    ) -> _Encoded | None:
        """Return all fields of the packet but stream and number; None if a value or a time cannot be encoded."""
        zero = self._zero
        try:
            start, end = int(start) - zero, int(end) - zero
            if not 0 <= start <= _U64_MAX >= end >= 0:
                return None
            return int(_substream()) & _U64_MAX, start, end, _wire.body(name, attributes)
        except ENCODING_ERRORS:
            return None

    def _number(self, lane: Lane, stream: Stream, encoded: _Encoded | None) -> None:
        try:
            self._finish(lane, stream, next(stream.counter), encoded)
        except BaseException:
            stream.holes += (DOUBT,)
            lane.account(stream, stream.next)
            raise

    def _finish(self, lane: Lane, stream: Stream, counter: int, encoded: _Encoded | None) -> None:
        if encoded is None and not self._closed:
            lane.lose(stream, counter, "encoding")
        elif encoded is None:
            self._store(lane, stream, counter, b"")
        else:
            packet = _wire.event(stream.number, counter & STREAM_MAX, *encoded)
            self._store(lane, stream, counter, packet)

    def _store(self, lane: Lane, stream: Stream, counter: int, packet: bytes) -> None:
        """Keep a packet, with a report of earlier discarded events in front, or discard it if it does not fit."""
        holes = stream.holes
        if holes and DOUBT in holes:
            lane.account(stream, counter)
        reported, whole = 0, packet
        reason = self._refusal(lane, len(packet))
        if holes and not reason:
            # Iterate over a copy: a profiler that emits events may add numbers of discarded events to the list.
            reported = sum(first < counter for first, _ in holes[:])
            whole = self._report(stream.number, holes[:reported]) + packet
            reason = self._refusal(lane, len(whole))
        if reason:
            if reason == "closed" and counter >= self._stated.get(stream.number, 0):
                miss()  # Count the event for the next session: the goodbye (the end of this session) did not count it.
            lane.lose(stream, counter, reason)
            return
        lane.room -= len(whole)
        stream.packets += (whole,)
        del holes[:reported]

    def _refusal(self, lane: Lane, size: int) -> str | None:
        """Return the reason why a packet of `size` bytes must be discarded; None if it fits."""
        if self._closed:
            return "closed"
        if size > self._longest:
            return "oversize"
        if size > lane.room and not self._memory.draw(lane, size, len(self._lanes.all)):
            return "full"
        return None

    def _report(self, stream: int, holes: list[list[int]]) -> bytes:
        discarded = self.discarded
        # Sort the holes: a nested signal handler adds its hole before that of the handler which it interrupted.
        ranges = [(stream, first, lost) for first, lost in sorted(holes)]
        parts = range(0, len(ranges), _RANGES_PER_REPORT)
        return b"".join(
            _wire.report(discarded, ranges[at : at + _RANGES_PER_REPORT]) for at in parts
        )

    def _call(self, lane: Lane) -> None:
        stream = lane.stream
        if self._idle and stream and stream.packets:
            self._idle = False
            with suppress(Exception):
                self._started()
        if lane.due:
            lane.due = False
            with suppress(Exception):
                self._filled()
