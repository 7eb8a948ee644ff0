"""The experiment with `tailrace diff` in a tiny form: its runs are traced, imported and compared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.places import ROOT


@pytest.mark.slow
def test_the_experiment_prints_a_line_for_each_figure():
    command = [sys.executable, "-m", "benchmarks.noise", "--runs", "10", "--pairs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split(" | ") for line in done.stdout.splitlines() if line.count(" | ") == 4]
    assert [line[0] for line in lines[-4:]] == ["min", "p50", "p95", "total"]
