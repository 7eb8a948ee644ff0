"""Conditional puts: servers with several winners, with none, and such that the wrong bytes are there."""

from __future__ import annotations

import pytest

from tailrace.doctor import object_store
from tailrace.doctor.endpoint import Client
from tailrace.doctor.object_store import KEYS, WRITERS
from tests.doctor.hosts import StoppedClock
from tests.doctor.object_store.lying import LyingS3

CHECK = "conditional puts"


def test_a_server_that_keeps_its_promise_has_one_winner_for_each_key(examined):
    with LyingS3() as server:
        found = examined(server)[CHECK]
        raced = [key for right, key in server.asked if right == "put" and "/race-" in key]
    assert found.severity == "good"
    assert found.figures == {
        "keys": KEYS, "writers": WRITERS, "keys_with_one_winner": KEYS,
        "keys_with_several_winners": 0, "unanswered": 0,
    }  # fmt: skip
    assert len(set(raced)) == KEYS
    assert len(raced) == KEYS * (WRITERS + 1)


@pytest.mark.parametrize("lie", ["looks_first", "ignores"])
def test_several_winners_are_a_problem(examined, lie):
    found = examined(**{lie: True})[CHECK]
    assert found.severity == "problem"
    assert "had several winners" in found.what
    assert found.figures["keys_with_several_winners"] > KEYS / 2
    assert "keep no table on this endpoint" in found.commands[0]


def test_bytes_of_a_writer_who_was_refused_are_a_problem(examined):
    found = examined(replaces=True)[CHECK]
    assert found.severity == "problem"
    assert f"{KEYS} of {KEYS} keys have other bytes than those of the writer" in found.what


def test_a_server_that_refuses_everybody_is_a_problem(examined):
    found = examined(never=True)[CHECK]
    assert found.severity == "problem"
    assert f"{KEYS} of {KEYS} keys had no winner" in found.what


def test_a_server_that_knows_no_conditions_is_a_problem(examined):
    found = examined(unknown=501)[CHECK]
    assert found.severity == "problem"
    assert found.what == "The server refuses conditional puts: 501 NotImplemented."


def test_answers_that_are_lost_leave_it_unknown(examined):
    found = examined(loses="7")[CHECK]
    assert found.severity == "problem"
    assert found.figures["keys_with_several_winners"] == 0
    assert KEYS // 10 <= found.figures["unanswered"] <= KEYS // 10 * WRITERS
    assert "is not known" in found.why
    assert "no answer: " in found.what


def test_a_race_that_takes_too_long_is_said_to_show_less(examined):
    found = examined(clock=StoppedClock(step=5))[CHECK]
    assert found.severity == "advice"
    assert 0 < found.figures["keys"] < KEYS
    assert found.figures["keys_with_one_winner"] == found.figures["keys"]


def test_nodes_that_do_not_agree_have_several_winners(examined, monkeypatch):
    one, other = LyingS3(), LyingS3()
    made = iter(range(WRITERS))

    class AtANode(Client):
        """Stands for a client whose connections lead to one of two nodes of the endpoint."""

        def __init__(self, place):
            node = one if next(made) % 2 else other
            super().__init__(place._replace(endpoint=node.url))

    monkeypatch.setattr(object_store, "Client", AtANode)
    with one, other:
        found = examined(one)
    assert found[CHECK].figures["keys_with_several_winners"] == KEYS
    assert "up to 2 of 9 writers" in found[CHECK].what
    assert found["read after write"].severity == "problem"
    assert found["listing after write"].severity == "problem"
