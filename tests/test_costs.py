"""Test what `--costs` says at the end of a run among several processes."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.costs import Cost, lines
from tests.order import ROOT


def test_a_run_says_what_its_files_and_folders_cost():
    command = [sys.executable, "-m", "pytest", "-q", "--costs", "--numprocesses=1"]
    files = ["tests/test_order.py", "tests/serving/test_html.py"]
    done = subprocess.run(
        [*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, said = done.stdout.split(" where the time goes ")
    named = re.findall(r"^ +[\d.]+ +[\d.]+  (\S+)$", said, re.MULTILINE)
    assert sorted(named) == sorted([*files, "tests", "tests/serving"])


def test_the_largest_comes_first():
    costs = {"a": Cost(1.0, 9.0), "b": Cost(2.0, 3.0)}
    assert lines(costs, key=lambda cost: cost.cpu) == [
        "     2.0      3.0  b",
        "     1.0      9.0  a",
    ]
    assert [line[-1] for line in lines(costs, key=lambda cost: cost.seconds)] == ["a", "b"]
