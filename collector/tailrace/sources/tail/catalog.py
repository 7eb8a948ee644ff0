"""The known files: by path, by inode, and by what they may be copies of."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from tailrace.decoding.contract import originals
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.identity import Trail

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
