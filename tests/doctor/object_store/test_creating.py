"""Conditional puts: servers with several winners, with none, and such that the wrong bytes are there."""

from __future__ import annotations

import socket

import pytest

from tailrace.doctor.object_store.creating import KEYS, WRITERS
from tests.doctor.hosts import StoppedClock
from tests.doctor.object_store.lying import LyingS3, Remembered

CHECK = "conditional puts"


def test_a_server_that_keeps_its_promise_has_one_winner_for_each_key(examined):
    with LyingS3() as server:
        found = examined(server)[CHECK]
        raced = [key for right, key in server.asked if right == "put" and "/race-" in key]
    assert found.severity == "good"
    assert found.figures == {
        "keys": KEYS, "writers": WRITERS, "addresses": 1, "keys_with_one_winner": KEYS,
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


def two_nodes(monkeypatch, *, shared):
    """Servers at two addresses of one name, with one bucket or each with its own."""
    objects = Remembered()
    one = LyingS3(objects)
    other = LyingS3(objects if shared else Remembered(), ("127.0.0.2", one.port))
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, one.port))
        for at in ("127.0.0.1", "127.0.0.2")
    ]
    known = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo",
        lambda host, *args, **kwargs: found if host == "name" else known(host, *args, **kwargs),
    )  # fmt: skip
    one.url = f"http://name:{one.port}"
    return one, other


def test_writers_ask_all_addresses_of_the_endpoint(examined, monkeypatch):
    one, other = two_nodes(monkeypatch, shared=True)
    with one, other:
        # The two have no lock in common, so they look one after the other.
        other._server.lock = one._server.lock
        found = examined(one)
    assert found[CHECK].severity == "good"
    assert "over 2 addresses" in found[CHECK].what
    assert found["endpoint"].figures == {"addresses": 2, "answering": 2}
    for each in (one, other):
        assert (
            len([key for right, key in each.asked if right == "put" and "/race-" in key]) > KEYS * 3
        )


def test_nodes_that_do_not_agree_have_several_winners(examined, monkeypatch):
    one, other = two_nodes(monkeypatch, shared=False)
    with one, other:
        found = examined(one)
    assert found[CHECK].figures["keys_with_several_winners"] == KEYS
    assert "up to 2 of 9 writers" in found[CHECK].what
    assert found["read after write"].severity == "problem"
    assert found["listing after write"].severity == "problem"


def test_an_address_that_is_silent_is_advice_and_the_others_are_tested(examined, monkeypatch):
    one, other = two_nodes(monkeypatch, shared=True)
    other._server.server_close()
    with one:
        found = examined(one)
    assert found["endpoint"].severity == "advice"
    assert "does not answer at 127.0.0.2: connection refused" in found["endpoint"].what
    assert found[CHECK].severity == "good"
