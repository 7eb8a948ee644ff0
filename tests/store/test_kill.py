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
from tailrace.store.log import DeltaLog

ROWS = 50

WRITER = Path(__file__).with_name("writer.py")


class Writers:
    """`writer.py` for each collector, and the highest position that each has acknowledged."""

    def __init__(self, store, *names):
        self._store = store
        self.acknowledged = dict.fromkeys(names, 0)
        self._processes = {}

    def __enter__(self):
        for name in self.acknowledged:
            self.start(name)
            assert self._processes[name].stdout.readline(), "the writer could not start"
        return self

    def __exit__(self, *exc_info):
        for name in list(self._processes):
            self.kill(name)

    def start(self, name):
        command = [sys.executable, str(WRITER), str(self._store), name, "--rows", str(ROWS)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        self._processes[name] = process

    def kill(self, name):
        process = self._processes.pop(name)
        process.kill()
        said = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        self.acknowledged[name] = max([self.acknowledged[name], *map(int, said[-1:])])


def _keep_killing(store, open_table, seqs, kills, seed):
    """Two writers, of which one at a time is killed, and upkeep beside them."""
    chance = random.Random(seed)
    with Writers(store, "one", "two") as writers:
        acknowledged = writers.acknowledged
        for kill in range(kills):
            name = chance.choice(list(acknowledged))
            until = time.monotonic() + chance.uniform(0.0, 0.4)
            while time.monotonic() < until:
                everything = kill % 2 == 0
                upkeep.run(str(store), StoreConfig(), clock=SystemClock(), everything=everything)
            writers.kill(name)
            table = open_table(name)
            assert table.recovery.reasons == []
            # The last commit may be in the table although we were not told any more.
            position = table.position() or 0
            assert position in (acknowledged[name], acknowledged[name] + 1)
            acknowledged[name] = position
            writers.start(name)
    for name, last in acknowledged.items():
        position = open_table(name).position()
        assert position in (last, last + 1)
        assert seqs(name) == list(range(position * ROWS))
    return acknowledged


def test_every_acknowledged_row_is_stored_once_across_kills(store, root, open_table, seqs):
    acknowledged = _keep_killing(store, open_table, seqs, kills=6, seed=1)
    assert min(acknowledged.values()) > 0
    assert DeltaLog(root).checkpoints()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_every_acknowledged_row_is_stored_once_across_many_kills(store, open_table, seqs, seed):
    _keep_killing(store, open_table, seqs, kills=60, seed=seed)
