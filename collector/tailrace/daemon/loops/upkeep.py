"""Starts `tailrace upkeep` (compaction, vacuum, retention) as a child process when an upkeep of the table is due.

The table and its last upkeep determine the due steps (`store.upkeep.look`), so a daemon that restarts often also
performs steps that are due since earlier runs. A merge takes about 200 MB, so the upkeep runs in a child process with
low priority. Daemon and child process communicate only through the table's protocol.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress

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
"""Number of commits between two checks of the table: half of the number of files that makes a table crowded."""
LOOK_SECONDS = 3600.0
"""Seconds between two checks of a table with fewer commits. A table without commits is not checked."""
RETRY_SECONDS = 60.0
"""Seconds until the next try to start an upkeep for which no process or descriptor was available."""
WAKE_SECONDS = 5.0
GIVE_BACK_SECONDS = 5.0
"""Timeout (seconds) of a stop for a store that does not respond."""

COMMAND = (*command("tailrace"), "upkeep", "--json", "--if-free")


async def run(store: str, context: Context, committed: Callable[[], int]) -> None:
    """Run an upkeep of a store when due. `committed` returns the number of commits.

    Check the table at the start, every `LOOK_COMMITS` commits, and every `LOOK_SECONDS` if there were commits.
    """
    while True:
        # Abandon the check on a stop, which must not wait for a slow table.
        if await trio.to_thread.run_sync(_is_due, store, context, abandon_on_cancel=True):
            while not await once(store, context):
                await pause(RETRY_SECONDS)
        commits, looked = committed(), trio.current_time()
        new = 0
        while new < LOOK_COMMITS and not (new and trio.current_time() - looked >= LOOK_SECONDS):
            await pause(WAKE_SECONDS)
            new = committed() - commits


def _is_due(store: str, context: Context) -> bool:
    """Return whether an upkeep is due. Run in a worker thread, and update the condition for suspended retention.

    An unreadable table counts as due, because the failure of the upkeep becomes a visible condition.
    """
    try:
        due, held = look(store, context.config.store, context.clock)
    except StoreError:
        return True
    trio.from_thread.run_sync(
        context.health.follow, Condition.RETENTION, str(held) if held else None
    )
    return due


async def once(store: str, context: Context) -> bool:
    """Run `tailrace upkeep` once. Return whether the process could be started.

    A failure is a condition until the next successful run. The upkeep's lease always ends with the process.
    """
    number, ended_well = draw(context.clock), False
    try:
        result = await trio.run_process(
            [*COMMAND, "--store", store, "--turn", str(number)],
            env=environment(context.config.store, os.environ),
            check=False,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            preexec_fn=_be_nice,
        )
        ended_well = result.returncode == 0
    except OSError as error:  # no pipe or process is available
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
    report = _report(result.stdout)
    if not report.busy:
        context.figures.upkeeps["done"] += 1
        context.health.clear(Condition.UPKEEP)
    if report.damaged:
        context.health.degrade(Condition.DAMAGE, "; ".join(report.damaged))
    return True


async def _give_back(store: str, context: Context, number: int) -> None:
    """End the lease of a failed upkeep, unless the upkeep has ended its lease. Otherwise no upkeep could run until
    the lease expires."""
    root = layout.table_root(store)
    its = turn(root, context.config.store.options, context.clock, number)
    with trio.move_on_after(GIVE_BACK_SECONDS, shield=True), suppress(StoreError, FullError):
        await trio.to_thread.run_sync(its.give_back, abandon_on_cancel=True)


def _report(output: bytes) -> UpkeepReport:
    """Return the report in an upkeep's output, which may begin with warnings."""
    lines = output.strip().splitlines()
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(lines[-1] if lines else b"{}", type=UpkeepReport)
    return UpkeepReport()


def environment(config: StoreConfig, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with the current values of the section [store].

    The configuration file may have changed since it was loaded, or be invalid.
    """
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
