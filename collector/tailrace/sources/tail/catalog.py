"""Index the known files by path, by inode and by possible originals, and determine the file that
continues another file's session.

gzip writes a compressed copy next to a file and then removes the file. libovni copies a stream to
another directory and removes the original. rsync replaces a file by a longer copy. Each stream must
be read only once. A possible copy therefore waits while its original exists, and continues the
original's session after the original is removed. A possible copy is also compared with the content
of files that ended earlier.

Editors, download tools, log rotations and users leave copies next to a file, with names derived
from the file's name. Such a copy waits while all its bytes equal the original's bytes. A copy that
is shorter than the original waits only if the copy has at least `HEAD` bytes.

The first bytes make a file a possible copy, but do not prove a copy. Once a waiting file is
unchanged for `SETTLED`, its whole content is compared, and the file waits on only as a proven copy
(`Followed.proves`). A file about which nothing is known after `UNPROVEN_MAX` is read into a session
of its own; readers hide this session if it is a copy after all. An original that is found after its
copy is read, too, because the copy may be the file of an earlier run with the same beginning.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count
from operator import attrgetter
from typing import NamedTuple

from tailrace.decoding.contract import originals
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.identity import Trail, relation
from tailrace.sources.tail.phase import WAITING, Phase
from tailrace.sources.tail.turns import Schedule

SETTLED = 60.0
"""Time (seconds) without a change after which a file counts as completely written."""

UNPROVEN_MAX = 600.0
"""Maximum time (seconds) for which a file that is not a proven copy waits for a file that exists."""

ENDED_MAX = 8192
"""Maximum number of streams whose ended files are remembered, so that a copy of an ended file is
not read as a new file."""


class Ended(NamedTuple):
    """A file whose session has ended, and the trail of the content that the session read."""

    path: str
    content: Trail


class Catalog:
    """All known files of a source. `key` maps a path to a value that the path shares with the paths
    of its copies (`Files.copy`). With `apart`, no file is treated as a copy of another file.

    `schedule` contains the time of each file's next check; a file that is added or moved is due."""

    def __init__(
        self, key: Callable[[str], str], schedule: Schedule, *, apart: bool = False
    ) -> None:
        self.schedule = schedule
        self._key = str if apart else key
        self._apart = apart
        self._by_path: dict[str, Followed] = {}
        self._by_node: dict[tuple[int, int], Followed] = {}
        self._by_key: dict[str, list[Followed]] = {}
        self._aliases: dict[str, Followed] = {}
        self._ended: OrderedDict[str, list[Ended]] = OrderedDict()
        self._all: dict[Followed, str] = {}
        """All files, with the key under which each file was entered."""
        self._summed: Followed | None = None
        """The file whose proof may hold an inflater."""
        self._count = count(1)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._all)

    def __contains__(self, file: Followed) -> bool:
        return file in self._all

    def at(self, path: str) -> Followed | None:
        """Return the file whose path or alias is `path`."""
        return self._by_path.get(path) or self._aliases.get(path)

    def of_node(self, node: tuple[int, int]) -> Followed | None:
        return self._by_node.get(node)

    def akin(self, path: str) -> list[Followed]:
        """Return the files that may contain the same stream as the file at a path."""
        return self._by_key.get(self._key(path), [])

    def ended_akin(self, path: str) -> list[Ended]:
        """Return the ended files that may have contained the same stream as the file at a path."""
        return self._ended.get(self._key(path), [])

    def relatives(self, file: Followed) -> list[Followed]:
        """Return a file's relatives: the other files that may contain the same stream."""
        return [other for other in self._by_key.get(self._all[file], ()) if other is not file]

    def elders(self, file: Followed) -> list[Followed]:
        """Return the relatives that were known before this file, and before all earlier files at
        its path."""
        known = self._by_key[self._all[file]]
        return known[: known.index(file)]

    def juniors(self, file: Followed) -> list[Followed]:
        """Return the relatives that were found after this file."""
        return [other for other in self.relatives(file) if other.known > file.known]

    def ended(self, file: Followed) -> list[Ended]:
        return self._ended.get(self._all[file], [])

    def add(self, file: Followed, now: float, key: str | None = None) -> None:
        """Add a file under a key, by default the key of its path. A moved file keeps its position
        in the order of files."""
        key = self._key(file.location.path) if key is None else key
        self._all[file] = key
        file.known = file.known or next(self._count)
        file.rank = file.rank or file.known
        insort(self._by_key.setdefault(key, []), file, key=lambda other: other.rank)
        self._by_path[file.location.path] = file
        self._by_node[file.location.node] = file
        self.schedule.put(file, now)

    def move(self, file: Followed, path: str, now: float) -> None:
        """Record a file's new path. A file that waits for its original keeps its key, so that it
        stays a relative of the original."""
        key = self.remove(file)
        file.moved(path)
        self.add(file, now, key if file.phase is Phase.COPY else None)

    def originals(self, file: Followed) -> list[str]:
        """Return the paths of possible originals of a file, derived from the file's name."""
        found = [] if self._apart else originals(file.location.path)
        return [path for name in found for path in (name, f"{name}.gz")]

    def proves(self, file: Followed, other: Followed) -> bool | None:
        """Return `file.proves(other)`. Return True while the proof of another file holds an
        inflater, because the memory of only one such inflater is planned. Raise OSError."""
        summed = self._summed
        if summed is not None and summed is not file:
            if summed in self._all and summed.is_summing:
                return True
            summed.give_up_sum()
        self._summed = file
        return file.proves(other)

    def waiting(self, file: Followed) -> list[Followed]:
        """Return the unfollowed relatives of a file, which may be its copies."""
        return [other for other in self.relatives(file) if other.phase in WAITING]

    def add_alias(self, path: str, file: Followed) -> None:
        self._aliases[path] = file

    def remove(self, file: Followed) -> str:
        """Remove a file; return the key under which the file was entered."""
        key = self._all.pop(file)
        self._by_key[key].remove(file)
        if not self._by_key[key]:
            del self._by_key[key]
        at = file.location
        if self._by_path.get(at.path) is file:
            del self._by_path[at.path]
        if self._by_node.get(at.node) is file:
            del self._by_node[at.node]
        for path in [path for path, owner in self._aliases.items() if owner is file]:
            del self._aliases[path]
        return key

    def aliases(self, file: Followed) -> list[str]:
        return [path for path, owner in self._aliases.items() if owner is file]

    def remember(self, path: str, content: Trail) -> None:
        """Store the content trail of an ended session for the file at `path`."""
        key = self._key(path)
        self._ended.setdefault(key, []).append(Ended(path, content.copied()))
        self._ended.move_to_end(key)
        del self._ended[key][:-16]
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)


def is_copy(catalog: Catalog, file: Followed, now: float) -> bool | None:
    """Return whether a file may be a copy of a followed file, or the beginning of a copy of an
    ended file. Return None while a comparison is unfinished. Raise OSError."""
    # This call checks other files, and may end their sessions.
    if (found := _has_original(catalog, file, now)) is not False:
        return found
    ended = ended_like(catalog, file)
    return ended is not None and len(file.head()) < len(ended.head)


def _has_original(catalog: Catalog, file: Followed, now: float) -> bool | None:
    """Return whether another file with an equal beginning is followed, or will be followed before
    this file. Return None while a comparison is unfinished. Raise OSError."""
    head = file.head()
    if any(_has_begun_alike(elder, head, now) for elder in catalog.elders(file)):
        return True
    seniors = (other for other in catalog.relatives(file) if other.known < file.known)
    if any(_waits_alike(senior, head) for senior in seniors):
        return True
    for other in catalog.relatives(file):
        if _is_alike(other, head):
            # The other file may have changed since its last check.
            other.look(now)
            if _is_alike(other, head) and other.may_have_copy(file, head):
                found = _may_repeat(catalog, file, other, now)
                if found is not False:
                    return found
    return False


def _may_repeat(catalog: Catalog, file: Followed, other: Followed, now: float) -> bool | None:
    """Return whether a file waits for a followed file with an equal beginning: the other file
    will be removed soon, or this file is not completely written yet, or this file is a proven copy.
    Return None while the proof is unfinished. Raise OSError."""
    if other.location.gone is not None:
        return True
    if file.is_proven:
        return True
    if file.unchanged(now) < SETTLED or file.is_ahead_of(other):
        return file.waited_from is None or now - file.waited_from < UNPROVEN_MAX
    return catalog.proves(file, other)


def is_part(catalog: Catalog, file: Followed, now: float) -> bool | None:
    """Return whether a file is a copy of an original, by its name (`originals`). All bytes of the
    file must equal the beginning of an original that is or was followed. Return None while the
    comparison is unfinished. Raise OSError.

    Comparing only the first bytes is not sufficient: traces of one program, and traces split by log
    rotation, have equal beginnings."""
    if file.was_part:
        return True
    paths = catalog.originals(file)
    for other in filter(None, map(catalog.at, paths)):
        if other is not file and other.phase is not Phase.LEFT:
            with suppress(OSError):  # the other file's own check reports the error
                other.look(now)  # the other file may have grown or ended
            if (found := file.is_part_of(other)) is not False:
                return found
    for ended in chain.from_iterable(map(catalog.ended_akin, paths)):
        if ended.path in paths and (found := file.was_read_as(ended.content)) is not False:
            return found
    return False


def _has_begun_alike(file: Followed, head: bytes, now: float) -> bool:
    """Return whether a file that was empty at its last check now has content with the same
    beginning as `head`."""
    if file.phase is not Phase.NEW:
        return False
    try:
        file.look(now)
        return file.size > 0 and relation(file.head(), head) != "other"
    except OSError:
        return False  # the file's own check reports the error


def _waits_alike(file: Followed, head: bytes) -> bool:
    """Return whether a file that waits for its own original begins like `head`. The waiting file
    has precedence, unless it is a proven copy."""
    if file.phase is not Phase.COPY or file.is_proven:
        return False
    try:
        return relation(file.head(), head) != "other"
    except OSError:
        return False  # the file was removed and cannot be read


def replaced(catalog: Catalog, file: Followed, now: float) -> list[Followed]:
    """Check a file's relatives; return the relatives whose path now leads to another file."""
    return [other for other in catalog.relatives(file) if _was_replaced(other, now)]


def _was_replaced(file: Followed, now: float) -> bool:
    try:
        return file.location.gone is None and file.look(now)
    except OSError:
        return False  # the file's own check reports the error


def yielding(catalog: Catalog, file: Followed) -> list[Followed]:
    """Return the followed relatives from which nothing could be read, and which may be copies of
    this file."""
    return [
        other
        for other in catalog.relatives(file)
        if other.phase is Phase.FOLLOWED and other.is_blank and not other.behind
    ]


def begun_copy(catalog: Catalog, file: Followed) -> Followed | None:
    """Return a compressed relative that is a copy in progress, or None.

    The relative's content read so far is complete and is the beginning of this file. Such a copy
    was found before its original. Raise OSError."""
    head = file.head()
    for other in catalog.relatives(file):
        known = other.handoff.content
        whole = other.compressed is not None and not other.handoff.lost
        short = 0 < known.offset == len(known.head) < len(head)
        if whole and short and other.location.gone is None and _is_alike(other, head):
            return other
    return None


def _is_alike(file: Followed, head: bytes) -> bool:
    return file.phase is Phase.FOLLOWED and relation(file.handoff.content.head, head) != "other"


def ended_like(catalog: Catalog, file: Followed) -> Trail | None:
    """Return the content trail of an ended file with the same beginning as this file, or None.
    Raise OSError.

    Ignore a file that ended at the same path, because a new file at the path is a new run, even if
    all bytes are equal."""
    head = file.head()
    for ended in catalog.ended(file):
        if ended.path != file.location.path and relation(ended.content.head, head) != "other":
            return ended.content
    return None


def claims(catalog: Catalog, path: str, node: tuple[int, int], head: bytes, now: float) -> bool:
    """Return whether this source claims a file that another source has found.

    A source claims a file if the source follows the file, or follows a file that may be the file's
    original. A source also claims a known file that may be a copy of an ended file."""
    known = catalog.of_node(node)
    if known is not None and known.phase not in WAITING:
        return True
    for other in list(catalog.akin(path)):
        if not _is_alike(other, head):
            continue
        try:
            other.look(now)  # the file may have changed since its last check
        except OSError:
            return True  # the file's own check reports the error
        behind = other.location.gone is not None or other.behind > 0
        if _is_alike(other, head) and (behind or len(head) <= other.handoff.content.offset):
            return True
    return known is not None and any(
        ended.path != path and relation(ended.content.head, head) != "other"
        for ended in catalog.ended_akin(path)
    )


def awaits(catalog: Catalog, path: str, head: bytes) -> bool:
    """Return whether this source has a waiting file that may be a copy of the file that had this
    path and began with `head`."""
    for file in catalog.akin(path):
        if file.phase not in WAITING or file.location.path == path:
            continue
        try:
            if relation(file.head(), head) != "other":
                return True
        except OSError:
            continue  # the file was removed and cannot be read
    return False


def heir(catalog: Catalog, file: Followed, now: float) -> Followed | None:
    """Return the copy that continues the session of a removed file, or None. The result is the copy
    that became known first; other copies may be copies of the result. Raise OSError."""
    if file.handoff.number is None:
        return None
    for other in sorted(catalog.waiting(file), key=attrgetter("known")):
        other.look(now)
        if other.size and file.may_have_copy(other, other.head()):
            return other
    return None
