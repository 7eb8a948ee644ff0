"""Every benchmark runs in a tiny form, end to end, and stores what it sent. Nothing here looks at times."""

from __future__ import annotations

import tomllib

import pytest

from benchmarks.machine import machine
from benchmarks.measures import MEASURES
from benchmarks.measuring import measure
from benchmarks.options import Options
from benchmarks.processes.daemon import FILES
from benchmarks.registry import BENCHMARKS
from benchmarks.report.page import PAGE, files
from benchmarks.results import Results, Role
from benchmarks.suite.latency import SHORT

TINY = Options(
    runs=1, events=1000, seconds=0.1, rates=(2000,), packed_rates=(200,), line_rates=(2000,), streams=(3,), connections=(300,),
    rows=(600,), spans=30_000, zooms=1, stored=(600,), backlog=100_000, backlog_rate=2000, files=(5,), commit_interval=SHORT, varieties=False,
)  # fmt: skip

FIGURES = {
    "heph-tcp": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "jets-tcp": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "dftracer": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "ovni": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "et3": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "heph-udp": {"sent", "cpu", "lost", "resident", "private"},
    "heph-udp-busy": {"sent", "cpu", "lost", "resident", "private"},
    "heph-udp-packed": {"sent", "cpu", "lost", "resident", "private"},
    "trickle": {"sent_lines", "cpu", "chunk", "lost", "resident", "private"},
    "latency": {"p50", "p99", "slowest", "lost"},
    "backlog": {"sent", "p50", "slowest", "lost"},
    "idle": {"idle", "resident", "private"},
    "stages": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "decoding": {"rate", "cpu"},
    "mix": {"rate", "cpu"},
    "emitting": {"caller", "process", "stall"},
    "streams": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "connections": {"rate", "cpu", "chunk", "lost", "resident", "private"},
    "zoom": {"step50", "step99", "step", "resident"},
    "looking": {"first", "step50", "step95"},
    "large": {"count", "range", "streams", "gaps", "stats", "asking"},
    "taking": {"rate", "cpu", "commit", "resident", "private"},
    "rows": {"cpu", "resident", "commit", "listening", "count", "range", "streams", "asking"},
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_measures_all_sides_and_loses_nothing(name):
    result = measure(BENCHMARKS[name], TINY, machine("python"))
    assert result.machine.date
    assert result.cases
    for case in result.cases:
        (ours, *_) = [side for side in case.sides if side.role is Role.OURS]
        assert ours.absent or set(ours.runs[0]) == FIGURES[name]
        for side in case.sides:
            assert len(side.runs) == (0 if side.absent else 1), side.name
            for run in side.runs:
                assert run.get("lost", 0.0) == 0.0, side.name
                assert set(run) <= set(MEASURES)
    assert set(result.plotted) <= FIGURES[name]
    assert result.title in files(Results({name: result}))[PAGE]


def test_every_benchmark_has_its_figures_here():
    assert FIGURES.keys() == BENCHMARKS.keys()


def test_a_followed_directory_may_have_as_many_files_as_the_whole_form_follows():
    """Else the benchmark waits in vain; only the tiny form runs here."""
    source = tomllib.loads(FILES.format(format="jets", runs="runs"))["sources"]["files"]
    assert source["files_max"] >= max(Options().files)
