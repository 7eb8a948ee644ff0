"""The newest durable entries, still in memory: a reader that keeps up reads nothing back from disk.

That saves a third of the spool's work. What a reader has passed is forgotten at its next read, and
one that has fallen behind by more than the limit gets its entries from the files.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter

from tailrace.spool.entry import Entry


class Recent:
    """At most about `limit` bytes of consecutive entries; `add` and `read` are for any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def add(self, entries: list[Entry]) -> None:
        """Add entries that follow those added before."""
        if entries:
            with self._lock:
                self._entries += entries
                self._forget(entries[-1].end - self._limit)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return at least one entry and about `limit` bytes from a position on; nothing if it is not here."""
        with self._lock:
            self._forget(position)
            if not self._entries or self._entries[0].position != position:
                return []
            count = bisect_right(self._entries, position + limit, key=attrgetter("end"))
            return self._entries[: max(count, 1)]

    def _forget(self, position: int) -> None:
        del self._entries[: bisect_left(self._entries, position, key=attrgetter("position"))]
