"""Run sweeps of our own figures: all sizes in turns, each beside the smallest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.contest import contest, ours
from benchmarks.results import Case, Role, Run, Side


def sweep(axis: str, sizes: Sequence[int], does: str, run: Callable[[int], Run], runs: int) -> list[Case]:  # fmt: skip
    """Measure each size. The smallest size is the base of all ratios."""
    turns = contest(axis, [ours(does, partial(run, size), name=f"{size} {axis}") for size in sizes], runs)  # fmt: skip
    first = turns.sides[0]
    base = Side(name=f"with {sizes[0]}", role=Role.BASE, does=f"the same with {sizes[0]}", runs=first.runs)  # fmt: skip
    return [
        Case(
            label=f"{size} {axis}", at=size,
            sides=[Side(name="Tailrace", role=Role.OURS, does=does, runs=side.runs), *([base] if size != sizes[0] else [])],
        )
        for size, side in zip(sizes, turns.sides, strict=True)
    ]  # fmt: skip
