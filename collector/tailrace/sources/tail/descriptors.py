"""Open files: those that grew last. The others are opened again when they grow."""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Hashable

from tailrace.sources.source import RESERVE
from tailrace.sources.tail.roots import Roots


class TailDescriptors:
    """At most `limit` descriptors, and at most half of those that the process may have.

    A pinned descriptor is not closed to make room, because its file may have no other name."""

    def __init__(self, limit: int, roots: Roots) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.roots = roots
        self._limit = limit if soft == resource.RLIM_INFINITY else max(1, min(limit, soft // 2))
        self._open: OrderedDict[Hashable, int] = OrderedDict()
        self._pinned: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, owner: Hashable) -> bool:
        return owner in self._open

    @property
    def spare(self) -> bool:
        """Return whether one more file can be opened without closing another."""
        return len(self._open) < self._limit

    def get(self, owner: Hashable) -> int | None:
        """Return the descriptor of a file, None if the file is not open. The descriptor counts as
        just used."""
        fd = self._open.get(owner)
        if fd is not None:
            self._open.move_to_end(owner)
        return fd

    def open(self, owner: Hashable, path: str) -> int:
        """Open a file that is not open; return its descriptor. Raise OSError, also if the descriptor
        would come from the process's reserve and no other file can be closed for it."""
        fd = self.roots.open(path)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and fd >= max(soft // 2, soft - RESERVE):
            if (other := self._oldest()) is None:
                os.close(fd)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self.close(other)
        while len(self._open) >= self._limit and (oldest := self._oldest()) is not None:
            self.close(oldest)
        self._open[owner] = fd
        return fd

    def pin(self, owner: Hashable) -> None:
        if owner in self._open:
            self._pinned.add(owner)

    def unpin(self, owner: Hashable) -> None:
        self._pinned.discard(owner)

    def close(self, owner: Hashable) -> None:
        self._pinned.discard(owner)
        if (fd := self._open.pop(owner, None)) is not None:
            os.close(fd)

    def close_all(self) -> None:
        for owner in list(self._open):
            self.close(owner)

    def _oldest(self) -> Hashable | None:
        return next((owner for owner in self._open if owner not in self._pinned), None)
