"""Every command and program in the README is run, in order, as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.system.collector import until

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STORE = "/tmp/tailrace"  # noqa: S108 - in the README; replaced here
MAKE = {"make demo"}  # the demo has tests of its own, and CI runs it as it stands


def blocks():
    return BLOCK.findall((ROOT / "README.md").read_text())


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_link_in_the_readme_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


@pytest.fixture
def environ(tmp_path):
    """A reader's environment: the commands on PATH, an empty data directory."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, arguments in (("tailrace", "-m tailrace"), ("python", "")):
        command = bin_ / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)
    return os.environ | {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


def test_every_command_of_the_readme_does_what_it_says(environ, tmp_path):
    daemons = []
    ran = 0
    try:
        for language, text in blocks():
            if language == "python":
                run([sys.executable, "-c", text], environ)
                until(lambda: "step" in query(environ), "the client's events to be visible")
                continue
            for line in text.strip().splitlines():
                if line in MAKE:
                    continue
                ran += 1
                command = line.removesuffix("&").strip().replace(".venv/bin/", "")
                command = command.replace(STORE, str(tmp_path / "store"))
                if "serve" in command:
                    end(daemons)
                    daemons.append(subprocess.Popen(shlex.split(command), cwd=ROOT, env=environ))
                    until(lambda: ready(daemons[-1]), "the daemon")
                else:
                    run(shlex.split(command), environ)
    finally:
        end(daemons)
    assert ran >= 7


def run(command, environ):
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def query(environ):
    return run(["tailrace", "query", "--csv", "SELECT name FROM events"], environ)


def ready(daemon):
    assert daemon.poll() is None
    try:
        with urllib.request.urlopen("http://127.0.0.1:9464/readyz", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def end(daemons):
    while daemons:
        daemon = daemons.pop()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=60)
