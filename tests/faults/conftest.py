"""Fixtures for faults that take more than a temporary directory."""

from __future__ import annotations

import pytest

from tests.faults import preload
from tests.faults.loopfs import LoopFs, why_not


@pytest.fixture
def loopfs(tmp_path):
    """A mounted file system whose power can be cut; skips, and says why, where there can be none."""
    if reason := why_not():
        pytest.skip(reason)
    with LoopFs(tmp_path) as fs:
        yield fs


@pytest.fixture
def roomy_loopfs(tmp_path):
    """The same, with room for what producers send during many starts on a slow machine."""
    if reason := why_not():
        pytest.skip(reason)
    with LoopFs(tmp_path, mebibytes=1024) as fs:
        yield fs


@pytest.fixture(scope="session")
def preload_library(tmp_path_factory):
    """The library that makes a disk fail; skips, and says why, where it cannot be built."""
    if reason := preload.why_not():
        pytest.skip(reason)
    return preload.build(tmp_path_factory.mktemp("preload"))


@pytest.fixture
def failing_disk(preload_library, tmp_path_factory):
    """Makes the disk of a process fail on command; see `preload`."""
    return preload.FailingDisk(preload_library, tmp_path_factory.mktemp("switches"))
