"""Make the store of all five formats, once for all tests that only read it."""

from __future__ import annotations

import fcntl

import pytest

from tests.cli.command import run
from tests.reading.stores import made, varied


@pytest.fixture(scope="session")
def varied_store(tmp_path_factory):
    return made(tmp_path_factory, varied())


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory, worker_id):
    """Return the store that the demonstration collects: all five formats, with gaps and open spans.

    The first of the processes that run tests makes it, and the others read it.
    """
    directory = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        directory = directory.parent
    store, whole = directory / "demonstration", directory / "demonstration.whole"
    with (directory / "demonstration.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not whole.exists():
            run("demo", "--store", store)
            whole.touch()
    return store
