"""Fair shares of the places for streams: which session gives way when all places are taken.

A session's share is the number of places over the number of sessions that hold any. The session that
holds the most streams gives way to a session that holds fewer, so that nobody keeps a newcomer from
its share, however many streams one session has. Among sessions of one size the first name gives way:
the choice must not depend on the order in which a checkpoint brings sessions back.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A session's streams."""

    @property
    def name(self) -> str:
        """The session's name, which no other session of the source has."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Follow so many streams no more, those that were silent longest."""
        ...


class Shares:
    """How many streams each session of a source holds."""

    def __init__(self) -> None:
        self._held: dict[Holder, int] = {}
        self._of_size: dict[int, set[Holder]] = {}
        self._most = 0

    def add(self, holder: Holder, count: int) -> None:
        """Count so many places more for a session; fewer for a negative count."""
        before = self._held.pop(holder, 0)
        if before:
            others = self._of_size[before]
            others.discard(holder)
            if not others:
                del self._of_size[before]
        if after := before + count:
            self._held[holder] = after
            self._of_size.setdefault(after, set()).add(holder)
            self._most = max(self._most, after)

    def held(self, holder: Holder) -> int:
        """Return how many places a session has."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: Holder) -> int:
        """Return each session's share of the places, with this session among them."""
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the number of places that the largest session has."""
        while self._most and self._most not in self._of_size:
            self._most -= 1
        return self._most

    def largest(self) -> Holder:
        """Return the session that is to give way. Raise KeyError where no session holds a stream."""
        return min(self._of_size[self.most], key=lambda holder: holder.name)
