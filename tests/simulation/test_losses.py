"""Names that somebody takes away from a running collector, in virtual time."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.simulation import facts, losses
from tests.simulation.facts import Scenario, decode, encode
from tests.simulation.generate_losses import FATAL, HARMLESS, generate_of_losses
from tests.simulation.play import Play
from tests.simulation.verdict import judge
from tests.simulation.world import MS, SECOND

ONCE_DEFECTS = (6, 22, 43)
"""A full batch of a lost store, a newest segment replaced before it was full, a next segment replaced before its turn."""


@pytest.mark.parametrize("seed", [*range(9), *ONCE_DEFECTS[1:], 26, 27])
def test_what_a_client_was_told_is_stored_or_the_loss_is_named(seed):
    verdict = judge(generate_of_losses(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 200))
def test_it_is_so_for_two_hundred_seeds(seed):
    verdict = judge(generate_of_losses(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


def scenario(what, **loss):
    """A client whose events are acknowledged, and a loss before their commit."""
    made = [
        facts.Begin(at=0, program=0, transport="tcp", address="tcp:1", buffer=2**22),
        facts.Emit(at=MS, program=0, stream=1, count=500),
        facts.Flush(at=2 * MS, program=0, seconds=3.0),
        facts.LoseName(at=900 * MS, what=what, **{"how": "removed"} | loss),
        facts.Emit(at=3 * SECOND, program=0, stream=1, count=500),
        facts.Close(at=40 * SECOND, program=0, seconds=15.0),
    ]
    return Scenario(seed=0, facts=made, fates={})


@pytest.mark.parametrize("call", [0, 7])
@pytest.mark.parametrize("what", [*HARMLESS, *FATAL])
def test_only_a_loss_that_matters_ends_the_collector(what, call):
    played = Play(scenario(what, call=call))
    played.run()
    there = what != "closed"  # no segment is full here
    assert played.collector.losses.ends == (what in FATAL and there)
    assert played.programs[0].ended


def test_a_scenario_of_losses_is_the_same_after_its_file():
    for seed in range(20):
        made = generate_of_losses(seed)
        assert decode(encode(made)) == made


def test_a_spool_that_is_gone_before_its_checkpoints_are_listed_is_found(monkeypatch):
    """The loss happens within a step that blocks, before one of the calls that follow the save of a checkpoint."""
    monkeypatch.setattr("tailrace.spool.checkpoint.opening", lambda _: nullcontext())
    kinds = {judge(scenario("spool", call=call)).kind for call in range(40, 60, 2)}
    assert kinds == {None, "a loss that is not named"}


def test_a_collector_that_answers_without_its_log_is_found(monkeypatch):
    """The names are not looked at, neither by a sync nor by an answer."""
    monkeypatch.setattr("tailrace.spool.segment.Segment.check", lambda _: None)
    monkeypatch.setattr("tailrace.spool.spool.Spool.check", lambda _: None)
    assert judge(scenario("segment")).kind == "an answer after a name was lost"


@pytest.mark.parametrize("lock", ["lock", "store-lock"])
def test_a_lock_that_is_not_made_again_is_found(monkeypatch, lock):
    monkeypatch.setattr("tailrace.spool.disk.LockedDirectory.check", lambda _: None)
    assert judge(scenario(lock)).kind == "a lock that is not made again"


def test_a_second_collector_that_is_let_in_is_found(monkeypatch):
    """Only the file is locked, and not the directory."""
    monkeypatch.setattr(
        "tailrace.spool.disk.LockedDirectory.take", lambda directory: directory._take_file()
    )
    kind = judge(scenario("lock", beside=True)).kind
    assert kind == "a second collector beside the first"


def test_a_loss_that_is_not_named_is_found(monkeypatch):
    monkeypatch.setattr(losses.LostError, "__str__", lambda _: "lost", raising=False)
    assert judge(scenario("segment")).kind == "a loss that is not named"


def test_a_process_that_fails_because_of_a_loss_is_found(monkeypatch):
    """The process ends at once, with the error of the system, and commits nothing more."""
    monkeypatch.setattr("tailrace.owned.lost", FileNotFoundError)
    assert judge(scenario("segment")).kind == "a loss that is not named"
