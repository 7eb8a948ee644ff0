"""Daemons of system tests; each is checked for balance and ended when its test is over."""

from __future__ import annotations

import pytest

from tests.system.collector import Collector


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
