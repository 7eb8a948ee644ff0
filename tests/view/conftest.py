"""Provide stores to look at, and viewers that are ended after the test."""

from __future__ import annotations

import pytest

from tests.query.tables import SECOND, clocked, gap, make, row, session
from tests.view.viewer import Viewer

EPOCH = 1_795_000_000 * SECOND


def few():
    """Return a store with two sessions: spans inside one another, an instant, a gap of five events."""
    rows = []
    for name, slow in (("aa", 1), ("ab", 2)):
        mine = {"session": name}
        rows += [
            session("open", opened=EPOCH, peer="127.0.0.1:5", transport="udp", **mine),
            clocked(epoch=EPOCH, **mine),
            row("span", name="run", id=1, seq=0, start=0, end=100_000, offset=10, **mine),
        ]
        for number in range(10):
            start = 1000 + number * 9000
            place = {"seq": number + 1 + (5 if number > 4 else 0), "offset": 20 + number}
            rows.append(
                row("span", name="step", start=start, end=start + 3000 * slow, **place, **mine)
            )
        rows.append(row("instant", name="mark", start=50_000, seq=16, offset=40, **mine))
        rows.append(gap(5, 6, offset=30, **mine))
    return rows


@pytest.fixture(scope="session")
def few_store(tmp_path_factory):
    return make(tmp_path_factory.mktemp("few") / "store", few())


@pytest.fixture(scope="module")
def viewer(few_store):
    """Return a viewer of `few_store` that all tests of a module share."""
    viewer = Viewer(few_store)
    yield viewer
    code, printed = viewer.end()
    assert (code, printed) == (0, "")


@pytest.fixture
def viewer_of(tmp_path):
    """Return a function that starts viewers. They end before `tmp_path`, in which their store may be, is removed."""
    made = []

    def make_viewer(*arguments, **options):
        made.append(Viewer(*arguments, **options))
        return made[-1]

    yield make_viewer
    for each in made:
        each.end()
