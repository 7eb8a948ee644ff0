"""The command `tailrace` as a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import tailrace

COLLECTOR = Path(tailrace.__path__[0]).parent
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TAILRACE_")} | {
    "PYTHONPATH": str(COLLECTOR)
}
COMMAND = [sys.executable, "-m", "tailrace"]


def run(*arguments, code=0, variables=None, **options):
    """What it prints, as bytes. `code` is the exit code it must have; its errors are text."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT | (variables or {}),
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    if code == 0:
        notes = [line for line in done.stderr.splitlines() if not re.search(rb"missing", line)]
        assert notes == []
    return done.stdout if code == 0 else done.stderr.decode()


def start(*arguments, **options):
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
