"""The honest diagonal: the collector reports each missing event, or says that it cannot know how many there are."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.diagonal.__main__ import (
    PAGE,
    PICTURE,
    RESULTS,
    TOOLS,
    Results,
    measure,
    measure_publishers,
    page,
    picture,
)
from benchmarks.places import PUBLISHED

PUBLISHED_RESULTS = msgspec.json.decode((PUBLISHED / RESULTS).read_bytes(), type=Results)
OURS = [name for name in TOOLS if name.startswith("Tailrace")]


def check(runs):
    for run in runs:
        assert (run.untold, run.invented) == (0, 0), run
        assert run.more == run.killed, run


def test_our_runs_lie_on_the_diagonal(tmp_path):
    runs = list(measure(tmp_path, OURS, (300_000,), 1))
    check(runs)
    assert sum(run.stored for run in runs) > 0


@pytest.mark.parametrize("name", [name for name in TOOLS if name not in OURS])
def test_a_run_of_another_tool_loses_nothing_at_a_low_rate(name, tmp_path):
    tool = TOOLS[name]
    if not tool.version():
        pytest.skip(f"needs a tool of the diagonal: {tool.install}")
    ended, killed = measure(tmp_path, [name], (500,), 1)
    assert (ended.killed, killed.killed) == (False, True)
    assert ended.missing == ended.reported == ended.untold == 0 < ended.stored
    assert killed.emitted > 0


def check_publishers(many):
    assert many.unknown == many.killed > 0
    assert many.rest >= 0
    assert many.stored > 0


def test_the_table_says_what_it_lacks_of_many_publishers(tmp_path):
    check_publishers(measure_publishers(tmp_path, 12, 4))


def test_so_do_those_of_the_published_page():
    ours = [run for run in PUBLISHED_RESULTS.runs if run.tool in OURS]
    check(ours)
    assert sum(run.reported for run in ours) > 0
    assert not PUBLISHED_RESULTS.absent
    check_publishers(PUBLISHED_RESULTS.publishers)


def test_the_page_is_made_from_its_results():
    assert page(PUBLISHED_RESULTS) == (PUBLISHED / PAGE).read_text()
    assert picture(PUBLISHED_RESULTS) == (PUBLISHED / PICTURE).read_text()
