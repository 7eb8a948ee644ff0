"""The store of all five formats, and one for all that only read it."""

from __future__ import annotations

import pytest

from tests.cli.command import run
from tests.reading.stores import made, varied


@pytest.fixture(scope="session")
def varied_store(tmp_path_factory):
    return made(tmp_path_factory, varied())


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    """What the demonstration collects: all five formats, with gaps and open spans."""
    store = tmp_path_factory.mktemp("demo") / "store"
    run("demo", "--store", store)
    return store
