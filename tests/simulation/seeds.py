"""Choose seeds, and get their verdicts from processes that each have a hash seed of Python of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from multiprocessing import get_context

from tailrace.clock import SystemClock
from tests.simulation.facts import Scenario
from tests.simulation.verdict import Verdict, judge
from tests.simulation.world import SECOND

DAY = 86_400 * SECOND
A_DAY = 200
"""Number of seeds for a date."""
SLICE = 10
"""Number of seeds that a process gets at a time."""


def seeds_of(text: str) -> range:
    """Return the seeds that a text describes."""
    if text == "today":
        day = SystemClock().wall_ns() // DAY
        return range(day * 1000, day * 1000 + A_DAY)
    first, _, last = text.partition("-")
    return range(int(first), int(last or int(first) + 1))


Generate = Callable[[int], Scenario]


def verdicts(
    generate: Generate, seeds: range, jobs: int, hash_seeds: list[str]
) -> Iterator[tuple[int, Verdict]]:
    """Yield each seed with its verdict, as soon as it is known, once for each hash seed of Python."""
    slices = [seeds[first : first + SLICE] for first in range(0, len(seeds), SLICE)]
    with ExitStack() as stack:
        results = []
        for hash_seed in hash_seeds:
            os.environ["PYTHONHASHSEED"] = hash_seed  # Python reads this variable when it starts.
            pool = ProcessPoolExecutor(max(1, jobs // len(hash_seeds)), get_context("spawn"))
            stack.enter_context(pool)
            results += [pool.submit(_judge, generate, some) for some in slices]
        for result in as_completed(results):
            yield from result.result()


def _judge(generate: Generate, seeds: range) -> list[tuple[int, Verdict]]:
    return [(seed, judge(generate(seed))) for seed in seeds]
