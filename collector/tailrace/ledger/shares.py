"""Shares the places for streams fairly: says which session gives way when all places are taken.

A session's share is the number of places over the number of sessions that hold any. The largest
holder gives way to a session that holds fewer, so that a newcomer gets its share however many streams
one session has. Among sessions of equal size the first name gives way, so that
the choice does not depend on the order in which a checkpoint restores sessions.
"""

from __future__ import annotations

from typing import Protocol


class PlaceHolder(Protocol):
    """A session that holds places."""

    @property
    def name(self) -> str:
        """The session's name, which no other session of the source has."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Give up the places of so many streams, the longest silent first."""
        ...


class Shares:
    """How many streams each session of a source holds."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """The sessions by how many places they have, kept once anybody has asked for the largest: few sources have ever
        as many streams as they may."""
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Count so many places more for a session; fewer for a negative count."""
        before = self._held.pop(holder, 0)
        if after := before + count:
            self._held[holder] = after
        if self._of_size is not None:
            self._move(self._of_size, holder, before, after)

    def _move(
        self, of_size: dict[int, set[PlaceHolder]], holder: PlaceHolder, before: int, after: int
    ) -> None:
        if before:
            others = of_size[before]
            others.discard(holder)
            if not others:
                del of_size[before]
        if after:
            of_size.setdefault(after, set()).add(holder)
            self._most = max(self._most, after)

    def _sizes(self) -> dict[int, set[PlaceHolder]]:
        if self._of_size is None:
            self._of_size = {}
            for holder, held in self._held.items():
                self._move(self._of_size, holder, 0, held)
        return self._of_size

    def held(self, holder: PlaceHolder) -> int:
        """Return how many places a session has."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return each session's share of the places, with this session among them."""
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the number of places that the largest session has."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session that gives way next. Raise KeyError if no session holds a place."""
        return min(self._sizes()[self.most], key=lambda holder: holder.name)
