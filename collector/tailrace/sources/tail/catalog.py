"""The known files: by path, by inode, and by the files of which they may be copies; and which file continues which.

gzip writes a copy beside a file and then removes the file. libovni copies a stream elsewhere and
removes it. rsync puts a longer copy in a file's place. Each stream is to be read once. A file that
may be a copy therefore waits while its original is there, continues the original's session when the
original is gone, and is compared with what was read of files that ended before.

Editors, download tools, log rotations and people leave copies beside a file, under names made of its name. Such a file
waits as long as all its bytes are the original's; if it is shorter, only if it has at least `HEAD` bytes.
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

ENDED_MAX = 8192
"""Names whose ended files are remembered, so that a copy of such a file is not taken for a new one."""


class Ended(NamedTuple):
    """A file whose session has ended, and what was read of it."""

    path: str
    content: Trail


class Catalog:
    """All known files of a source. `key` returns what a path has in common with the paths of its
    copies (`Files.copy`). With `apart`, no file is a copy of another one."""

    def __init__(self, key: Callable[[str], str], *, apart: bool = False) -> None:
        self._key = str if apart else key
        self._apart = apart
        self._by_path: dict[str, Followed] = {}
        self._by_node: dict[tuple[int, int], Followed] = {}
        self._by_key: dict[str, list[Followed]] = {}
        self._aliases: dict[str, Followed] = {}
        self._ended: OrderedDict[str, list[Ended]] = OrderedDict()
        self._all: dict[Followed, str] = {}
        """All files, each with the key under which it was entered."""
        self._count = count(1)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._all)

    def __contains__(self, file: Followed) -> bool:
        return file in self._all

    def at(self, path: str) -> Followed | None:
        """Return the file with this path, or with this path as a further name."""
        return self._by_path.get(path) or self._aliases.get(path)

    def of_node(self, node: tuple[int, int]) -> Followed | None:
        return self._by_node.get(node)

    def akin(self, path: str) -> list[Followed]:
        """Return the files that may hold the same stream as the file at a path."""
        return self._by_key.get(self._key(path), [])

    def ended_akin(self, path: str) -> list[Ended]:
        """Return the ended files that may have held the same stream."""
        return self._ended.get(self._key(path), [])

    def relatives(self, file: Followed) -> list[Followed]:
        """Return the other files that may hold the same stream."""
        return [other for other in self._by_key.get(self._all[file], ()) if other is not file]

    def elders(self, file: Followed) -> list[Followed]:
        """Return the relatives known before this file and before the earlier files in its place,
        wherever they were."""
        known = self._by_key[self._all[file]]
        return known[: known.index(file)]

    def juniors(self, file: Followed) -> list[Followed]:
        """Return the relatives that became known after this file."""
        return [other for other in self.relatives(file) if other.known > file.known]

    def ended(self, file: Followed) -> list[Ended]:
        return self._ended.get(self._all[file], [])

    def add(self, file: Followed) -> None:
        """Add a file. A file that has moved keeps its age."""
        self._add(file, self._key(file.location.path))

    def move(self, file: Followed, path: str) -> None:
        """Note that the file is at this path now. One that waits for its original stays a relative of it."""
        key = self.remove(file)
        file.moved(path)
        waits = file.phase == "waits" and file.reason == "original"
        self._add(file, key if waits else self._key(path))

    def _add(self, file: Followed, key: str) -> None:
        self._all[file] = key
        file.known = file.known or next(self._count)
        file.rank = file.rank or file.known
        insort(self._by_key.setdefault(key, []), file, key=lambda other: other.rank)
        self._by_path[file.location.path] = file
        self._by_node[file.location.node] = file

    def originals(self, file: Followed) -> list[str]:
        """Return the paths of files of which this one may be a copy by its name."""
        found = [] if self._apart else originals(file.location.path)
        return [path for name in found for path in (name, f"{name}.gz")]

    def waiting(self, file: Followed) -> list[Followed]:
        """Return the relatives that may be copies of this file and are not followed."""
        return [other for other in self.relatives(file) if other.phase in {"new", "waits"}]

    def add_alias(self, path: str, file: Followed) -> None:
        self._aliases[path] = file

    def remove(self, file: Followed) -> str:
        """Remove a file; return the key under which it was entered."""
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
        """Remember what a session that has ended read of the file at `path`."""
        key = self._key(path)
        self._ended.setdefault(key, []).append(Ended(path, content.copied()))
        self._ended.move_to_end(key)
        del self._ended[key][:-16]
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)


def is_copy(catalog: Catalog, file: Followed, now: float) -> bool:
    """Return whether a file may be a copy of a followed file, or the beginning of a copy of an ended
    one. Raise OSError."""
    if _has_original(catalog, file, now):  # this looks at others, and may end their sessions
        return True
    ended = ended_like(catalog, file)
    return ended is not None and len(file.head()) < len(ended.head)


def _has_original(catalog: Catalog, file: Followed, now: float) -> bool:
    """Return whether a file that begins like this one is followed, or will be before it. Raise
    OSError."""
    head = file.head()
    if any(_has_begun_alike(elder, head, now) for elder in catalog.elders(file)):
        return True
    seniors = (other for other in catalog.relatives(file) if other.known < file.known)
    if any(_waits_alike(senior, head) for senior in seniors):
        return True
    for other in catalog.relatives(file):
        if _is_alike(other, head):
            # It may have grown or changed since the last look.
            other.look(now)
            if _is_alike(other, head) and other.may_have_copy(file, head):
                return True
    return False


def is_part(catalog: Catalog, file: Followed, now: float) -> bool | None:
    """Return whether a file is a copy, by its name (`originals`), of one that is or was followed and begins with all its
    bytes. None while they are being compared. Raise OSError.

    The first bytes do not tell: runs of one program, and traces that a log rotation cuts, begin alike."""
    if file.was_part:
        return True
    paths = catalog.originals(file)
    for other in filter(None, map(catalog.at, paths)):
        if other is not file and other.phase != "left":
            with suppress(OSError):  # its own look reports it
                other.look(now)  # it may have grown, or ended
            if (found := file.is_part_of(other)) is not False:
                return found
    for ended in chain.from_iterable(map(catalog.ended_akin, paths)):
        if ended.path in paths and (found := file.was_read_as(ended.content)) is not False:
            return found
    return False


def _has_begun_alike(file: Followed, head: bytes, now: float) -> bool:
    """Return whether a file that was known to be empty has content by now that begins like `head`."""
    if file.phase != "new":
        return False
    try:
        file.look(now)
        return file.size > 0 and relation(file.head(), head) != "other"
    except OSError:
        return False  # its own look reports that it cannot be read


def _waits_alike(file: Followed, head: bytes) -> bool:
    """Return whether a file that waits for its own original begins like `head`: it comes first."""
    if file.phase != "waits" or file.reason != "original":
        return False
    try:
        return relation(file.head(), head) != "other"
    except OSError:
        return False  # it is gone, and cannot be read


def replaced(catalog: Catalog, file: Followed, now: float) -> list[Followed]:
    """Return the relatives that are seen now to have another file in their place."""
    return [other for other in catalog.relatives(file) if _was_replaced(other, now)]


def _was_replaced(file: Followed, now: float) -> bool:
    try:
        return file.location.gone is None and file.look(now)
    except OSError:
        return False  # its own look reports that it cannot be read


def yielding(catalog: Catalog, file: Followed) -> list[Followed]:
    """Return the followed files of which nothing could be read that may be copies of this one."""
    return [
        other
        for other in catalog.relatives(file)
        if other.phase == "follows" and other.is_blank and not other.behind
    ]


def begun_copy(catalog: Catalog, file: Followed) -> Followed | None:
    """Return the compressed file whose content, as far as it was read, is whole and the beginning of this file: a copy that is
    being written, and that a look found before its original. None if there is none. Raise OSError."""
    head = file.head()
    for other in catalog.relatives(file):
        known = other.handoff.content
        whole = other.compressed is not None and not other.handoff.lost
        short = 0 < known.offset == len(known.head) < len(head)
        if whole and short and other.location.gone is None and _is_alike(other, head):
            return other
    return None


def _is_alike(file: Followed, head: bytes) -> bool:
    return file.phase == "follows" and relation(file.handoff.content.head, head) != "other"


def ended_like(catalog: Catalog, file: Followed) -> Trail | None:
    """Return what was read of an ended file that began like this one, None if there is none. Raise
    OSError.

    A file that ended at the same path does not count: what begins there again is another run, even if
    all bytes are the same."""
    head = file.head()
    for ended in catalog.ended(file):
        if ended.path != file.location.path and relation(ended.content.head, head) != "other":
            return ended.content
    return None


def claims(catalog: Catalog, path: str, node: tuple[int, int], head: bytes, now: float) -> bool:
    """Return whether this source claims a file that another source has found: it follows the file, or a file that
    this one may be a copy of; or it knows the file, which may be a copy of a file that has ended."""
    known = catalog.of_node(node)
    if known is not None and known.phase in {"follows", "shadow", "left"}:
        return True
    for other in list(catalog.akin(path)):
        if not _is_alike(other, head):
            continue
        try:
            other.look(now)  # it may have grown or changed since the last look
        except OSError:
            return True  # its own look reports that it cannot be read
        behind = other.location.gone is not None or other.behind > 0
        if _is_alike(other, head) and (behind or len(head) <= other.handoff.content.offset):
            return True
    return known is not None and any(
        ended.path != path and relation(ended.content.head, head) != "other"
        for ended in catalog.ended_akin(path)
    )


def awaits(catalog: Catalog, path: str, head: bytes) -> bool:
    """Return whether this source has a waiting file that may be a copy of the file that had this path and began with
    `head`."""
    for file in catalog.akin(path):
        if file.phase not in {"new", "waits"} or file.location.path == path:
            continue
        try:
            if relation(file.head(), head) != "other":
                return True
        except OSError:
            continue  # it is gone, and cannot be read
    return False


def heir(catalog: Catalog, file: Followed, now: float) -> Followed | None:
    """Return the copy that continues the session of a file that is gone, None if there is none: the one
    that became known first, of which others may be copies. Raise OSError."""
    if file.handoff.number is None:
        return None
    for other in sorted(catalog.waiting(file), key=attrgetter("known")):
        other.look(now)
        if other.size and file.may_have_copy(other, other.head()):
            return other
    return None
