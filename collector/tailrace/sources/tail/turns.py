"""Which files have a place among those that are followed, and which wait for one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tailrace.sources.tail.follow import Followed


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
