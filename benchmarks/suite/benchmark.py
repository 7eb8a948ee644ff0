"""Define a benchmark: its description on the page, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.options import Options
from benchmarks.results import Case


class Judgement(NamedTuple):
    """A summary of a benchmark's cases, and whether they stay within the benchmark's limit."""

    text: str
    kept: bool


class Benchmark(NamedTuple):
    """A benchmark. `cases(options)` measures it. A sweep has an axis, and the measures that are drawn over it."""

    title: str
    about: str
    cases: Callable[[Options], list[Case]]
    axis: str = ""
    plotted: tuple[str, ...] = ()
    judge: Callable[[list[Case]], Judgement] | None = None
