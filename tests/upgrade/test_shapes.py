"""Nobody changes what is on disk without a new version: see docs/decisions/versions.md."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.ingest import state as upgrade
from tailrace.ingest.state import VERSION
from tests.upgrade.shapes import SHAPES


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.name)
def test_what_is_on_disk_has_the_shape_that_its_version_stands_for(path):
    now = SHAPES[path]()
    assert now == path.read_text(), (
        f"{path.name}: raise the version unless it is of no release yet, see to its step, then run"
        " `python -m tests.upgrade.shapes`"
    )


def test_every_state_that_landed_has_steps_to_todays():
    reached = {VERSION}
    for version in sorted(upgrade.STEPS, reverse=True):
        assert version < upgrade.STEPS[version].version in reached
        reached.add(version)
    assert reached == set(range(1, VERSION + 1)), "a version of which no state can be read"


def test_a_state_of_today_is_left_as_it_is():
    snapshot = msgspec.msgpack.encode({"version": VERSION, "position": 5})
    assert upgrade.upgraded(snapshot) is snapshot
