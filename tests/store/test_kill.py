"""kill -9 at random moments: what was acknowledged is stored, and stored once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store import upkeep
from tailrace.store.log import Log

ROWS = 50

WRITER = Path(__file__).with_name("writer.py")


def _start(store, collector):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(WRITER), str(store), collector, "--rows", str(ROWS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def _kill(process):
    """Kill it and give the highest position that it acknowledged, 0 for none."""
    process.kill()
    said = process.stdout.read().split()
    process.stdout.close()
    process.wait()
    return int(said[-1]) if said else 0


def _keep_killing(store, open_table, seqs, kills, seed):
    """Two writers, of which one at a time is killed, and upkeep beside them."""
    chance = random.Random(seed)
    acknowledged = {"one": 0, "two": 0}
    writers = {name: _start(store, name) for name in acknowledged}
    for writer in writers.values():
        assert writer.stdout.readline()
    for kill in range(kills):
        name = chance.choice(list(writers))
        until = time.monotonic() + chance.uniform(0.0, 0.4)
        while time.monotonic() < until:
            everything = kill % 2 == 0
            upkeep.run(str(store), StoreConfig(), clock=SystemClock(), everything=everything)
        acknowledged[name] = max(acknowledged[name], _kill(writers[name]))
        table = open_table(name)
        assert (table.position() or 0) in (acknowledged[name], acknowledged[name] + 1)
        assert table.recovery.reasons == []
        writers[name] = _start(store, name)
    for name, writer in writers.items():
        acknowledged[name] = max(acknowledged[name], _kill(writer))
        position = open_table(name).position()
        assert position in (acknowledged[name], acknowledged[name] + 1)
        assert seqs(name) == list(range(position * ROWS))
    return acknowledged


def test_every_acknowledged_row_is_stored_once_across_kills(store, root, open_table, seqs):
    acknowledged = _keep_killing(store, open_table, seqs, kills=10, seed=1)
    assert min(acknowledged.values()) > 0
    assert Log(root).checkpoints()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_every_acknowledged_row_is_stored_once_across_many_kills(store, open_table, seqs, seed):
    _keep_killing(store, open_table, seqs, kills=60, seed=seed)
