"""Decoder states of an earlier version, as a later one makes them its own."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.ingest import state as upgrade
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import VERSION
from tests.ingest.log import Log, heph_event, run
from tests.upgrade import later


@pytest.fixture
def snapshot():
    """A state of today's version: ten events, of which two are missing."""
    log = Log()
    session = log.open(source="s")
    log.data(session, b"".join(heph_event(1, n) for n in range(12) if n not in {4, 5}))
    ingest, _ = run(log.entries)
    return ingest.snapshot()


def test_a_state_of_before_is_that_of_the_later_version_after_its_step(snapshot, monkeypatch):
    earlier = later.before_encoded(snapshot)
    later.register(monkeypatch.setattr)
    assert upgrade.version_of(upgrade.upgraded(earlier)) == later.STATE
    ingest = Ingest.restore(earlier)
    assert ingest.state.version == later.STATE
    assert ingest.position == Ingest.restore(upgrade.upgraded(earlier)).position
    assert (ingest.tally("s").rows, ingest.account("s").seen) == (11, 10)
    assert upgrade.version_of(ingest.snapshot()) == later.STATE


def test_steps_are_taken_one_after_the_other_from_the_one_that_the_state_needs(monkeypatch):
    taken = []
    steps = {
        number: upgrade.Upgrade(number + 1, lambda state, number=number: taken.append(number))
        for number in (1, 2, 3)
    }
    monkeypatch.setattr(upgrade, "STEPS", steps)
    monkeypatch.setattr(upgrade, "VERSION", 4)
    for version, wanted in ((1, [1, 2, 3]), (3, [3]), (4, [])):
        taken.clear()
        state = msgspec.msgpack.encode({"version": version})
        assert upgrade.version_of(upgrade.upgraded(state)) == 4
        assert taken == wanted


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_state_of_another_version_is_not_taken_for_one(version):
    assert not upgrade.can_upgrade(version)
    with pytest.raises(KeyError):
        upgrade.upgraded(msgspec.msgpack.encode({"version": version}))
