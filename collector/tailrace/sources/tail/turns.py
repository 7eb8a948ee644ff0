"""The order of files: when each is looked at, which have a place, and which compressed ones have an inflater.

`Turns` gives the places of followed files, and `Schedule` says when each file is looked at. A file that grows is looked at every `poll_interval`. A file that rests is looked at less and less
often, down to every `idle_interval`, or as often as keeps all looks together below `LOOKS_SHARE` of a
core.

`Inflaters` gives inflaters to the compressed files that were read last, as many as fit into `inflating_max`. A file whose last member is not over needs an inflater to go on, which takes 48 KiB. Inflaters of other files are given
up, and such a file has to be inflated again from the beginning of its last member when it grows. Three rules bound what that costs:

- Few files are read at a time (`ACTIVE`). A turn ends when all is read. Otherwise it lasts until the file has given at
  least as many new bytes as were inflated again for it.
- A file that has grown by as much as is to be inflated again begins in the order in which files asked, and so it does until
  all is read. On average, a byte of such a file is inflated four times at most. Bytes of content may be inflated more
  often: where a file's early bytes are packed more tightly than the late ones, more content is inflated again than is new.
  A file that has no name any more begins in this order, too, whatever it has grown by.
- The rest is inflated again at a rate of `AGAIN_RATE`, before files of the second rule. Files with few such bytes begin
  first. The time for which a file has waited counts, so that every file has its turn.
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

LOOKS_SHARE = 0.005
LOOK_COST = 5e-6
"""Seconds that a look takes at least."""
RETRY_MAX = 30.0
TICKS = 4
"""Moments in an interval at which files are looked at together."""


class Schedule:
    """The times of the files' next looks. The last `put` of a file counts."""

    def __init__(self, config: TailConfig) -> None:
        self.config = config
        self._due: list[tuple[float, int, Followed]] = []
        self._order = count()

    @property
    def next(self) -> float:
        """Return when the next file is due, infinity if none is."""
        return self._due[0][0] if self._due else float("inf")

    def put(self, file: Followed, at: float) -> None:
        file.due = at
        heapq.heappush(self._due, (at, next(self._order), file))

    def take(self, now: float) -> Iterator[Followed]:
        """Yield all files that are due. They may be put in again meanwhile."""
        while self._due and self._due[0][0] <= now:
            due, _, file = heapq.heappop(self._due)
            if due == file.due:
                yield file

    def rest(self, looks: int) -> float:
        """Return the seconds between two rounds of so many looks at what does not change."""
        return max(self.config.idle_interval, looks * LOOK_COST / LOOKS_SHARE)

    def after_look(self, file: Followed, now: float, files: int) -> None:
        """Put in a file again after a look; `files` is the number of all files."""
        poll = self.config.poll_interval
        rests = file.location.changed_at != now
        file.interval = min(max(2 * file.interval, poll), self.rest(files)) if rests else poll
        # Look at files together, because a wake-up costs as much as ten looks.
        tick = file.interval / TICKS
        self.put(file, math.ceil((now + file.interval) / tick) * tick)

    def after_failure(self, file: Followed, now: float) -> None:
        file.interval = min(max(2 * file.interval, self.config.idle_interval), RETRY_MAX)
        self.put(file, now + file.interval)


class Turns:
    """A limited number of places. Waiting files get places in the order in which they began to wait."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._following: set[Followed] = set()
        self._waiting: dict[Followed, None] = {}

    def __iter__(self) -> Iterator[Followed]:
        """Yield the files that have a place."""
        return iter(self._following)

    @property
    def are_taken(self) -> bool:
        return len(self._following) >= self.places

    def wait(self, file: Followed) -> None:
        file.wait("files_max")
        self._waiting[file] = None

    def waits(self, file: Followed) -> bool:
        return file in self._waiting

    def take(self, file: Followed) -> None:
        """Give a file a place, beyond the limit if need be, because it continues what had a place."""
        self._waiting.pop(file, None)
        self._following.add(file)

    def give_back(self, file: Followed) -> None:
        """Let others have a file's place. The file may wait for another one."""
        self._following.discard(file)

    def forget(self, file: Followed) -> None:
        self._following.discard(file)
        self._waiting.pop(file, None)

    def given(self) -> list[Followed]:
        """Return the files whose turn it is. They wait no more."""
        free = max(0, self.places - len(self._following))
        files = list(islice(self._waiting, free))
        for file in files:
            del self._waiting[file]
        return files


ACTIVE = 4
"""Files that are read in turn, piece by piece."""
ACTIVE_BYTES = ACTIVE * INFLATING_BYTES
TURN = 16 * 2**20
"""Bytes of a file and its content after which the next file has its turn."""
AGAIN_RATE = 128 * 2**20
"""Bytes of files and their content: about a tenth of a core."""


class Inflaters:
    """The inflaters of one source, and the files that wait to be inflated. With `once`, a turn ends when all is read."""

    def __init__(self, limit: int, *, once: bool) -> None:
        self.limit = limit
        """Memory for inflaters (bytes), at least `ACTIVE_BYTES`."""
        self._rate = float("inf") if once else AGAIN_RATE
        self._turn = float("inf") if once else TURN
        self._active: dict[Followed, float] = {}
        """The bytes that each file will have `passed` at the end of its turn."""
        self._idle: OrderedDict[Followed, int] = OrderedDict()
        """The memory of other inflaters (bytes); the inflater that was used last is the last one."""
        self._idle_bytes = 0
        self._unread: set[Followed] = set()
        """Files whose last turn ended before all was read."""
        self._line: dict[Followed, None] = {}
        """Files that wait, in order."""
        self._later: dict[Followed, int] = {}
        """Files that wait until they may be inflated again, and the number of the entry of each in `_heap`."""
        self._heap: list[tuple[float, int, Followed]] = []
        self._order = count()
        self._next_again = float("-inf")

    @property
    def waiting(self) -> int:
        """Return how many files wait until they may be inflated again."""
        return len(self._later)

    @property
    def next(self) -> float:
        """Return when the next file may have its turn, infinity if none waits."""
        if len(self._active) == ACTIVE or not (self._line or self._later):
            return float("inf")
        return float("-inf") if self._line else self._next_again

    def must_wait(self, file: Followed) -> bool:
        """Return whether a file has to wait before it is read. `begin` returns it when its turn has come."""
        if file.compressed is None or file in self._active:
            return False
        self._line[file] = None
        return True

    def grown(self, file: Followed) -> None:
        """Reconsider a file that waits."""
        if file in self._later and _may_begin(file):
            self._leave(file)
            self._line[file] = None

    def begin(self, now: float) -> Iterator[Followed]:
        """Yield the files whose turn it is."""
        while len(self._active) < ACTIVE and (file := self._next(now)) is not None:
            self._idle_bytes -= self._idle.pop(file, 0)
            self._active[file] = file.passed + max(self._turn, _again(file))
            yield file

    def used(self, file: Followed) -> None:
        """Note that a piece of a file was read, or that its reader failed."""
        reader, end = file.compressed, self._active.get(file)
        if end is None:
            return
        # The last content of a final file would not come again before the file's end.
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
        """Take a file out of `_later`, and now and then what is left of such files in the heap."""
        if self._later.pop(file, None) is not None and len(self._heap) > 2 * len(self._later):
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def _next(self, now: float) -> Followed | None:
        # A line that never ends must not keep back those that wait already.
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
    """Return how many bytes of a file, and of its content, are to be inflated again."""
    return sum(file.compressed.repeated) if file.compressed is not None else 0


def _may_begin(file: Followed) -> bool:
    """Return whether a file is inflated again without delay."""
    if file.compressed is None or file.final or file.behind >= file.compressed.repeated[0]:
        return True
    return file.location.is_unlinked
