"""A command does not wait for its threads at the end, nor take the interpreter apart below them."""

from __future__ import annotations

import sys

import pytest

from tests import program

LEAVE = """
import atexit, threading, time
from tailrace.cli import commands
atexit.register(print, "exit functions ran")
if {thread}:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
commands._leave(SystemExit(3))
print("goes on")
"""


@pytest.mark.parametrize("thread", [True, False], ids=["thread", "alone"])
def test_a_process_ends_at_once_in_order(thread):
    command = [sys.executable, "-c", LEAVE.format(thread=thread)]
    done = program.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines() == ["exit functions ran"]
