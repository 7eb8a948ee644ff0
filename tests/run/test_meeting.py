"""The meeting place of ranks whose launcher names no launch."""

from __future__ import annotations

import shutil
import subprocess
import sys

RANKS = """
import os, sys
from tailrace.run.launcher import LaunchedRank
from tailrace.run.meeting import Meeting

def meet(number):
    met = Meeting.of(LaunchedRank(rank=number, node="n1"), None).directory
    os.write(1, f"{met}\\n".encode())  # at once, since two ranks may write at one time

script = os.fork()
if script == 0:
    script = os.getpid()
    if os.fork() == 0:
        meet(0)
        os.kill(script, 9)
        while os.getppid() == script:
            os.sched_yield()
        meet(1)
        os._exit(0)
    os.wait()
os.waitpid(script, 0)
meet(2)
"""
"""Two ranks of a script, which ends between them, and a rank beside it."""


def test_ranks_meet_though_a_process_above_them_ends_meanwhile(tmp_path):
    ranks = subprocess.Popen(
        [sys.executable, "-c", RANKS], cwd=tmp_path,
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    said, _ = ranks.communicate(timeout=60)  # to the end of all three
    met = said.split()
    for directory in met:
        shutil.rmtree(directory, ignore_errors=True)
    assert len(met) == 3
    assert len({*met}) == 1, met
