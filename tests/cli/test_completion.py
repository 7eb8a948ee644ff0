"""TAB in real shells, which read the files that the wheel installs."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import ENVIRONMENT, run

ROOT = Path(__file__).parents[2]
SHARE = ROOT / "share"
START = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        f"source {SHARE}/bash-completion/completions/tailrace\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        f"fpath=({SHARE}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D\n",
    ),
}  # fmt: skip
"""For each shell with a line editor, its command and the line that a user's start-up file has."""
TYPED = "tailrace ups\bk\t--al\t--store dire\t --config tail\t\n"
PRINTED = "<upkeep><--all><--store><directory><--config><tailrace.toml>"
LONGEST_SECONDS = 60


@pytest.fixture
def place(tmp_path):
    """Return a directory with a `tailrace` that completes, and that otherwise prints its arguments."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory.txt").touch()
    (tmp_path / "tailrace.toml").touch()
    command = tmp_path / "bin/tailrace"
    command.parent.mkdir()
    real = f"exec {shlex.quote(sys.executable)} -m tailrace"
    command.write_text(
        f'#!/bin/sh\n[ -z "$_TAILRACE_COMPLETE" ] && [ "$1" != completion ] || {real} "$@"\n'
        'printf "<%s>" "$@"; echo\n'
    )
    command.chmod(0o755)
    return tmp_path


def environment(place):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return ENVIRONMENT | {"PATH": path, "TERM": "dumb", "HOME": str(place)}


def needs(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}: apt install {shell}")


@pytest.mark.parametrize("shell", START)
def test_tab_completes_commands_options_and_paths(shell, place):
    needs(shell)
    command, set_up = START[shell]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=place, env=environment(place), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        signal.alarm(LONGEST_SECONDS)
        os.write(ours, f"{set_up}PS1=rea''dy\n".encode())
        read_until(ours, re.compile("(ready)"))
        os.write(ours, TYPED.encode())
        printed = read_until(ours, re.compile(r"(<up.+>)\r\n"))
        assert printed.replace("/>", ">") == PRINTED
    finally:
        signal.alarm(0)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def read_until(terminal, pattern):
    """Return the group of the pattern in what a terminal shows."""
    shown = ""
    while not (found := pattern.search(shown)):
        shown += os.read(terminal, 4096).decode(errors="replace")
    return found[1]


def test_fish_completes_commands_options_and_values(place):
    needs("fish")
    asked = ["tailrace upk", "tailrace upkeep --al", "tailrace export --to perf"]
    script = "; ".join(f"complete -C {shlex.quote(line)}" for line in asked)
    done = subprocess.run(
        ["fish", "-c", f"source {SHARE}/fish/vendor_completions.d/tailrace.fish; {script}"],
        cwd=place, env=environment(place), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["upkeep", "--all", "perfetto"]


def test_a_shell_that_is_not_supported_is_wrong_usage():
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in run("completion", "tcsh", code=2)


def test_the_wheel_installs_each_file_below_share():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = {
        str(path.relative_to(ROOT))
        for directory, patterns in metadata["tool"]["setuptools"]["data-files"].items()
        for pattern in patterns
        for path in ROOT.glob(pattern)
        if str(path.parent.relative_to(ROOT)) == directory
    }
    assert installed == {str(p.relative_to(ROOT)) for p in SHARE.rglob("*") if p.is_file()}
