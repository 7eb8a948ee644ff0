"""A benchmark: what the page says of it, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.options import Options
from benchmarks.results import Case


class Judgement(NamedTuple):
    """Summary of a benchmark's cases, and whether they keep the benchmark's limit."""

    text: str
    kept: bool


class Benchmark(NamedTuple):
    """`cases(options)` measures. A sweep names its axis, and the measures that are drawn over it."""

    title: str
    about: str
    cases: Callable[[Options], list[Case]]
    axis: str = ""
    plotted: tuple[str, ...] = ()
    judge: Callable[[list[Case]], Judgement] | None = None
