"""Threads that numpy's library would start for nothing, and that programs of users keep."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tailrace.blas import VARIABLE
from tests import program

COUNT = """
import os, sys
from tailrace import cli
sys.argv = ["tailrace", "--version"]
try:
    cli.main()
except SystemExit:
    import numpy
    print(len(os.listdir("/proc/self/task")))
"""
SAY = f"import os; print(os.environ.get('{VARIABLE}'))"


def without_variable(**more):
    return {name: value for name, value in os.environ.items() if name != VARIABLE} | more


def threads(**more):
    """The threads of a command's process that has imported numpy."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=without_variable(**more), stdout=subprocess.PIPE, check=True
    )  # fmt: skip
    return int(done.stdout.splitlines()[-1])


def test_a_command_that_imports_numpy_has_one_thread():
    assert threads() == 1


def test_who_wants_threads_has_them():
    assert threads(**{VARIABLE: "2"}) == min(2, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("given", [None, "1", "7"])
def test_the_program_of_a_user_has_the_variable_as_the_user_gave_it(given, tmp_path):
    environ = without_variable() if given is None else without_variable(**{VARIABLE: given})
    done = program.run(
        [*program.COMMAND, "run", "--store", tmp_path / "store", "--", sys.executable, "-c", SAY],
        stdout=subprocess.PIPE, env=environ, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == str(given)
