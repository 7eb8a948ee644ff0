"""Run the command `tailrace` as a process."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import tailrace
from tests import program
from tests.program import COMMAND

COLLECTOR = Path(tailrace.__path__[0]).parent
ENVIRONMENT = program.environment() | {"PYTHONPATH": str(COLLECTOR)}


def run(*arguments, code=0, variables=None, **options):
    """Return what the command prints, as bytes. `code` is the exit code that it must have. Its errors are text."""
    done = program.run(
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
    return program.start(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def on_terminal(*arguments, columns=200, cwd=None, stdout=None):
    """Return the exit code of a command, and everything that it prints on the terminal on which it runs. With `stdout`,
    only its standard error is the terminal.
    """
    ours, theirs = pty.openpty()
    process = program.start(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT | {"COLUMNS": str(columns), "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
    )
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 65536):
            printed += data
    except OSError:  # Linux reports in this way that the other end is closed.
        pass
    finally:
        os.close(ours)
    return process.wait(timeout=60), printed.decode(errors="surrogateescape").replace("\r\n", "\n")
