"""Schedule the files of a source: the time of each file's next check, the followed files, and the
compressed files with an inflater.

`Turns` assigns the limited places for followed files. `Schedule` determines when each file is
checked. A growing file is checked every `poll_interval`. The interval for an unchanged file
increases up to `idle_interval`, or to the interval at which all checks together use `LOOKS_SHARE`
of a core.

`Inflaters` keeps inflaters for the most recently read compressed files, within the memory limit
`inflating_max`. A file whose last member is incomplete needs an inflater, which takes 48 KiB. The
inflaters of other files are dropped; when such a file grows, its last member must be decompressed
again from its beginning. Three rules limit the cost of repeated decompression:

- At most `ACTIVE` files are read at a time. A turn of a file ends when the whole file is read, or
  when the number of new bytes is at least the number of bytes that were decompressed again.
- A file waits in the order of requests if its new bytes are at least as many as the bytes to
  decompress again, until the whole file is read. On average, a byte of such a file is decompressed
  at most four times. Content bytes may be decompressed more often, if early bytes of the file are
  compressed more strongly than late bytes. A deleted file also waits in the order of requests,
  independent of its growth.
- All other files are decompressed again at the rate `AGAIN_RATE`, before the files that wait in the
  order of requests. Files with few bytes to decompress again come first. The waiting time of a file
  also counts, so that each file gets a turn.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count, islice

from tailrace.config.schema import TailConfig
from tailrace.sources.tail.content import INFLATING_BYTES
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.phase import NEXT, FileEvent

LOOKS_SHARE = 0.005
LOOK_COST = 5e-6
"""Minimum CPU time (seconds) of one check."""
RETRY_MAX = 30.0
TICKS = 4
"""Number of points in an interval at which due files are checked together."""


class Schedule:
    """The times of the files' next checks. If a file is `put` several times, the last time is
    valid."""

    def __init__(self, config: TailConfig) -> None:
        self.config = config
        self._due: list[tuple[float, int, Followed]] = []
        self._order = count()

    @property
    def next(self) -> float:
        """Return the time at which the next file is due; infinity if no file is scheduled."""
        return self._due[0][0] if self._due else float("inf")

    def put(self, file: Followed, at: float) -> None:
        file.due = at
        heapq.heappush(self._due, (at, next(self._order), file))

    def take(self, now: float) -> Iterator[Followed]:
        """Yield all due files. The caller may put files into the schedule during the iteration."""
        while self._due and self._due[0][0] <= now:
            due, _, file = heapq.heappop(self._due)
            if due == file.due:
                yield file

    def rest(self, looks: int) -> float:
        """Return the interval (seconds) between two rounds of `looks` checks of unchanged files."""
        return max(self.config.idle_interval, looks * LOOK_COST / LOOKS_SHARE)

    def after_look(self, file: Followed, now: float, files: int) -> None:
        """Schedule the next check of a file after a check; `files` is the number of all files."""
        poll = self.config.poll_interval
        rests = file.location.changed_at != now
        file.interval = min(max(2 * file.interval, poll), self.rest(files)) if rests else poll
        # Check files together, because a wake-up costs as much as ten checks.
        tick = file.interval / TICKS
        self.put(file, math.ceil((now + file.interval) / tick) * tick)

    def after_failure(self, file: Followed, now: float) -> None:
        file.interval = min(max(2 * file.interval, self.config.idle_interval), RETRY_MAX)
        self.put(file, now + file.interval)


class Turns:
    """A limited number of places for followed files. Waiting files get places in the order in which
    they began to wait."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._following: set[Followed] = set()
        self._waiting: dict[Followed, None] = {}

    def __iter__(self) -> Iterator[Followed]:
        """Yield the followed files, which have a place."""
        return iter(self._following)

    @property
    def are_taken(self) -> bool:
        return len(self._following) >= self.places

    def wait(self, file: Followed) -> None:
        file.phase = NEXT[FileEvent.NO_PLACE][file.phase]
        self._waiting[file] = None

    def waits(self, file: Followed) -> bool:
        return file in self._waiting

    def take(self, file: Followed) -> None:
        """Give a file a place. The limit may be exceeded, because the file continues a file that
        had a place."""
        self._waiting.pop(file, None)
        self._following.add(file)

    def give_back(self, file: Followed) -> None:
        """Release a file's place for other files. The file may still wait for another place."""
        self._following.discard(file)

    def forget(self, file: Followed) -> None:
        self._following.discard(file)
        self._waiting.pop(file, None)

    def given(self) -> list[Followed]:
        """Remove waiting files from the queue, as many as there are free places; return the files."""
        free = max(0, self.places - len(self._following))
        files = list(islice(self._waiting, free))
        for file in files:
            del self._waiting[file]
        return files


ACTIVE = 4
"""Maximum number of compressed files that are read alternately."""
ACTIVE_BYTES = ACTIVE * INFLATING_BYTES
TURN = 16 * 2**20
"""Number of file and content bytes in one turn, after which the next file is read."""
AGAIN_RATE = 128 * 2**20
"""Maximum rate (file and content bytes a second) of repeated decompression; about a tenth of a
core."""


class Inflaters:
    """The inflaters of one source, and the files that wait for decompression. With `once`, a turn
    ends only at the end of a file."""

    def __init__(self, limit: int, *, once: bool) -> None:
        self.limit = limit
        """Memory limit (bytes) for inflaters, at least `ACTIVE_BYTES`."""
        self._rate = float("inf") if once else AGAIN_RATE
        self._turn = float("inf") if once else TURN
        self._active: dict[Followed, float] = {}
        """The number of processed bytes (`passed`) at which each active file's turn ends."""
        self._idle: OrderedDict[Followed, int] = OrderedDict()
        """Memory (bytes) of each inactive inflater, ordered by use; the most recently used inflater
        is last."""
        self._idle_bytes = 0
        self._unread: set[Followed] = set()
        """Files whose last turn ended before the whole file was read."""
        self._line: dict[Followed, None] = {}
        """Compressed files that wait for an inflater, in the order of requests."""
        self._later: dict[Followed, int] = {}
        """Files that wait for the rate limit of repeated decompression, each with the number of its
        entry in `_heap`."""
        self._heap: list[tuple[float, int, Followed]] = []
        self._order = count()
        self._next_again = float("-inf")

    @property
    def waiting(self) -> int:
        """Return the number of files that wait for the rate limit of repeated decompression."""
        return len(self._later)

    @property
    def next(self) -> float:
        """Return the time at which the next file may start its turn; infinity if no file can start."""
        if len(self._active) == ACTIVE or not (self._line or self._later):
            return float("inf")
        return float("-inf") if self._line else self._next_again

    def must_wait(self, file: Followed) -> bool:
        """Return whether a file must wait before reading. `begin` yields the file when its turn
        starts."""
        if file.compressed is None or file in self._active:
            return False
        self._line[file] = None
        return True

    def grown(self, file: Followed) -> None:
        """Move a file from the rate-limited queue to the first-come queue if the file has grown
        enough."""
        if file in self._later and _may_begin(file):
            self._leave(file)
            self._line[file] = None

    def begin(self, now: float) -> Iterator[Followed]:
        """Yield the files whose turn starts now."""
        while len(self._active) < ACTIVE and (file := self._next(now)) is not None:
            self._idle_bytes -= self._idle.pop(file, 0)
            self._active[file] = file.passed + max(self._turn, _again(file))
            yield file

    def used(self, file: Followed) -> None:
        """Record that a piece of a file was read, or that reading failed."""
        reader, end = file.compressed, self._active.get(file)
        if end is None:
            return
        # Keep the turn of a final file, because dropped content of a final file is not read again
        # before the file's end.
        lasts = reader is not None and (reader.in_hole or file.final or file.passed < end)
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
        """Remove a file from `_later`, and occasionally remove outdated entries from the heap."""
        if self._later.pop(file, None) is not None and len(self._heap) > 2 * len(self._later):
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def _next(self, now: float) -> Followed | None:
        # An endless queue must not delay the files that wait for the rate limit.
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
    """Return the number of file and content bytes that must be decompressed again."""
    return sum(file.compressed.repeated) if file.compressed is not None else 0


def _may_begin(file: Followed) -> bool:
    """Return whether a file may be decompressed again without delay."""
    if file.compressed is None or file.final or file.behind >= file.compressed.repeated[0]:
        return True
    return file.location.is_unlinked
