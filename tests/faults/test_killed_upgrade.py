"""kill -9 between any two changes of files while an older store is taken over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tailrace.ingest.state import version_of
from tailrace.spool.checkpoint import Checkpoints
from tailrace.store.schema import version_of as schema_of
from tests.faults import preload
from tests.query.tables import rows_in
from tests.upgrade import later
from tests.upgrade.make import leave
from tests.upgrade.stored import laid_out

HERE = Path(__file__).parent
SMALL = {"TAILRACE_SPOOL_SEGMENT_SIZE": "1 MiB"}


@pytest.fixture
def killed_at(tmp_path):
    if reason := preload.why_not():
        pytest.skip(reason)
    return preload.build(tmp_path, HERE / "kill_at.c")


def versions(store):
    """The versions of the table and of the newest decoder state."""
    newest = Checkpoints(store / "spool").newest(2**64 - 1)
    return schema_of(DeltaTable(str(store / "events"))), version_of(newest.state)


def rows(store):
    return Counter(tuple(row.values()) for row in rows_in(store, ["session", "seq", "kind"]))


def test_a_death_at_any_moment_leaves_what_was_or_what_is_to_be(tmp_path, killed_at, monkeypatch):
    leave(tmp_path / "left", killed=True)
    stored = laid_out(tmp_path / "left", tmp_path)
    stored.peer.close()
    later.register(monkeypatch.setattr)
    before, stored_rows = versions(stored.store), rows(stored.store)
    copies = tmp_path / "copies"
    copies.mkdir()
    program = [sys.executable, HERE / "dying_upgrade.py", stored.store, copies]
    path = os.pathsep.join(sys.path)
    environment = os.environ | {"LD_PRELOAD": str(killed_at), "PYTHONPATH": path}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    survived = int(done.stdout)

    seen = Counter()
    for number in range(1, survived + 1):
        store = copies / str(number)
        left = versions(store)
        seen[left] += 1
        with collecting(
            load(None, environ=SMALL, flags={"store": str(store)}, formats=transports),
            SystemClock(),
        ) as daemon:
            assert daemon.disk.table.recovery.reasons == []
            position = daemon.disk.table.position()
            if left == (later.SCHEMA, later.STATE):
                # Nothing is to be upgraded, so the replay is left to the time when it receives.
                assert daemon.ingest.position <= position
            else:
                assert daemon.ingest.position == position
        assert versions(store) == (later.SCHEMA, later.STATE)
        assert rows(store) == stored_rows
    # Some died before the table was upgraded, some after it, and one did not die.
    after = (later.SCHEMA, later.STATE)
    assert seen.keys() == {before, (later.SCHEMA, before[1]), after}
    assert left == after
