"""The daemon works under what the unit forbids it, as far as one process can forbid it itself."""

from __future__ import annotations

import ctypes
import socket
import sys
from pathlib import Path

import pytest

from tests.ingest.log import heph_epoch, heph_event
from tests.system.collector import Collector, until

UNIT = (Path(__file__).parents[2] / "deploy/systemd/tailrace.service").read_text()

PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN, PR_GET_MDWE = 65, 1, 66
DENIED = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl({PR_SET_MDWE}, {MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Confined(Collector):
    def command(self):
        return [sys.executable, "-c", DENIED, *super().command()[1:]]


@pytest.mark.skipif(
    ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0, reason="needs Linux 6.3 or newer"
)
def test_no_memory_that_is_both_written_and_run(tmp_path):
    assert "MemoryDenyWriteExecute=yes" in UNIT
    collector = Confined(tmp_path)
    try:
        collector.start()
        with socket.create_connection(collector.address("tcp")) as producer:
            events = [heph_event(1, n) for n in range(100)]
            producer.sendall(heph_epoch(10**18) + b"".join(events))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 100, "the events")
        assert collector.get("/healthz")[0] == 200
        collector.stop()
        assert collector.process.returncode == 0
        assert len([row for row in collector.rows(["kind"]) if row["kind"] == "span"]) == 100
    finally:
        collector.end()
