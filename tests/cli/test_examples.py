"""The examples at the end of each command's `--help`, run as they stand, in a directory that has what they name."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tailrace.cli.commands import COMMANDS, load, tailrace as command_line
from tests import program, toml
from tests.cli.command import ENVIRONMENT
from tests.docs.pages import wrappers
from tests.docs.reference import examples_of

TRACES = Path(__file__).parents[1] / "vectors/ovni/traces/two-looms-offsets"
TRAIN = "import tailrace_client as trace\nwith trace.span('step'): pass\ntrace.close()\n"
JOB = {
    "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1",
}  # fmt: skip

RANK = "tailrace run -- python train.py"
"""The example that is run as a rank of this job."""

UNTIL_CTRL_C = {"serve", "view", "top"}
"""Commands that end on a signal, unless an option ends them earlier."""
LIMITS = {"--rest", "--count"}
RUN_ELSEWHERE = {"demo": "tests/demo/test_tour.py"}
"""Commands whose examples take long, and the test that runs them with these options."""
FURTHER_CODES = {"doctor": {0, 1}, "diff": {0, 3}}
"""Exit codes that depend on the host, or on how many spans the traces have."""


@pytest.fixture
def place(tmp_path):
    """Return a directory with the files that examples name, and that no other example makes."""
    shutil.copytree(TRACES, tmp_path / "traces")
    (tmp_path / "train.py").write_text(TRAIN)
    head = toml.section("admin", listen="127.0.0.1:0") + toml.section("store", path="store")
    (tmp_path / "tailrace.toml").write_text(head + toml.source("heph", "tcp"))
    wrappers(tmp_path / "bin")
    return tmp_path


def start(place, line, **variables):
    command, *arguments = shlex.split(line)
    assert command == "tailrace"
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return program.start(
        [*program.COMMAND, *arguments],
        cwd=place, env=ENVIRONMENT | {"PATH": path, "XDG_DATA_HOME": str(place / "data")} | variables,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def run(place, line, codes=frozenset({0}), **variables):
    with start(place, line, **variables) as process:
        printed, _ = process.communicate(timeout=120)
    assert process.returncode in codes, f"{line}\n{printed.decode()}"
    return printed


def wait_for(path, process):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process):
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return process.returncode


def test_every_example_works_as_it_stands(place):
    """They work in one directory, which the commands that collect fill first."""
    (import_,) = examples_of("import")
    run(place, import_)
    for copy in ("before", "after"):
        shutil.copytree(place / "store", place / copy)
    serve, *_ = examples_of("serve")
    daemon = start(place, serve)
    try:
        wait_for(place / "store/ports.json", daemon)
        for name in COMMANDS:
            for line in examples_of(name):
                if name not in RUN_ELSEWHERE and line not in {import_, serve}:
                    try_example(name, line, place)
    finally:
        assert end(daemon) == 0


def try_example(name, line, place):
    words = shlex.split(line)
    assert words[:2] == ["tailrace", name]
    if name in UNTIL_CTRL_C and not LIMITS & {*words}:
        process = start(place, line)
        assert process.stdout.read(1), "it prints something before it is ended"
        assert end(process) in {0, 130}
    else:
        of_job = JOB if line == RANK else {}
        run(place, line, FURTHER_CODES.get(name, {0}), **of_job)


@pytest.mark.parametrize("name", RUN_ELSEWHERE)
def test_an_example_that_runs_elsewhere_has_options_that_exist(name):
    above = click.Context(command_line, **command_line.context_settings)
    for line in examples_of(name):
        _, command, *arguments = shlex.split(line)
        assert load(name).make_context(command, arguments, parent=above)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_one_or_two_examples(name):
    lines = examples_of(name)
    assert 1 <= len(lines) <= 2
    assert all(len(line) <= 76 for line in lines), "it fits on a terminal of 80 columns"
    printed = CliRunner().invoke(command_line, [name, "--help"]).output
    assert printed.endswith("\n".join(("  Examples:", *(f"    {line}" for line in lines), "")))
