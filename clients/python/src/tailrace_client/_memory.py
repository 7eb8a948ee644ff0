"""The bound of a recorder's memory, handed to lanes in grants so that an event needs no lock."""

from __future__ import annotations

import threading

from tailrace_client._lane import Lane

_SHARES = 8
"""All lanes' unused grants are at most one part in so many of the memory."""


class Memory:
    """Bytes that may be recorded and not released."""

    __slots__ = ("_chunk", "_free", "_granted", "_limit", "_lock", "_longest", "_released")

    def __init__(self, limit: int, chunk: int, longest: int) -> None:
        """Grant at most `limit` bytes in all, and no lane more room than the `longest` packet takes.
        After each `chunk` granted bytes a lane is `due`."""
        self._limit, self._chunk, self._longest = limit, chunk, longest
        self._lock = threading.Lock()
        self._free = limit
        self._granted = 0
        """Bytes granted since the last lane was due."""
        self._released: list[int] = []

    def release(self, size: int) -> None:
        """Take back the bytes of chunks that their taker has let go."""
        self._released.append(size)

    def draw(self, lane: Lane, size: int, lanes: int) -> bool:
        """Grant one of `lanes` lanes room for a packet of `size` bytes, at most the longest, and for
        more like it if there is enough. Return False, and grant nothing, if the packet does not fit."""
        with self._lock:
            while self._released:
                self._free += self._released.pop()
            least = size - lane.room
            share = min(self._chunk, self._limit // (_SHARES * lanes))
            # A packet that has room is not compared with the longest.
            grant = min(self._free, max(least, min(share, self._longest - lane.room)))
            if grant < least:
                return False
            self._free -= grant
            lane.room += grant
            lane.due = lane.due or self._granted >= self._chunk
            self._granted = grant + (0 if lane.due else self._granted)
        return True
