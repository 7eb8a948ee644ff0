"""The disk's measure: real on this one, and what is said of slow ones."""

from __future__ import annotations

import pytest

from tailrace.doctor import machine
from tests.doctor.hosts import StoppedClock, host, only


def test_a_disk_is_measured_and_nothing_is_left(tmp_path):
    finding = only(machine.check_speed(host(tmp_path / "store")))
    assert finding.figures["sync_worst_ms"] >= finding.figures["sync_ms"] > 0
    assert finding.figures["mb_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_is_measured_briefly_and_is_advised_against(tmp_path):
    """Each sync of this one takes 200 ms."""
    finding = only(machine.check_speed(host(tmp_path / "store", clock=StoppedClock(step=0.2))))
    assert finding.severity.value == "advice"
    assert "(the slowest of 1: 200.0)" in finding.what
    assert finding.figures["sync_ms"] == pytest.approx(200)
    assert [command.split("=")[0] for command in finding.commands] == [
        "export TAILRACE_SPOOL_PATH",
        "export TAILRACE_SPOOL_SYNC_INTERVAL",
    ]


def test_a_sync_that_fails_is_a_problem(tmp_path, monkeypatch):
    def fdatasync(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(machine.os, "fdatasync", fdatasync)
    finding = only(machine.check_speed(host(tmp_path / "store")))
    assert finding.severity.value == "problem"
    assert "Input/output error" in finding.what
    assert list(tmp_path.iterdir()) == []


def test_never_more_is_written_than_was_said(tmp_path, monkeypatch):
    """On a disk that takes no time at all."""
    written = []
    monkeypatch.setattr(
        machine.tempfile, "TemporaryFile", lambda **options: Recording(tmp_path, written)
    )
    list(machine.check_speed(host(tmp_path / "store", clock=StoppedClock())))
    assert sum(written) == machine.BYTES_MAX + machine.SYNCS * machine.SYNC_BYTES <= 64 * 2**20


class Recording:
    """A file that keeps nothing."""

    def __init__(self, directory, written):
        self._file = (directory / "file").open("wb", buffering=0)
        self._written = written

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._file.close()

    def fileno(self):
        return self._file.fileno()

    def write(self, data):
        self._written.append(len(data))
        return len(data)
