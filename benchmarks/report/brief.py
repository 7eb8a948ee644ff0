"""Say in at most ten sentences what Tailrace costs. The figures are medians of the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.comparisons import middle_of_ours
from benchmarks.measures import MEASURES
from benchmarks.report.tables import number
from benchmarks.results import Results


class Figure(NamedTuple):
    """A figure of ours: that of the first case of a benchmark, or of the case with a label."""

    benchmark: str
    measure: str
    case: str = ""

    def found(self, results: Results) -> str | None:
        """Return the figure in the unit of its measure; None if it was not measured."""
        result = results.found.get(self.benchmark)
        for case in result.cases if result else ():
            if self.case in ("", case.label):
                value = middle_of_ours(case, self.measure)
                return None if value is None else number(value / MEASURES[self.measure].unit_size)
        return None


SENTENCES = (
    (
        "The collector stores {} thousand Heph events a second that arrive over TCP, and {} thousand lines of JETS.",
        Figure("heph-tcp", "rate"), Figure("jets-tcp", "rate"),
    ),
    (
        "It reads {} thousand events of DFTracer a second from files, {} thousand of ovni and {} thousand of ET3.",
        Figure("dftracer", "rate"), Figure("ovni", "rate"), Figure("et3", "rate"),
    ),
    ("An event of Heph takes {} µs of CPU, from the socket to the table.", Figure("heph-tcp", "cpu")),
    (
        "A query sees half of the events within {} ms, and 99 of 100 within {} ms.",
        Figure("latency", "p50"), Figure("latency", "p99"),
    ),
    (
        "When no events come, the collector takes {} % of a core and {} MB of memory; with Heph over TCP at full speed, it takes {} MB.",
        Figure("idle", "idle"), Figure("idle", "resident"), Figure("heph-tcp", "resident"),
    ),
    (
        "An event with an attribute takes {} ns of CPU in the calling thread, and {} ns without the client's compiled part. The client's sending thread takes CPU, too.",
        Figure("emitting", "caller", "an event, compiled"), Figure("emitting", "caller", "an event, pure Python"),
    ),
    (
        "A span with an attribute takes {} ns in the calling thread, and {} ns without the compiled part.",
        Figure("emitting", "caller", "a span, compiled"), Figure("emitting", "caller", "a span, pure Python"),
    ),
    (
        "A step of zooming on the page takes {} ms at the median, and {} ms at most for 99 of 100 steps.",
        Figure("zoom", "step50"), Figure("zoom", "step99"),
    ),
    (
        "Straight after the import of 12.8 million spans, the page shows events within {} s.",
        Figure("looking", "first", "12800000 spans straight after import"),
    ),
    (
        "In a table of 100 million rows, a query of a narrow range takes {} ms and {} MB of memory.",
        Figure("large", "range", "100000000 rows, after upkeep"), Figure("large", "asking", "100000000 rows, after upkeep"),
    ),
)  # fmt: skip


def sentences(results: Results) -> Iterator[str]:
    """Yield the sentences whose figures were all measured."""
    for words, *figures in SENTENCES:
        found = [figure.found(results) for figure in figures]
        if None not in found:
            yield words.format(*found)
