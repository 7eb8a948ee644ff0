"""Compaction, vacuum and retention: a process of their own, started every so many commits.

A merge takes some 200 MB and holds no lock of ours, so it runs in a child that exits, at low
priority; the writer and it meet only in the table's own protocol.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from tailrace.config.schema import StoreConfig
from tailrace.figures import Condition

if TYPE_CHECKING:
    from tailrace.pipeline.daemon import Daemon

EVERY_COMMITS = 60
EVERY_SECONDS = 3600.0
LOOK_SECONDS = 5.0

logger = logging.getLogger(__name__)


async def run(daemon: Daemon) -> None:
    """Do upkeep after EVERY_COMMITS commits, and once an hour if there were any."""
    commits = daemon.committing.commits
    last = trio.current_time()
    while True:
        await trio.sleep(LOOK_SECONDS)
        new = daemon.committing.commits - commits
        if new >= EVERY_COMMITS or (new and trio.current_time() - last >= EVERY_SECONDS):
            commits, last = daemon.committing.commits, trio.current_time()
            await once(daemon)


async def once(daemon: Daemon) -> None:
    """One run of `tailrace upkeep`; a failure is a condition until the next run succeeds."""
    result = await trio.run_process(
        [sys.executable, "-m", "tailrace", "upkeep", "--store", daemon.store],
        env=environment(daemon.config.store, os.environ),
        check=False,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        preexec_fn=_be_nice,
    )
    if result.returncode:
        daemon.figures.upkeeps["failed"] += 1
        output = result.stdout.decode(errors="replace").strip().splitlines()
        daemon.health.degrade(
            Condition.UPKEEP, output[-1] if output else f"exit {result.returncode}"
        )
    else:
        daemon.figures.upkeeps["done"] += 1
        daemon.health.clear(Condition.UPKEEP)


def environment(config: StoreConfig, ours: Mapping[str, str]) -> dict[str, str]:
    """Ours, but of the configuration the section [store] as it runs here; the file may be another one
    by now, or a broken one."""
    said: dict[str, object] = {
        "TAILRACE_STORE_COMPACT_SIZE": config.compact_size,
        "TAILRACE_STORE_RETENTION_AGE": config.retention_age or "",
        "TAILRACE_STORE_RETENTION_SIZE": config.retention_size or "",
    }
    said |= {f"TAILRACE_STORE_OPTIONS_{key}": value for key, value in config.options.items()}
    others = {name: value for name, value in ours.items() if not name.startswith("TAILRACE_")}
    return others | {name: str(value) for name, value in said.items()}


def _be_nice() -> None:
    os.nice(10)
