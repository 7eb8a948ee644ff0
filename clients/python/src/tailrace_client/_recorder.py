"""Spans and events, numbered per stream, as Heph packets: the part that runs in the program's threads.

A stream is one thread's sequence of events: by default each thread has its own, numbered from 1,
and its events count from 0. A thread that starts after another one ended takes over that one's
stream and goes on counting, so there are never more streams than threads at a time. A program that
wants other numbers calls `use_stream`.

What holds it together, without a lock where it is hot:

- What a thread alone writes is in its `_Lane`. While it is `inside`, a signal handler or destructor
  that interrupts it may not write: its event is discarded (`nested`).
- A number is taken first and by one call in C; so what is discarded, for whatever reason, has used
  up its number. Where an exception of a signal handler (Ctrl-C) comes between, `_account` finds it.
- Packets wait in a list per stream: `append`, and the slices of `take`, are one operation each.
- The bound of memory is handed to lanes in pieces (`_draw`), of which they know the rest.
- Only a stream that several threads use has a lock.

Times are readings of the clock minus `zero`, at least 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from struct import error as struct_error

from tailrace_client import _wire
from tailrace_client._chunk import Chunk
from tailrace_client._cut import cut, number
from tailrace_client._shapes import MisfitError, Packer, no_packer, packer
from tailrace_client._span import Span
from tailrace_client._substream import SUBSTREAM

REASONS = (
    "full", "oversize", "nested", "encoding", "closed", "refused", "lost", "given_up", "uncounted"
)  # fmt: skip
STREAM_MAX = 2**32 - 1

_U64_MAX = 2**64 - 1
_SHAPES_MAX = 4096
_RANGES_PER_REPORT = 16
_SHARES = 8
"""Lanes that wait for nothing hold at most one part in so many of the memory."""
_JOIN_SECONDS = 0.1
ENCODING_ERRORS = (
    _wire.EncodingError, ArithmeticError, AttributeError, MemoryError, RecursionError, TypeError, ValueError, struct_error
)  # fmt: skip
"""Those of our own making: what else is raised in here is a signal handler's, and the program's."""

_DOUBT = [-1, 0]
"""Among a stream's holes: there may be more of them."""

_Encoded = tuple[int, int, int, bytes]
_substream = SUBSTREAM.get


class _Stream:
    """A stream's counter, and its packets that nobody has taken yet."""

    __slots__ = ("counter", "holes", "lock", "number", "packets", "taken", "user")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counter = count()
        self.packets: list[bytes] = []
        self.taken = 0
        """One more than the number of the last event taken."""
        self.holes: list[list[int]] = []
        """Discarded events that no report has told yet: first number, how many."""
        self.user: _Lane | None = None
        """The one lane that writes here; where there are several, there is a lock."""
        self.lock: threading.Lock | None = None

    @property
    def next(self) -> int:
        """The number that the next event will have."""
        return int(repr(self.counter)[6:-1])  # "count(17)"; it tells in no other way


class _Lane:
    """What belongs to one thread, and after its end to another one."""

    __slots__ = ("discarded", "due", "inside", "owed", "own", "room", "stream")

    def __init__(self) -> None:
        self.stream: _Stream | None = None
        self.own: _Stream | None = None
        self.room = 0
        """Bytes of the bound that it may fill without asking."""
        self.inside = False
        self.owed = 0
        """Nested events that came before there was a stream to number them."""
        self.due = False
        """Whether `filled` is to be called."""
        self.discarded = dict.fromkeys(REASONS, 0)


class _Lease:
    """A thread's hold on a lane; it ends with the thread."""

    __slots__ = ("_free", "_lane")

    def __init__(self, lane: _Lane, free: list[_Lane]) -> None:
        self._lane = lane
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._lane)


class _Local(threading.local):
    lane: _Lane | None = None
    lease: _Lease | None = None


class Recorder:
    """Records in any thread, also in signal handlers; never raises, and waits for nobody but, for
    some instructions, for a thread that writes to the same stream."""

    __slots__ = (
        "_chunk", "_chunks", "_closed", "_drawn", "_elsewhere", "_filled", "_free", "_free_lanes",
        "_idle", "_lanes", "_latest", "_limit", "_local", "_lock", "_longest", "_released",
        "_shapes", "_started", "_streams", "_taking", "_zero", "clock",
    )  # fmt: skip

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
        """`clock()` is in nanoseconds, and `zero` what it read at tick 0. `limit`: bytes recorded
        and not released. `chunk`: bytes of packets worth one system call. `longest`: of a packet.

        `started` is called after the first packet since `take`; `filled`, each time that
        another `chunk` bytes wait. They are called by the thread that emits, perhaps in a signal
        handler; what they raise is suppressed.
        """
        self.clock = clock
        self._limit, self._chunk, self._longest = limit, max(1, chunk), longest
        self._started, self._filled = started, filled
        self.reset(zero)

    def reset(self, zero: int) -> None:
        """Forget everything; in a forked child, where the parent's streams, packets, threads and
        locks are not ours."""
        self._zero = zero
        self._local = _Local()
        self._lanes: list[_Lane] = []
        self._free_lanes: list[_Lane] = []
        self._streams: dict[int, _Stream] = {}
        self._shapes: dict[tuple[object, ...], Packer] = {}
        self._latest: dict[str, Packer] = {}
        """By the name of events, the packer for the last one: mostly the next one's."""
        self._elsewhere = dict.fromkeys(REASONS, 0)
        self._lock = threading.Lock()
        self._free = self._limit
        self._released: list[int] = []
        self._drawn = 0
        self._idle = True
        self._taking = False
        self._closed = False
        self._chunks: list[Chunk] = []

    def span(self, name: str, /, **attributes: object) -> Span:
        """A span to be entered: `with recorder.span("step", cell=3):`."""
        return Span(self, name, attributes)

    def event(self, name: str, /, **attributes: object) -> None:
        """Something that takes no time: a span of zero length."""
        now = self.clock()
        self.write(name, now, now, attributes)

    def counter(self, name: str, value: float, /, **attributes: object) -> None:
        """A value at this time: an event whose first attribute says so."""
        now = self.clock()
        attributes.pop("tailrace.counter", None)
        value = int(value) if type(value) is bool else value
        self.write(name, now, now, {"tailrace.counter": value, **attributes})

    def write(  # noqa: PLR0912, PLR0915 - the hot path, in one piece
        self, name: str, start: int, end: int, attributes: Mapping[str, object], /
    ) -> None:
        """A span whose times, readings of the clock, are known already."""
        lane = self._local.lane or self._join()
        stream = lane.stream
        if stream is None or lane.inside:
            self._write(lane, name, start, end, attributes)
            return
        packet = None
        lane.inside = True
        try:
            if not stream.lock:  # asked while inside: see `use_stream`
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
            packet = b"kept, or discarded"
        except BaseException as error:
            stream.holes += (_DOUBT,)
            self._account(lane, stream, stream.next)
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
        """Write the calling thread's events to `stream` (u32) from now on, or, with None, to
        one of its own again. Threads with the same number share its counter. Raise ValueError for a
        number out of range. (In a signal handler that interrupts this recorder, nothing happens.)
        """
        if stream is not None and not 0 <= stream <= STREAM_MAX:
            raise ValueError(f"{stream} is not a stream: 0 to {STREAM_MAX}")
        lane = self._local.lane or self._join()
        if lane.inside:
            return
        other = None
        lane.inside = True
        try:
            with self._lock:
                self._leave(lane)
                if stream is not None:
                    chosen = self._streams.setdefault(stream, _Stream(stream))
                    other = chosen.user
                    if other is None:
                        chosen.user = lane
                    elif other is not lane and chosen.lock is None:
                        chosen.lock = threading.Lock()
                    lane.stream = chosen
        finally:
            lane.inside = False
        # The first user may be in the middle of an event, as one that shares its stream with nobody.
        deadline = time.monotonic() + _JOIN_SECONDS
        while other and other is not lane and other.inside and time.monotonic() < deadline:
            time.sleep(0)

    def take(self) -> list[Chunk]:
        """All that is recorded. For one caller at a time; [] in a signal handler that interrupts
        it."""
        if self._taking:
            return []
        self._taking = True
        try:
            self._idle = True
            for stream in list(self._streams.values()):
                packets = stream.packets[:]
                if packets:
                    size, following = len(packets), stream.next
                    taken = number(packets[-1], following) + 1
                    chunks = list(cut(packets, stream.number, following, self._chunk))
                    waiting = stream.packets
                    # No calls from here, and so no signal handlers: both happen, or neither.
                    stream.taken = taken
                    self._chunks += chunks
                    del waiting[:size]
            chunks, self._chunks = self._chunks, []
            return chunks
        finally:
            self._taking = False

    def release(self, size: int) -> None:
        """So many bytes of chunks are let go, and may be recorded anew."""
        self._released.append(size)

    def next_numbers(self) -> dict[int, int]:
        """The number that each stream's next event will have, of those that had any; unwrapped."""
        numbers = {stream.number: stream.next for stream in list(self._streams.values())}
        return {stream: following for stream, following in numbers.items() if following}

    def discard(self, reason: str) -> None:
        """Count an event that was discarded elsewhere."""
        with suppress(KeyError):
            self._elsewhere[reason] += 1

    @property
    def discarded(self) -> dict[str, int]:
        """Events discarded so far, by reason."""
        counts = [self._elsewhere, *(lane.discarded for lane in list(self._lanes))]
        return {reason: sum(count[reason] for count in counts) for reason in REASONS}

    def close(self) -> None:
        """Discard what comes from now on."""
        self._closed = True
        self._shapes, self._latest = {}, {}

    def _shape(self, name: str, attributes: Mapping[str, object]) -> Packer:
        """The packer for events like this one, to be tried first for the next one of its name."""
        key = (name, *attributes)
        pack = self._shapes.get(key)
        if pack is None:
            if self._closed or len(self._shapes) >= _SHAPES_MAX:
                return no_packer
            pack = self._shapes[key] = packer(name, attributes)
        self._latest[name] = pack
        return pack

    def _join(self) -> _Lane:
        """A lane for a thread that has none: one that an ended thread left, or a new one."""
        try:
            lane = self._free_lanes.pop()
        except IndexError:
            lane = _Lane()
            self._lanes.append(lane)
        else:
            with self._lock:
                self._leave(lane)
        lease = _Lease(lane, self._free_lanes)
        local = self._local
        if local.lane is None:  # a signal handler may have joined meanwhile
            local.lease = lease
            local.lane = lane
        return local.lane

    def _leave(self, lane: _Lane) -> None:
        """Back to the lane's own stream."""
        stream = lane.stream
        if stream and stream is not lane.own and stream.user is lane and not stream.lock:
            stream.user = None
        lane.stream = lane.own

    def _own(self, lane: _Lane) -> _Stream:
        """A stream for a lane that has none, with the lowest number that is free."""
        with self._lock:
            free = 1
            while free in self._streams:
                free += 1
            stream = self._streams[free] = lane.own = lane.stream = _Stream(free)
            stream.user = lane
        return stream

    def _write(
        self, lane: _Lane, name: str, start: int, end: int, attributes: Mapping[str, object]
    ) -> None:
        """An event of any kind, to a stream of any kind."""
        if lane.inside:
            if lane.stream:
                lane.stream.holes.append([next(lane.stream.counter), 1])
            else:
                lane.owed += 1
            lane.discarded["nested"] += 1
            return
        encoded = self._encode(name, start, end, attributes)  # may run code of the program
        lane.inside = True
        try:
            stream = lane.stream or self._own(lane)
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
        """What is in the packet beside its stream and number; None if that cannot be said."""
        zero = self._zero
        try:
            start, end = int(start) - zero, int(end) - zero
            if start < 0 or end < 0 or start > _U64_MAX or end > _U64_MAX:
                start, end = min(max(0, start), _U64_MAX), min(max(0, end), _U64_MAX)
            return int(_substream()) & _U64_MAX, start, end, _wire.body(name, attributes)
        except ENCODING_ERRORS:
            return None

    def _number(self, lane: _Lane, stream: _Stream, encoded: _Encoded | None) -> None:
        try:
            self._finish(lane, stream, next(stream.counter), encoded)
        except BaseException:
            stream.holes += (_DOUBT,)
            self._account(lane, stream, stream.next)
            raise

    def _finish(self, lane: _Lane, stream: _Stream, counter: int, encoded: _Encoded | None) -> None:
        if encoded is None:
            self._lose(lane, stream, counter, "encoding")
        else:
            packet = _wire.event(stream.number, counter & STREAM_MAX, *encoded)
            self._store(lane, stream, counter, packet)

    def _store(self, lane: _Lane, stream: _Stream, counter: int, packet: bytes) -> None:
        """Keep a packet, behind the report of what was discarded before it; or discard it."""
        holes = stream.holes
        if holes and _DOUBT in holes:
            self._account(lane, stream, counter)
        told, whole = 0, packet
        reason = self._refusal(lane, len(packet))
        if holes and not reason:
            # Of a copy: a profiler that emits adds to them.
            told = sum(first < counter for first, _ in holes[:])
            whole = self._report(stream.number, holes[:told]) + packet
            reason = self._refusal(lane, len(whole))
        if reason:
            self._lose(lane, stream, counter, reason)
            return
        lane.room -= len(whole)
        stream.packets += (whole,)
        del holes[:told]

    def _refusal(self, lane: _Lane, size: int) -> str | None:
        """Why so many bytes are not kept; None: there is room for them."""
        if self._closed:
            return "closed"
        if size > self._longest:
            return "oversize"
        return "full" if size > lane.room and not self._draw(lane, size) else None

    def _report(self, stream: int, holes: list[list[int]]) -> bytes:
        discarded = self.discarded
        # A signal handler that was interrupted in its turn comes after what has interrupted it.
        ranges = [(stream, first, lost) for first, lost in sorted(holes)]
        parts = range(0, len(ranges), _RANGES_PER_REPORT)
        return b"".join(
            _wire.report(discarded, ranges[at : at + _RANGES_PER_REPORT]) for at in parts
        )

    def _draw(self, lane: _Lane, size: int) -> bool:
        """Get a lane room for a packet, and for more like it if there is enough."""
        with self._lock:
            while self._released:
                self._free += self._released.pop()
            least = size - lane.room
            share = min(self._chunk, self._limit // (_SHARES * len(self._lanes)))
            grant = min(self._free, max(least, share))
            if grant < least:
                return False
            self._free -= grant
            lane.room += grant
            lane.due = lane.due or self._drawn >= self._chunk
            self._drawn = grant + (0 if lane.due else self._drawn)
        return True

    def _lose(self, lane: _Lane, stream: _Stream, first: int, reason: str, lost: int = 1) -> None:
        lane.discarded[reason] += lost
        holes = stream.holes
        at = len(holes)
        while at and holes[at - 1][0] > first:  # of signal handlers that came between
            at -= 1
        if at and sum(holes[at - 1]) == first:
            holes[at - 1][1] += lost
        else:
            holes.insert(at, [first, lost])

    def _account(self, lane: _Lane, stream: _Stream, until: int) -> None:
        """After an exception in the midst: what has a number, below `until`, and is nowhere is
        discarded. Where this fails, too (the stack may be full), the next event does it."""
        following = stream.next
        waiting = stream.packets[-1:]
        at = number(waiting[0], following) + 1 if waiting else stream.taken
        for first, lost in [*sorted(hole for hole in stream.holes if hole[1]), [until, 0]]:
            if at < first:
                self._lose(lane, stream, at, "nested", first - at)
            at = max(at, first + lost)
        while _DOUBT in stream.holes:
            stream.holes.remove(_DOUBT)

    def _call(self, lane: _Lane) -> None:
        stream = lane.stream
        if self._idle and stream and stream.packets:
            self._idle = False
            with suppress(Exception):
                self._started()
        if lane.due:
            lane.due = False
            with suppress(Exception):
                self._filled()
