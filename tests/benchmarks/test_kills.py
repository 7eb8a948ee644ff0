"""The kill curve: nothing is invented, and no killed process is called complete."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.kills.__main__ import (
    PAGE,
    PICTURE,
    PRODUCERS,
    RESULTS,
    Results,
    measure,
    page,
    picture,
)
from benchmarks.places import PUBLISHED

PUBLISHED_RESULTS = msgspec.json.decode((PUBLISHED / RESULTS).read_bytes(), type=Results)


def check(kills):
    for kill in kills:
        assert (kill.complete, kill.hidden, kill.invented) == (0, 0, 0), kill
        assert sum(kill.parts) == kill.done >= kill.recovered, kill
        if kill.setting == "each record at once":
            assert kill.done - kill.recovered <= kill.processes, kill
        if kill.setting == "DFTracer's defaults":
            assert (kill.recovered, kill.sessions) == (0, 0), kill


@pytest.mark.skipif(
    not PRODUCERS.exists(), reason="needs the real DFTracer (CPython 3.11 on Linux): make producers"
)
def test_no_killed_process_is_called_complete(tmp_path):
    kills = list(measure(tmp_path, 2, longest_ms=5000))  # a busy machine starts slowly
    check(kills)
    assert sum(kill.recovered for kill in kills) > 0
    assert sum(kill.unfinished for kill in kills) > 0
    assert sum(kill.unseen for kill in kills) > 0


def test_nor_is_one_on_the_published_page():
    check(PUBLISHED_RESULTS.kills)
    assert len(PUBLISHED_RESULTS.kills) == 400


def test_the_page_is_made_from_its_results():
    assert page(PUBLISHED_RESULTS) == (PUBLISHED / PAGE).read_text()
    assert picture(PUBLISHED_RESULTS.kills) == (PUBLISHED / PICTURE).read_text()
