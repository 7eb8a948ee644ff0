"""Which lane each thread has, and which stream each lane writes to."""

from __future__ import annotations

import threading
import time

from tailrace_client._lane import Lane, Stream

_JOIN_SECONDS = 0.1


class _Lease:
    """A thread's hold on a lane. It ends with the thread."""

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
    """The lanes of a recorder's threads, and the streams of the lanes.

    There are never more lanes, nor streams of lanes, than threads at a time.
    """

    __slots__ = ("_free", "_lock", "all", "local", "streams")

    def __init__(self) -> None:
        self.all: list[Lane] = []
        self.streams: dict[int, Stream] = {}
        """By number."""
        self.local = _Local()
        """The calling thread's lane, or None before it has joined."""
        self._free: list[Lane] = []
        self._lock = threading.Lock()

    def join(self) -> Lane:
        """Return a lane for a thread that has none: a free lane, or a new one."""
        try:
            lane = self._free.pop()
        except IndexError:
            lane = Lane()
            self.all.append(lane)
        else:
            # Not with the lock: a signal handler that joins meanwhile would wait for it forever.
            self._leave(lane)
        lease = _Lease(lane, self._free)
        local = self.local
        if local.lane is None:  # a signal handler may have joined meanwhile
            local.lease = lease
            local.lane = lane
        return local.lane

    def own(self, lane: Lane) -> Stream:
        """Give a lane a stream of its own, with the lowest free number, and return the stream."""
        with self._lock:
            free = 1
            while free in self.streams:
                free += 1
            stream = self.streams[free] = lane.own = lane.stream = Stream(free)
            stream.user = lane
        return stream

    def use(self, lane: Lane, number: int | None) -> None:
        """Let a lane write to stream `number`, or, with None, to its own stream again."""
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
        # The stream's first user may be in the middle of an event that it began without the lock.
        deadline = time.monotonic() + _JOIN_SECONDS
        while other and other is not lane and other.inside and time.monotonic() < deadline:
            time.sleep(0)

    def _leave(self, lane: Lane) -> None:
        """Let a lane write to its own stream again.

        If another thread calls `use` for the old stream meanwhile, that stream gets a lock, or the
        other lane becomes its user. Both are right.
        """
        stream = lane.stream
        if stream and stream is not lane.own and stream.user is lane and not stream.lock:
            stream.user = None
        lane.stream = lane.own
