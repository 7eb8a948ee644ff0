"""A process without a free descriptor: what it was to write is refused in a way that says so."""

from __future__ import annotations

import os
import resource

import pytest

from tailrace.config.schema import QuarantineConfig
from tailrace.errors import DescriptorsError, FullError
from tailrace.model.quarantine import frame
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.store.quarantine import Quarantine
from tailrace.store.refusal import refusal


@pytest.fixture
def none_free():
    """No descriptor can be had until this is called, or until the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "spool")


@pytest.fixture
def quarantine(tmp_path):
    return Quarantine(tmp_path / "quarantine", QuarantineConfig())


def test_a_checkpoint_is_saved_once_there_is_one(checkpoints, none_free):
    with pytest.raises(FullError, match="Too many open files"):
        checkpoints.save(10, b"state")
    none_free()
    checkpoints.save(10, b"state")
    assert checkpoints.newest(10) == Checkpoint(10, b"state")


def test_unreadable_bytes_are_kept_once_there_is_one(quarantine, none_free):
    data = frame(0, "torn", b"bytes")
    with pytest.raises(DescriptorsError, match="Too many open files"):
        quarantine.write("session", 0, data)
    none_free()
    quarantine.write("session", 0, data)
    (kept,) = quarantine.read("session", 0)
    assert kept.data == b"bytes"


def test_what_the_tables_library_says_is_known_for_it():
    error = Exception("Generic LocalFileSystem error: Too many open files (os error 24)")
    assert isinstance(refusal(error, "/store", "commit"), DescriptorsError)
