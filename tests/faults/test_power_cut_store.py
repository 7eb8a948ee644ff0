"""The power is cut while rows are committed: what was acknowledged is in the table afterwards.

A real file system, shut down under a program that commits as fast as it can (`loopfs`), mounted
again, and looked at. The same program without syncs shows that the cut takes what is not synced.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.errors import SyncError, TailraceError
from tailrace.store import durable
from tailrace.store.table import Table

ROWS = 50

WRITER = Path(__file__).parents[1] / "store" / "writer.py"

UPKEEP = """
import sys, time
from pathlib import Path
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store import layout, upkeep
from tailrace.store.turn import LocalTurn, UpkeepState

layout.REMOVED_HOURS = 0
while True:
    # Never a full vacuum: at 0 hours that would take what the writer is about to commit.
    LocalTurn(Path(sys.argv[1])).write(UpkeepState(swept=time.time_ns()))
    upkeep.run(sys.argv[1], StoreConfig(), clock=SystemClock())
    print("done", flush=True)
"""


def _start(*command):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, env=environment)


def _writer(store, *options):
    return [str(WRITER), str(store), "one", "--rows", str(ROWS), *options]


def _cut_while_committing(fs, commands, seconds):
    """Start the writer and what runs beside it, and cut the power `seconds` after each has done
    something; the last position that was acknowledged."""
    processes, first = [], []
    try:
        for command in commands:
            processes.append(_start(*command))
            first.append(processes[-1].stdout.readline())
            assert first[-1], f"{command} ended at once"
        time.sleep(seconds)  # not waiting for something: this is the moment of the cut
        fs.cut()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    acknowledged = (first[0] + processes[0].stdout.read()).split()
    for process in processes:
        process.stdout.close()
    fs.unmount()
    fs.mount()
    return int(acknowledged[-1])


def _open(store):
    return Table.open(
        str(store),
        options={},
        collector="one",
        config=StoreConfig(),
        clock=SystemClock(),
        refills=lambda position: True,
    )


def _rows(store):
    batches = DeltaTable(str(store / "events")).scan(columns=["seq"])
    return sorted(seq for batch in batches for seq in batch.column("seq").to_pylist())


def _cut_again_and_again(fs, trials, seed, *, with_upkeep):
    """One table, whose writer goes on after each cut where the table ends."""
    chance = random.Random(seed)
    store = fs.path / "store"
    for _ in range(trials):
        commands = [_writer(store)]
        if with_upkeep:
            commands.append(["-c", UPKEEP, str(store)])
        acknowledged = _cut_while_committing(fs, commands, chance.uniform(0.0, 0.7))
        table = _open(store)
        position = table.position()
        assert position is not None, table.recovery
        # The last commit may have reached the disk although its acknowledgement did not reach us.
        assert position in (acknowledged, acknowledged + 1), table.recovery
        assert _rows(store) == list(range(position * ROWS))


def test_no_acknowledged_row_is_lost_and_the_table_opens(loopfs):
    _cut_again_and_again(loopfs, trials=3, seed=1, with_upkeep=False)


def test_nor_while_files_are_merged_and_removed_beside_the_writer(loopfs):
    _cut_again_and_again(loopfs, trials=3, seed=2, with_upkeep=True)


@pytest.mark.slow
@pytest.mark.parametrize("with_upkeep", [False, True])
@pytest.mark.parametrize("seed", [10, 11])
def test_no_acknowledged_row_is_lost_over_many_cuts(loopfs, seed, with_upkeep):
    _cut_again_and_again(loopfs, trials=25, seed=seed, with_upkeep=with_upkeep)


def test_the_same_cut_takes_acknowledged_rows_from_a_writer_that_never_syncs(loopfs):
    """Show that these tests can fail."""
    acknowledged, kept = 0, 0
    for trial in range(3):
        store = loopfs.path / f"store-{trial}"
        acknowledged += _cut_while_committing(loopfs, [_writer(store, "--never-sync")], 0.3)
        try:
            kept += _open(store).position() or 0
        except TailraceError:
            kept += 0  # the table does not even open
    assert kept < acknowledged


def test_a_sync_after_the_cut_is_a_sync_error(loopfs):
    store = loopfs.path / "store"
    _open(store)
    loopfs.cut()
    with pytest.raises(SyncError):
        durable.sync(store / "events", -1, 0)
