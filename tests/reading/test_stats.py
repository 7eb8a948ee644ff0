"""`Store.stats` over stores that an import made of a whole and of a torn trace."""

from __future__ import annotations

import random

import pytest

import tailrace
from tailrace.analysis.statistics import FIGURES
from tailrace.errors import IncompleteError, UnknownError
from tests.cli.command import run
from tests.decoding import dftracer_lines
from tests.reading.stores import EPOCH


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The store of a trace, and the store of the same trace without some of its lines."""
    rng = random.Random(38)
    lines = [
        dftracer_lines.event(n, name=rng.choice(("read", "write")), ts=EPOCH // 1000 + 10 * n, dur=rng.randint(1, 500))
        for n in range(2, 400)
    ]  # fmt: skip
    host = dftracer_lines.metadata("HH", "node", dftracer_lines.HOST)
    made = []
    for kept in (lines, [line for line in lines if rng.random() < 0.97]):
        root = tmp_path_factory.mktemp("stats")
        (root / "a.pfw").write_bytes(
            dftracer_lines.text(host, dftracer_lines.start(), *kept, dftracer_lines.end(400))
        )
        run("import", "--store", root / "store", root / "a.pfw")
        made.append(str(root / "store"))
    return made


def test_the_figures_of_the_whole_trace_lie_within_the_bounds_of_the_torn_one(stores):
    with tailrace.open(stores[0]) as whole, tailrace.open(stores[1]) as torn:
        exact = {each.group: each for each in whole.stats()}
        found = torn.stats()
    assert {each.group for each in found} == {("read",), ("write",)}
    for each in found:
        truth = exact[each.group]
        assert all(interval.is_point for interval in truth.bounds.values())
        assert not each.bounds["p90"].is_point
        for figure, attribute in FIGURES.items():
            low, high = each.bounds[figure]
            true = getattr(truth, attribute)
            assert low <= true, figure
            assert high is None or true <= high, figure


def test_statistics_take_the_keywords_of_places_and_times(stores):
    with tailrace.open(stores[0]) as store:
        (only,) = store.stats(["source", "format"], since=EPOCH + 10**6, self_time=False)
        assert (only.group, only.ended, only.self_time) == (("import", "dftracer"), 300, None)
        with pytest.raises(TypeError, match="limit"):
            store.stats(limit=3)
        with pytest.raises(UnknownError, match="nam"):
            store.stats("nam")


def test_incomplete_statistics_can_be_refused(stores):
    with tailrace.open(stores[1], complete_only=True) as store, pytest.raises(IncompleteError):
        store.stats()
