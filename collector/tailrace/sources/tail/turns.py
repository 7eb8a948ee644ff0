"""Decide which files of a source are followed, and which compressed files have an inflater (decompressor).

A file whose last gzip member is incomplete needs an inflater, which takes 48 KiB. Only the most recently read files
keep theirs, within `inflating_max`. When another file grows, its last member must be decompressed again. Three rules
limit this work:

- At most `ACTIVE` files are read at a time. A file's turn ends when the whole file is read, or when as many new bytes
  were read as were decompressed again.
- A deleted file, and a file with at least as many new bytes as must be read again, waits in order of arrival. On
  average, each compressed byte is then decompressed at most four times.
- All other files share the rate `AGAIN_RATE` for repeated decompression. Within this rate, they come before the files
  that wait in order of arrival."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count, islice

from tailrace.sources.tail.content import INFLATING_BYTES
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.phase import NEXT, FileEvent


class Turns:
    """Limits the number of followed files to `places`. Other files wait in a queue."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._following: set[Followed] = set()
        self._waiting: dict[Followed, None] = {}

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._following)

    @property
    def are_taken(self) -> bool:
        return len(self._following) >= self.places

    def wait(self, file: Followed) -> None:
        file.phase = NEXT[FileEvent.TOO_MANY][file.phase]
        self._waiting[file] = None

    def waits(self, file: Followed) -> bool:
        return file in self._waiting

    def take(self, file: Followed) -> None:
        """Count a file as followed. A file that continues an existing session is followed even beyond the limit."""
        self._waiting.pop(file, None)
        self._following.add(file)

    def give_back(self, file: Followed) -> None:
        """Count a file as not followed any more. The file may still wait to be followed again."""
        self._following.discard(file)

    def forget(self, file: Followed) -> None:
        self._following.discard(file)
        self._waiting.pop(file, None)

    def given(self) -> list[Followed]:
        free = max(0, self.places - len(self._following))
        files = list(islice(self._waiting, free))
        for file in files:
            del self._waiting[file]
        return files


ACTIVE = 4
"""Maximum number of compressed files that are read concurrently. Others wait until the turn of one of these files ends
(see the module's docstring)."""
ACTIVE_BYTES = ACTIVE * INFLATING_BYTES
TURN = 16 * 2**20
"""Number of bytes (read from a file, plus decompressed from it) after which the file's turn ends, so that another file
is read."""
AGAIN_RATE = 128 * 2**20
"""Maximum rate (bytes read again plus bytes decompressed again, per second), which takes about a tenth of a core."""


class Inflaters:
    """Decides which compressed files of one source have an inflater and are read now. With `once`, a file's turn lasts
    until the whole file is read."""

    def __init__(self, limit: int, *, once: bool) -> None:
        self.limit = limit
        """Maximum memory (bytes) for inflaters; it must be at least `ACTIVE_BYTES`."""
        self._rate = float("inf") if once else AGAIN_RATE
        self._turn = float("inf") if once else TURN
        self._active: dict[Followed, float] = {}
        """The files whose turn it is to be read, each with the value of `Followed.passed` at which its turn ends."""
        self._idle: OrderedDict[Followed, int] = OrderedDict()
        self._idle_bytes = 0
        self._unread: set[Followed] = set()
        self._line: dict[Followed, None] = {}
        self._later: dict[Followed, int] = {}
        """Files that wait because the rate of repeated decompression is limited (`AGAIN_RATE`). Each has the number of
        its valid entry in `_heap`; other entries of the file are outdated."""
        self._heap: list[tuple[float, int, Followed]] = []
        self._order = count()
        self._next_again = float("-inf")

    @property
    def waiting(self) -> int:
        """Return the number of files that must be decompressed again, and wait because the rate `AGAIN_RATE` is used
        up."""
        return len(self._later)

    @property
    def next(self) -> float:
        """Return the earliest time at which a waiting file may be read; infinity if there is none."""
        if len(self._active) == ACTIVE or not (self._line or self._later):
            return float("inf")
        return float("-inf") if self._line else self._next_again

    def must_wait(self, file: Followed) -> bool:
        """Put a compressed file into the queue of waiting files, in order of arrival, unless the file may be read
        already. Return whether the file waits. Once it may be read, `begin` yields it."""
        if file.compressed is None or file in self._active:
            return False
        self._line[file] = None
        return True

    def grown(self, file: Followed) -> None:
        """Let a file wait in order of arrival, if it has grown so much that `AGAIN_RATE` (the limit for repeated
        decompression) does not apply any more."""
        if file in self._later and _may_begin(file):
            self._leave(file)
            self._line[file] = None

    def begin(self, now: float) -> Iterator[Followed]:
        while len(self._active) < ACTIVE and (file := self._next(now)) is not None:
            self._idle_bytes -= self._idle.pop(file, 0)
            self._active[file] = file.passed + max(self._turn, _again(file))
            yield file

    def used(self, file: Followed) -> None:
        """End the turn of a file (let other files be read) if the available bytes, or as many bytes as a turn allows,
        were read from it. Drop inflaters beyond the memory limit."""
        reader, end = file.compressed, self._active.get(file)
        if end is None:
            return
        # A file that will not grow keeps its inflater until the file is read whole, because the inflater holds the last
        # content back until it has all bytes. A new inflater would stop before this content, and the file would count
        # as changed.
        lasts = reader is not None and (reader.hole is not None or file.final or file.passed < end)
        if file.queued and lasts:
            return
        del self._active[file]
        (self._unread.add if file.queued else self._unread.discard)(file)
        if reader is not None and reader.memory:
            self._idle[file] = reader.memory
            self._idle_bytes += reader.memory
        while self._idle and self._idle_bytes + ACTIVE_BYTES > self.limit:
            other, size = self._idle.popitem(last=False)
            self._idle_bytes -= size
            other.give_up_inflater()

    def forget(self, file: Followed) -> None:
        self._active.pop(file, None)
        self._unread.discard(file)
        self._idle_bytes -= self._idle.pop(file, 0)
        self._line.pop(file, None)
        self._leave(file)

    def _leave(self, file: Followed) -> None:
        if self._later.pop(file, None) is not None and len(self._heap) > 2 * len(self._later):
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def _next(self, now: float) -> Followed | None:
        # Files that wait because of `AGAIN_RATE` come first. Otherwise files in `_line` could keep them waiting for
        # ever.
        return self._next_later(now) or self._next_in_line(now) or self._next_later(now)

    def _next_in_line(self, now: float) -> Followed | None:
        while self._line:
            file = next(iter(self._line))
            del self._line[file]
            if file in self._unread or _may_begin(file):
                return file
            number = self._later[file] = next(self._order)
            heapq.heappush(self._heap, (now + _again(file) / self._rate, number, file))
        return None

    def _next_later(self, now: float) -> Followed | None:
        while self._later and now >= self._next_again:
            _, number, file = heapq.heappop(self._heap)
            if self._later.get(file) == number:
                del self._later[file]
                self._next_again = now + _again(file) / self._rate
                return file
        return None


def _again(file: Followed) -> int:
    """Return how many bytes must be read again and decompressed again before a file's first new content."""
    return sum(file.compressed.repeated) if file.compressed is not None else 0


def _may_begin(file: Followed) -> bool:
    """Return whether a file may be decompressed again without regard to `AGAIN_RATE`."""
    if file.compressed is None or file.final or file.behind >= file.compressed.repeated[0]:
        return True
    return file.location.is_unlinked
