"""What a bad network does to datagrams, with a seed and a book of all it did. Pure.

A datagram is dropped, sent twice, or held back while later ones pass: a few (reordered) or many
(delayed). How long is counted in datagrams, not in time, so the same seed on the same datagrams
always does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from tailrace.demo.heph import numbers

DROPPED, DUPLICATED, REORDERED, DELAYED = "dropped", "duplicated", "reordered", "delayed"


class Chances(NamedTuple):
    """How likely each deed is for a datagram (at most one is done to it), and the depths: a reordered
    one is passed by 1 to `reorder_depth` later ones, a delayed one by more, up to `delay_depth`."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    reorder_depth: int = 4
    delay_depth: int = 40


class Deed(NamedTuple):
    """What was done to one event. `by` is how many later datagrams were to pass it."""

    action: str
    stream: int
    counter: int
    by: int = 0


class Mangler:
    """One direction of a bad network. `log` has a `Deed` for each event of each datagram to which
    something was done; what is not in it went straight through.

    `spare` names the datagrams to leave alone.
    """

    def __init__(
        self, seed: int, chances: Chances, spare: Callable[[bytes], bool] | None = None
    ) -> None:
        self.log: list[Deed] = []
        self._random = Random(f"mangle/{seed}")  # noqa: S311 - traffic, not secrets
        self._chances = chances
        self._spare = spare
        self._passed = 0
        self._held: list[tuple[int, int, bytes]] = []

    def push(self, datagram: bytes) -> list[bytes]:
        """A datagram arrives: what leaves now."""
        action = None if self._spare and self._spare(datagram) else self._choose()
        self._passed += 1
        leaving = [datagram]
        by = 0
        if action == DROPPED:
            leaving = []
        elif action == DUPLICATED:
            leaving = [datagram, datagram]
        elif action is not None:
            depth = self._chances.reorder_depth
            by = self._random.randint(1, depth)
            if action == DELAYED:
                by = self._random.randint(depth + 1, self._chances.delay_depth)
            heappush(self._held, (self._passed + by, self._passed, datagram))
            leaving = []
        if action is not None:
            self.log += [Deed(action, *number, by) for number in numbers(datagram)]
        while self._held and self._held[0][0] <= self._passed:
            leaving.append(heappop(self._held)[2])
        return leaving

    def finish(self) -> list[bytes]:
        """Nothing more arrives: what was still held back."""
        return [heappop(self._held)[2] for _ in range(len(self._held))]

    def counters(self, action: str) -> dict[int, list[int]]:
        """The counters, by stream, of the events to which `action` was done."""
        found: dict[int, list[int]] = {}
        for deed in self.log:
            if deed.action == action:
                found.setdefault(deed.stream, []).append(deed.counter)
        return found

    def _choose(self) -> str | None:
        chances = self._chances
        at = self._random.random()
        for action, chance in (
            (DROPPED, chances.drop),
            (DUPLICATED, chances.duplicate),
            (REORDERED, chances.reorder),
            (DELAYED, chances.delay),
        ):
            if at < chance:
                return action
            at -= chance
        return None


def mangle(
    seed: int,
    datagrams: Iterable[bytes],
    chances: Chances,
    spare: Callable[[bytes], bool] | None = None,
) -> tuple[list[bytes], list[Deed]]:
    """All of `datagrams` through one `Mangler`: what comes out, and its log."""
    mangler = Mangler(seed, chances, spare)
    leaving = [out for datagram in datagrams for out in mangler.push(datagram)]
    return leaving + mangler.finish(), mangler.log
