"""Provide fixtures for faults that need more than a temporary directory."""

from __future__ import annotations

import subprocess

import pytest

from tests.faults import preload
from tests.faults.loopfs import LoopFs, why_not


@pytest.fixture
def loopfs(tmp_path):
    """Return a mounted file system whose power can be cut. If there can be none, skip the test with the reason."""
    if reason := why_not():
        pytest.skip(reason)
    with LoopFs(tmp_path) as fs:
        yield fs


@pytest.fixture
def roomy_loopfs(tmp_path):
    """Return the same, with room for what producers send during many starts on a slow machine."""
    if reason := why_not():
        pytest.skip(reason)
    with LoopFs(tmp_path, mebibytes=1024) as fs:
        yield fs


@pytest.fixture
def mounted(tmp_path):
    """Return a function that mounts a file system in memory with the options of `mount -o`.

    If there can be none, skip the test with the reason.
    """
    places = []

    def mount(options):
        place = tmp_path / f"tmpfs{len(places)}"
        place.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"cannot mount a tmpfs ({made.stderr.strip()}): run as root, --privileged")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="session")
def preload_library(tmp_path_factory):
    """Return the library that makes a disk fail. If it cannot be built, skip the test with the reason."""
    if reason := preload.why_not():
        pytest.skip(reason)
    return preload.build(tmp_path_factory.mktemp("preload"))


@pytest.fixture
def failing_disk(preload_library, tmp_path_factory):
    """Return an object that makes the disk of a process fail on command; see `preload`."""
    return preload.FailingDisk(preload_library, tmp_path_factory.mktemp("switches"))
