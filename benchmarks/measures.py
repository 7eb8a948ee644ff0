"""Define the figures that runs yield: their titles, their units, and whether more or less is better."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Better(StrEnum):
    MORE = "more"
    LESS = "less"
    NEITHER = "neither"


class Measure(NamedTuple):
    """A figure. The page shows it divided by `unit_size`.

    With `compared`, the page shows ratios of it, too. Ratios to references are shown only with `least_known`: then the
    references do the least that is possible.
    """

    title: str
    unit: str
    better: Better
    unit_size: float = 1.0
    compared: bool = True
    least_known: bool = True


_MORE, _LESS, _NEITHER = Better.MORE, Better.LESS, Better.NEITHER

MEASURES = {
    "sent": Measure("datagrams sent a second", "k/s", _NEITHER, 1e3, compared=False),
    "sent_lines": Measure("lines sent a second", "k/s", _NEITHER, 1e3, compared=False),
    "rate": Measure("events a second", "k/s", _MORE, 1e3),
    "cpu": Measure("CPU an event", "µs", _LESS, 1e-6),
    "chunk": Measure("bytes of a chunk", "KiB", _NEITHER, 1024, compared=False),
    "lost": Measure("events lost", "%", _LESS, 1e-2, compared=False),
    "resident": Measure("resident memory", "MB", _LESS, 1e6, least_known=False),
    "private": Measure("private memory", "MB", _LESS, 1e6, compared=False),
    "p50": Measure("visible after, median", "ms", _LESS, 1e-3),
    "p99": Measure("visible after, 99 of 100", "ms", _LESS, 1e-3),
    "slowest": Measure("visible after, slowest", "ms", _LESS, 1e-3, compared=False),
    "idle": Measure("CPU while idle", "% of a core", _LESS, 1e-2),
    "commit": Measure("a commit", "ms", _LESS, 1e-3, compared=False),
    "listening": Measure("start to listening", "ms", _LESS, 1e-3, compared=False),
    "count": Measure("count of events", "ms", _LESS, 1e-3),
    "range": Measure("narrow range of spans", "ms", _LESS, 1e-3),
    "streams": Measure("the view `streams`", "ms", _LESS, 1e-3),
    "gaps": Measure("the view `gaps`", "ms", _LESS, 1e-3),
    "stats": Measure("statistics of the narrow range", "ms", _LESS, 1e-3),
    "asking": Measure("resident memory of the reader", "MB", _LESS, 1e6),
    "step50": Measure("a step, median", "ms", _LESS, 1e-3),
    "step95": Measure("a step, 95 of 100", "ms", _LESS, 1e-3),
    "step99": Measure("a step, 99 of 100", "ms", _LESS, 1e-3),
    "step": Measure("CPU a step, median", "ms", _LESS, 1e-3),
    "first": Measure("the first drawing", "s", _LESS),
    "caller": Measure("CPU of the caller", "ns", _LESS, 1e-9),
    "process": Measure("CPU of the process", "ns", _LESS, 1e-9),
    "stall": Measure("a call in a thousand takes", "µs", _LESS, 1e-6, compared=False),
}
"""All measures, by the names that runs use. The values of runs are in seconds, bytes and events."""
