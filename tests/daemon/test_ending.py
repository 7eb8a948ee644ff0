"""A failure ends the process, also where a thread never gives its answer."""

from __future__ import annotations

import subprocess
import sys

from tests.daemon.virtual import CONFIG

FAILING = """
import sys, threading
import trio
from tailrace.cli import main
from tailrace.daemon import daemon
from tailrace.daemon import conditions

waits = threading.Event()

def stands():
    waits.set()
    threading.Event().wait()

async def waits_for_a_thread(*_):
    await trio.to_thread.run_sync(stands)

async def is_refused_memory(*_):
    await trio.to_thread.run_sync(waits.wait)
    raise MemoryError

conditions.watch_state, conditions.watch_pending, daemon.SECONDS = waits_for_a_thread, is_refused_memory, 1
sys.argv[0] = "tailrace"
main()
"""


def test_a_thread_without_an_answer_does_not_keep_a_failed_daemon(tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text(CONFIG)
    done = subprocess.run(
        [sys.executable, "-c", FAILING, "serve", "--config", config, "--store", tmp_path / "store"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "out of memory; raise " in done.stderr
    assert "a task did not end after this failure" in done.stderr
