"""Run `tailrace upkeep` (compaction, vacuum, retention) as a child process of low priority when the table needs it.

The table shows which steps are due, so no step is missed if the daemon is often restarted. Merging files takes about
200 MB of memory."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec
import trio

from tailrace.config.schema import StoreConfig
from tailrace.daemon.context import Context
from tailrace.errors import FullError, StoreError
from tailrace.figures import Condition
from tailrace.interpreter import command
from tailrace.pauses import pause
from tailrace.store import layout
from tailrace.store.turn import draw, turn
from tailrace.store.upkeep import UpkeepReport, look

LOOK_COMMITS = 30
"""Number of commits after which the table is checked again: half of `CROWDED` in `store.upkeep`."""
LOOK_SECONDS = 3600.0
"""Time (seconds) after which the table is checked again if there were commits, but fewer than `LOOK_COMMITS`."""
RETRY_SECONDS = 60.0
"""Time (seconds) until the next try to start an upkeep, if no process or file descriptor was free."""
WAKE_SECONDS = 5.0
GIVE_BACK_SECONDS = 5.0
"""Maximum time (seconds) for ending the lease of a failed upkeep, for example if the store does not respond."""

COMMAND = (*command("tailrace"), "upkeep", "--json", "--if-free")


async def run(store: str, context: Context, committed: Callable[[], int]) -> None:
    """Run the upkeep of a store's table whenever an upkeep is due. The function `committed` returns the number of
    commits so far."""
    while True:
        # Do not wait for the thread at a stop: a slow table must not delay a stop of the daemon.
        if await trio.to_thread.run_sync(_is_due, store, context, abandon_on_cancel=True):
            while not await once(store, context):
                await pause(RETRY_SECONDS)
        commits, looked = committed(), trio.current_time()
        new = 0
        while new < LOOK_COMMITS and not (new and trio.current_time() - looked >= LOOK_SECONDS):
            await pause(WAKE_SECONDS)
            new = committed() - commits


def _is_due(store: str, context: Context) -> bool:
    """Return whether an upkeep is due. Report as a condition that old days stay because the clock may be wrong. A
    worker thread calls this function."""
    try:
        due, held = look(store, context.config.store, context.clock)
    except StoreError:
        return True  # run the upkeep, which then reports the problem
    trio.from_thread.run_sync(
        context.health.follow, Condition.RETENTION, str(held) if held else None
    )
    return due


async def once(store: str, context: Context) -> bool:
    """Run `tailrace upkeep` once. Return whether the process could be started. Report a failed upkeep as a condition."""
    number, ended_well = draw(context.clock), False
    try:
        result = await trio.run_process(
            [*COMMAND, "--store", store, "--turn", str(number)],
            env=environment(context.config.store, os.environ),
            check=False,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(os.nice, 10),
        )
        ended_well = result.returncode == 0
    except OSError as error:  # the system can create no pipe or no process for the upkeep
        context.figures.upkeeps["failed"] += 1
        context.figures.upkeep_descriptors += error.errno in {errno.EMFILE, errno.ENFILE}
        context.health.degrade(Condition.UPKEEP, f"cannot be started: {error.strerror}")
        return False
    finally:
        if not ended_well:
            await _give_back(store, context, number)
    if not ended_well:
        context.figures.upkeeps["failed"] += 1
        output = result.stdout.decode(errors="replace").strip().splitlines()
        context.health.degrade(
            Condition.UPKEEP, output[-1] if output else f"exit {result.returncode}"
        )
        return True
    report, lines = UpkeepReport(), result.stdout.strip().splitlines()
    with suppress(msgspec.DecodeError):
        report = msgspec.json.decode(lines[-1] if lines else b"{}", type=UpkeepReport)
    if not report.busy:
        context.figures.upkeeps["done"] += 1
        context.health.clear(Condition.UPKEEP)
    if report.damaged:
        context.health.degrade(Condition.DAMAGE, "; ".join(report.damaged))
    return True


async def _give_back(store: str, context: Context, number: int) -> None:
    """End the lease of an upkeep that failed. Otherwise no upkeep could run until the lease expires."""
    root = layout.table_root(store)
    its = turn(root, context.config.store.options, context.clock, number)
    with trio.move_on_after(GIVE_BACK_SECONDS, shield=True), suppress(StoreError, FullError):
        await trio.to_thread.run_sync(its.give_back, abandon_on_cancel=True)


def environment(config: StoreConfig, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an upkeep: this process's, with the daemon's current values of the section [store].
    The upkeep reads no configuration file, because the daemon's file may have changed since the daemon loaded it."""
    said: dict[str, object] = {
        "TAILRACE_CONFIG": os.devnull,
        "TAILRACE_STORE_COMPACT_SIZE": config.compact_size,
        "TAILRACE_STORE_RETENTION_AGE": config.retention_age or "",
        "TAILRACE_STORE_RETENTION_SIZE": config.retention_size or "",
    }
    said |= {f"TAILRACE_STORE_OPTIONS_{key}": value for key, value in config.options.items()}
    others = {name: value for name, value in ours.items() if not name.startswith("TAILRACE_")}
    return others | {name: str(value) for name, value in said.items()}
