"""Test what a service manager's watchdog is told while a disk does not answer, and while it is full."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests import toml
from tests.system.collector import until
from tests.system.manager import Manager

WATCHDOG = 2.0


@pytest.fixture
def manager(loopfs, tmp_path):
    small = toml.section("spool", segment_size="1 MiB") + toml.section(
        "store", commit_interval="200 ms"
    )
    manager = Manager(tmp_path, watchdog_seconds=WATCHDOG, more=small)
    manager.collector.store = loopfs.path / "store"
    manager.start()
    manager.wait_alive()
    yield manager
    manager.end()


@pytest.mark.skipif(shutil.which("fsfreeze") is None, reason="no fsfreeze: apt-get install mount")
def test_a_disk_that_does_not_answer_starves_it(manager, loopfs):
    subprocess.run(["fsfreeze", "--freeze", loopfs.path], check=True)
    try:
        assert manager.signs_of_life_within(2 * WATCHDOG) == 0
        assert manager.collector.get("/healthz")[0] == 200
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", loopfs.path], check=True)
    manager.wait_alive()


def test_a_full_disk_does_not_since_a_restart_would_not_help(manager, loopfs):
    ballast = loopfs.path / "ballast"
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], check=False, capture_output=True
    )
    collector = manager.collector
    until(lambda: json.loads(collector.get("/healthz")[1])["status"] == "degraded", "the full disk")
    committed = collector.status()["commits"]
    for _ in range(3):
        manager.wait_alive()
    assert collector.status()["commits"] == committed
    ballast.unlink()
    until(lambda: collector.status()["commits"] > committed, "a heartbeat in the table again")
