"""Options and fixtures of all tests."""

from __future__ import annotations

import pytest

from tests.system.collector import Collector


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long forms too")
    parser.addoption(
        "--update-vectors",
        action="store_true",
        help="write what the decoders say now into tests/vectors/*/*.expect.jsonl; read the diff",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --slow the long forms are not there at all: each has a short one that is."""
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture
def collectors(tmp_path_factory):
    """A function that makes collectors; all are ended with the test."""
    made = []

    def make(**options):
        collector = Collector(tmp_path_factory.mktemp("collector"), **options)
        made.append(collector)
        return collector

    yield make
    for collector in made:
        collector.end()


@pytest.fixture
def collector(collectors):
    """A started collector with one source of each kind; its ledger must balance at the end."""
    started = collectors().start()
    yield started
    if started.process.poll() is None:
        for name, source in started.status()["sources"].items():
            assert source["imbalance_bytes"] == 0, name
            assert source["imbalance_events"] == 0, name
        started.stop()
