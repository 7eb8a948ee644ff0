"""A process without a free descriptor: what it was to write is refused in a way that says so."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager, nullcontext

import pytest

from tailrace.config.schema import QuarantineConfig
from tailrace.errors import DescriptorsError, FullError
from tailrace.model.quarantine import frame
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.store import durable
from tailrace.store.quarantine import Quarantine
from tailrace.store.refusal import refusal
from tests.store.test_quarantine import frames_of
from tests.store.writer import commit


@contextmanager
def _none_free():
    """No descriptor can be had in the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "spool")


@pytest.fixture
def quarantine(tmp_path):
    return Quarantine(tmp_path / "quarantine", QuarantineConfig())


def test_a_checkpoint_is_saved_once_there_is_one(checkpoints):
    with _none_free(), pytest.raises(FullError, match="Too many open files"):
        checkpoints.save(10, b"state")
    checkpoints.save(10, b"state")
    assert checkpoints.newest(10) == Checkpoint(10, b"state")


def test_unreadable_bytes_are_kept_once_there_is_one(quarantine):
    piece = "session", 0, frame(0, "torn", b"bytes")
    with _none_free(), pytest.raises(DescriptorsError, match="Too many open files"):
        quarantine.keep([piece])
    quarantine.write(*piece)
    with _none_free(), pytest.raises(DescriptorsError, match="Too many open files"):
        quarantine.keep([])
    quarantine.keep([piece])
    (kept,) = frames_of(quarantine, "session")
    assert kept.data == b"bytes"


def test_a_commit_that_lacks_one_for_its_sync_is_made_once(open_table, numbered, seqs, monkeypatch):
    """The rows are in the table, and not yet on disk."""
    table, left = open_table(), 2
    rows = table.prepare(numbered("s", 0, 50))
    sync = durable.sync

    def lacking(*arguments):
        nonlocal left
        left -= 1
        with _none_free() if left >= 0 else nullcontext():
            sync(*arguments)

    monkeypatch.setattr(durable, "sync", lacking)
    for _ in range(2):
        with pytest.raises(DescriptorsError, match="Too many open files"):
            table.land(rows, 1)
    table.land(rows, 1)
    assert seqs() == list(range(50))


def test_the_log_is_shortened_once_there_is_one(open_table, numbered, root, monkeypatch):
    table = open_table()
    commit(table, numbered("s", 0, 50), 1)
    fsync = durable.fsync

    def lacking(path):
        with _none_free():
            fsync(path)

    with monkeypatch.context() as lacks:
        lacks.setattr(durable, "fsync", lacking)
        assert not table.checkpoint()
    assert table.checkpoint()
    commit(table, numbered("s", 50, 50), 2)


def test_what_the_tables_library_says_is_known_for_it():
    error = Exception("Generic LocalFileSystem error: Too many open files (os error 24)")
    assert isinstance(refusal(error, "/store", "commit"), DescriptorsError)
