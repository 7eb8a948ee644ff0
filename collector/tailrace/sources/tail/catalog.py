"""Index the files of a source, schedule their checks, and determine which file is a copy of another file.

gzip writes a compressed copy next to a file and then removes the file. libovni copies a stream to another directory and
removes the original. rsync replaces a file by a longer copy. The events must be stored only once. So a file that may be
a copy waits while its original exists. Once the original is removed, the copy continues its session.

Equal first bytes make a file a possible copy, but prove nothing. So the whole content of a file that waits as a
possible copy is compared once the file is unchanged for `SETTLED`. A proven copy keeps waiting. If the contents differ,
or if there is no result after `UNPROVEN_MAX`, the file is read into a session of its own. Readers hide this session if
the file is a copy nevertheless.

If a copy is found before its original, the original is read, too: the copy may be the file of an earlier run."""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count
from operator import attrgetter
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import originals
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.identity import Trail, relation
from tailrace.sources.tail.phase import WAITING, Phase

SETTLED = 60.0
"""Time (seconds) without a change after which a file counts as completely written."""

UNPROVEN_MAX = 600.0
"""Maximum time (seconds) for which a file waits as a possible copy if the comparison gives no result."""

ENDED_MAX = 8192
"""Maximum number of groups (files that may be copies of one another) for which the catalog remembers files whose
sessions have ended."""

LOOKS_SHARE = 0.005
LOOK_COST = 5e-6
"""Minimum CPU time (seconds) of one check of a file, used to plan the intervals."""
RETRY_MAX = 30.0
TICKS = 4
"""Number of ticks in a check interval. Checks are delayed to the next tick, so that one wake-up serves many files."""


class Ended(NamedTuple):
    """A file whose session has ended, and the trail (first and last bytes, size and checksum) of its content."""

    path: str
    content: Trail


class Catalog:
    """The files that a source knows, and the times of their next checks.

    Files with equal keys (`key(path)`) form a group of possible copies. With `apart`, no file is treated as a copy."""

    def __init__(
        self, key: Callable[[str], str], config: TailConfig, clock: Clock, *, apart: bool
    ) -> None:
        self.config = config
        self._clock = clock
        self._key = str if apart else key
        self._apart = apart
        self._by_path: dict[str, Followed] = {}
        self._by_node: dict[tuple[int, int], Followed] = {}
        self._by_key: dict[str, list[Followed]] = {}
        self._aliases: dict[str, Followed] = {}
        self._ended: OrderedDict[str, list[Ended]] = OrderedDict()
        self._all: dict[Followed, str] = {}
        self._summed: Followed | None = None
        self._count = count(1)
        self._due: list[tuple[float, int, Followed]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._all)

    def __contains__(self, file: Followed) -> bool:
        return file in self._all

    def at(self, path: str) -> Followed | None:
        """Return the file that has `path` as its path or as a further path (alias)."""
        return self._by_path.get(path) or self._aliases.get(path)

    def of_node(self, node: tuple[int, int]) -> Followed | None:
        return self._by_node.get(node)

    def akin(self, path: str) -> list[Followed]:
        """Return the known files that may be copies or originals of the file at a path."""
        return self._by_key.get(self._key(path), [])

    def ended_akin(self, path: str) -> list[Ended]:
        """Return the files with ended sessions that may be copies or originals of the file at a path."""
        return self._ended.get(self._key(path), [])

    def relatives(self, file: Followed) -> list[Followed]:
        """Return all other known files in the given file's group of possible copies."""
        return [other for other in self._by_key.get(self._all[file], ()) if other is not file]

    def juniors(self, file: Followed) -> list[Followed]:
        """Return those other files in the given file's group of possible copies that were found later than this
        file."""
        return [other for other in self.relatives(file) if other.known > file.known]

    def add(self, file: Followed, key: str | None = None) -> None:
        """Add a file to the group of possible copies with the key `key`, by default the key of the file's path. A newly
        found file takes over the rank of the earlier file at its path, or else gets the next rank."""
        key = self._key(file.location.path) if key is None else key
        self._all[file] = key
        if not file.known:
            file.known = next(self._count)
            before, path = self.at(file.location.path), file.location.path
            file.rank = before.rank if before and before.location.path == path else file.known
        insort(self._by_key.setdefault(key, []), file, key=lambda other: other.rank)
        self._by_path[file.location.path] = file
        self._by_node[file.location.node] = file
        self.check_at(file, self._clock.monotonic())

    def replace(self, waiting: Followed, file: Followed) -> str | None:
        """Give `file` the path and descriptor of `waiting`, an entry for the same file, which was found again. Return
        the former path of `file`, or None if the path is unchanged."""
        before = file.location.path
        self.remove(file)
        file.become(waiting)
        self.add(file)
        return None if file.location.path == before else before

    def move(self, file: Followed, path: str) -> None:
        """Record a file's new path. A file that may be a copy stays in its group, in which its possible original is."""
        key = self.remove(file)
        file.moved(path)
        self.add(file, key if file.phase is Phase.COPY else None)

    def waiting(self, file: Followed) -> list[Followed]:
        return [other for other in self.relatives(file) if other.phase in WAITING]

    def add_alias(self, path: str, file: Followed) -> None:
        self._aliases[path] = file

    def remove(self, file: Followed) -> str:
        """Remove a file from the catalog. Return the key of the file's group of possible copies."""
        key = self._all.pop(file)
        self._by_key[key].remove(file)
        if not self._by_key[key]:
            del self._by_key[key]
        at = file.location
        if self._by_path.get(at.path) is file:
            del self._by_path[at.path]
        if self._by_node.get(at.node) is file:
            del self._by_node[at.node]
        for path in self.aliases(file):
            del self._aliases[path]
        return key

    def aliases(self, file: Followed) -> list[str]:
        return [path for path, owner in self._aliases.items() if owner is file]

    def remember(self, path: str, content: Trail) -> None:
        """Remember the content of an ended session's file, so that later copies of it are recognised."""
        key = self._key(path)
        self._ended.setdefault(key, []).append(Ended(path, content.copied()))
        self._ended.move_to_end(key)
        del self._ended[key][:-16]
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    # The following methods set and return the times at which files are checked.

    @property
    def next_due(self) -> float:
        return self._due[0][0] if self._due else float("inf")

    def check_at(self, file: Followed, at: float) -> None:
        file.due = at
        heapq.heappush(self._due, (at, next(self._order), file))

    def check_soon(self, file: Followed, now: float) -> None:
        if file in self._all and file.due > now:
            self.check_at(file, now)

    def due(self, now: float) -> Iterator[Followed]:
        """Yield all files whose check is due. The catalog may change during the iteration."""
        while self._due and self._due[0][0] <= now:
            due, _, file = heapq.heappop(self._due)
            if due == file.due and file in self._all:
                yield file

    def idle_interval(self, looks: int) -> float:
        """Return an interval (seconds) between two checks of a file. The interval is so long that `looks` checks take
        at most the fraction `LOOKS_SHARE` of it."""
        return max(self.config.idle_interval, looks * LOOK_COST / LOOKS_SHARE)

    def after_check(self, file: Followed, now: float) -> None:
        poll = self.config.poll_interval
        if file.location.changed_at == now:
            file.interval = poll
        else:
            file.interval = min(max(2 * file.interval, poll), self.idle_interval(len(self)))
        # A wake-up costs as much as ten checks, so let many checks fall due together.
        tick = file.interval / TICKS
        self.check_at(file, math.ceil((now + file.interval) / tick) * tick)

    def after_failure(self, file: Followed, now: float) -> None:
        file.interval = min(max(2 * file.interval, self.config.idle_interval), RETRY_MAX)
        self.check_at(file, now + file.interval)

    # The following methods determine which file is a copy of another file.

    def is_copy(self, file: Followed, now: float) -> bool | None:
        """Return whether a file must not be read yet, because it may be a copy of a known file or of a file whose
        session has ended. Return None while a comparison is unfinished. Raise OSError if a file cannot be read."""
        # Call `_has_original` first: it also checks other files for changes, which may end their sessions.
        if (found := self._has_original(file, now)) is not False:
            return found
        ended = self.ended_like(file)
        return ended is not None and len(file.head()) < len(ended.head)

    def _has_original(self, file: Followed, now: float) -> bool | None:
        """Return whether a file must not be read yet, because another file with the same beginning may be its original.
        The other file is followed, or was found earlier and may be followed later. Return None while a comparison is
        unfinished. Raise OSError if a file cannot be read."""
        head, group = file.head(), self._by_key[self._all[file]]
        for elder in group[: group.index(file)]:
            if elder.phase is Phase.NEW:
                with suppress(OSError):  # the next check of `elder` reports an error that persists
                    elder.look(now)  # `elder` may have been empty at its last check
                    if elder.size > 0 and relation(elder.head(), head) != "other":
                        return True
        for other in self.relatives(file):
            unproven = other.phase is Phase.COPY and not other.is_proven
            if other.known < file.known and unproven and _begins_alike(other, head):
                return True
        for other in self.relatives(file):
            if _is_alike(other, head):
                # Check `other` for changes since its last check, before the files are compared.
                other.look(now)
                alike = _is_alike(other, head) and other.may_have_copy(file, head)
                if alike and (found := self._may_repeat(file, other, now)) is not False:
                    return found
        return False

    def _may_repeat(self, file: Followed, other: Followed, now: float) -> bool | None:
        """Return whether `file` must not be read yet, because it may be a copy of `other`, a followed file with the
        same beginning. Return None while the comparison is unfinished. Raise OSError if a file cannot be read."""
        if other.location.gone is not None or file.is_proven:
            return True
        # Do not compare yet while `file` may grow, or while `other` has unread bytes that `file` may contain.
        if now - file.location.changed_at < SETTLED or file.is_ahead_of(other):
            return file.waited_from is None or now - file.waited_from < UNPROVEN_MAX
        # Compute the checksum of only one file at a time, because this may need a decompressor. All other files wait.
        if self._summed is not None and self._summed is not file:
            if self._summed in self._all and self._summed.is_summing:
                return True
            self._summed.give_up_sum()
        self._summed = file
        return file.proves(other)

    def is_part(self, file: Followed, now: float) -> bool | None:
        """Return whether a file is a copy of another file or of its beginning; None while a comparison is unfinished.
        Compare all bytes, because traces of one program begin alike. Raise OSError if the file cannot be read."""
        if file.was_part:
            return True
        if self._apart:
            return False
        names = originals(file.location.path)
        paths = [path for name in names for path in (name, f"{name}.gz")]
        for other in filter(None, map(self.at, paths)):
            if other is not file:
                # `other` may have grown or ended since its last check. The next check reports an error.
                with suppress(OSError):
                    other.look(now)
                if (found := file.is_part_of(other)) is not False:
                    return found
        for ended in chain.from_iterable(map(self.ended_akin, paths)):
            if ended.path in paths and (found := file.was_read_as(ended.content)) is not False:
                return found
        return False

    def replaced(self, file: Followed, now: float) -> list[Followed]:
        """Check the other files in the same group of possible copies as `file` for changes. Return those whose paths
        now lead to other files."""
        found = []
        for other in self.relatives(file):
            with suppress(OSError):  # the next check of `other` reports the error
                if other.location.gone is None and other.look(now):
                    found.append(other)
        return found

    def yielding(self, file: Followed) -> list[Followed]:
        """Return the other followed files that are in the same group of possible copies as `file`, and of which no
        content was read so far. The source stops following these files and reads only `file`, because they may be
        copies of it."""
        return [
            other
            for other in self.relatives(file)
            if other.phase is Phase.FOLLOWED and other.is_blank and not other.behind
        ]

    def begun_copy(self, file: Followed) -> Followed | None:
        """Return a followed compressed file if all content that was read from it is the beginning of the content of
        `file`. Return None if there is no such file. Raise OSError if a file cannot be read."""
        head = file.head()
        for other in self.relatives(file):
            known = other.handoff.content
            whole = other.compressed is not None and not other.handoff.lost
            short = 0 < known.offset == len(known.head) < len(head)
            if whole and short and other.location.gone is None and _is_alike(other, head):
                return other
        return None

    def ended_like(self, file: Followed) -> Trail | None:
        """Return the trail of a file whose session has ended and that begins like `file`, or None. Raise OSError if
        `file` cannot be read."""
        head = file.head()
        for ended in self._ended.get(self._all[file], ()):
            # A new file at the path of an ended file counts as a new run of the program, not as a copy.
            if ended.path != file.location.path and relation(ended.content.head, head) != "other":
                return ended.content
        return None

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        """Return whether another source must not read the file at `path`, which begins with `head`. This is so if this
        source reads the file or a possible original of the file. It is also so if this source knows the file and has
        ended the session of another file with the same first bytes."""
        known = self.of_node((device, inode))
        if known is not None and known.phase not in WAITING:
            return True
        for other in list(self.akin(path)):
            if not _is_alike(other, head):
                continue
            try:
                other.look(self._clock.monotonic())  # find changes before the comparison
            except OSError:
                return True  # `other` cannot be read now: let other sources wait
            behind = other.location.gone is not None or other.behind > 0
            if _is_alike(other, head) and (behind or len(head) <= other.handoff.content.offset):
                return True
        return known is not None and any(
            ended.path != path and relation(ended.content.head, head) != "other"
            for ended in self.ended_akin(path)
        )

    def awaits(self, path: str, head: bytes) -> bool:
        """Return whether an unread file of this source may be a copy of the file at `path`. Another source reads that
        file, which begins with `head`."""
        return any(
            file.phase in WAITING and file.location.path != path and _begins_alike(file, head)
            for file in self.akin(path)
        )

    def heir(self, file: Followed, now: float) -> Followed | None:
        """Return the file that is to continue the session of a removed file: a copy of which nothing was read so far,
        or None. Prefer the copy that was found first. Raise OSError if a copy cannot be read."""
        if file.handoff.number is None:
            return None
        for other in sorted(self.waiting(file), key=attrgetter("known")):
            other.look(now)
            may_be_copy = other.size and file.may_have_copy(other, other.head())
            if may_be_copy and not self._may_repeat_another(file, other):
                return other
        return None

    def _may_repeat_another(self, file: Followed, copy: Followed) -> bool:
        """Return whether `copy` may be a copy of a file other than the removed `file`. Raise OSError if a file cannot
        be read."""
        # gzip may be writing `copy` from another file, and `copy` may have too few bytes so far to tell from which
        # file.
        head = copy.head()
        if relation(file.handoff.content.head, head) == "same":
            return False
        compared = min(len(head), len(file.handoff.content.head))
        return any(
            other is not copy
            and other.location.gone is None
            and _is_alike(other, head)
            and len(other.handoff.content.head) >= compared
            for other in self.relatives(file)
        )


def _begins_alike(file: Followed, head: bytes) -> bool:
    """Return whether a file may begin with the same bytes as `head`. Return False if the file cannot be read, for
    example because it was removed."""
    try:
        return relation(file.head(), head) != "other"
    except OSError:
        return False


def _is_alike(file: Followed, head: bytes) -> bool:
    return file.phase is Phase.FOLLOWED and relation(file.handoff.content.head, head) != "other"
