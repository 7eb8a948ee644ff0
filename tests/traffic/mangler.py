"""Simulate one direction of a bad network: drop, double, delay and reorder datagrams.

Log what was done to each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from tailrace.demo.binary import numbers

DROPPED, DUPLICATED, REORDERED, DELAYED = "dropped", "duplicated", "reordered", "delayed"


class Chances(NamedTuple):
    """The probabilities of the faults of a datagram, of which at most one happens, and their depths.

    Between 1 and `reorder_depth` later datagrams overtake a reordered datagram; more, up to `delay_depth`, overtake a
    delayed one.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    reorder_depth: int = 4
    delay_depth: int = 40


class Deed(NamedTuple):
    """One fault of one event. `by` is the number of later datagrams that were to overtake it."""

    action: str
    stream: int
    counter: int
    by: int = 0


class Mangler:
    """One direction of a bad network.

    `log` has a `Deed` for each event of each datagram with a fault. All other events passed unchanged. `spare` selects
    the datagrams without faults.
    """

    def __init__(
        self, seed: int, chances: Chances, spare: Callable[[bytes], bool] | None = None
    ) -> None:
        self.log: list[Deed] = []
        self._random = Random(f"mangle/{seed}")
        self._chances = chances
        self._spare = spare
        self._passed = 0
        self._held: list[tuple[int, int, bytes]] = []

    def push(self, datagram: bytes) -> list[bytes]:
        """Accept a datagram, and return the datagrams that leave now."""
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
        """Return the datagrams that are still held back."""
        return [heappop(self._held)[2] for _ in range(len(self._held))]

    def counters(self, action: str) -> dict[int, list[int]]:
        """Return the counters, by stream, of the events to which `action` was done."""
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
    """Send all `datagrams` through one `Mangler`, and return its output and its log."""
    mangler = Mangler(seed, chances, spare)
    leaving = [out for datagram in datagrams for out in mangler.push(datagram)]
    return leaving + mangler.finish(), mangler.log
