"""Clients that move between two collectors of one table, in virtual time."""

from __future__ import annotations

import pytest

from tailrace.query import catalog, rows
from tests.simulation import facts
from tests.simulation.facts import Scenario, decode, encode
from tests.simulation.generate_moves import generate_of_moves
from tests.simulation.moves import Moves
from tests.simulation.verdict import judge
from tests.simulation.world import MS, SECOND


@pytest.mark.parametrize("seed", [6, 64, 71, 112, 145])
def test_readers_see_what_either_collector_has_once_and_what_none_has_as_missing(seed):
    verdict = judge(generate_of_moves(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_it_is_so_for_a_hundred_seeds(seed):
    verdict = judge(generate_of_moves(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


def scenario(*more, transport="tcp", close=True):
    """Make a scenario of a client that moves with unacknowledged events, and ends at the second collector."""
    made = [
        facts.Begin(at=0, program=0, transport=transport, address=f"{transport}:1", buffer=2**22),
        facts.Emit(at=10 * MS, program=0, stream=1, count=100),
        facts.Flush(at=11 * MS, program=0, seconds=3.0),
        facts.Emit(at=2 * SECOND, program=0, stream=1, count=100, over=60 * MS),
        facts.Move(at=2 * SECOND + 400 * MS, program=0, to=1, cut=0),
        facts.Emit(at=3 * SECOND, program=0, stream=1, count=100),
        *([facts.Close(at=4 * SECOND, program=0, seconds=15.0)] if close else []),
        *more,
    ]
    made.sort(key=lambda fact: fact.at)
    return Scenario(seed=0, facts=made, fates={}, collectors=2)


UNHEARD = facts.Deaf(at=2 * SECOND, program=0, duration=SECOND)
"""The client reads no answer to its second events before it moves."""
KILLED = [
    UNHEARD,
    facts.KillCollector(at=2 * SECOND + 300 * MS, collector=0),
    facts.StartCollector(at=6 * SECOND, collector=0),
]


@pytest.mark.parametrize(("transport", "had"), [("tcp", [200, 200]), ("udp", [200, 100])])
def test_both_collectors_have_events_of_a_client_that_ends_at_the_second(transport, had):
    """Unread answers are lost only if a connection breaks."""
    play = Moves(scenario(*KILLED, transport=transport))
    play.run()
    assert [each.book.stored.count for each in play.watches] == had
    assert play.programs[0].ended
    assert [bool(each.goodbyes) for each in play.watches] == [False, True]
    assert judge(play.scenario).kind is None


def test_a_scenario_of_moves_is_the_same_after_its_file():
    for seed in range(20):
        made = generate_of_moves(seed)
        assert decode(encode(made)) == made


@pytest.fixture
def break_(monkeypatch):
    """Replace a part of a view's definition."""

    def replaced(name, whole, broken):
        code = getattr(rows, name)
        assert code.count(whole) == 1
        for module in (rows, catalog):
            monkeypatch.setattr(module, name, code.replace(whole, broken), raising=False)
        catalog._definitions.cache_clear()

    yield replaced
    monkeypatch.undo()
    catalog._definitions.cache_clear()


def test_views_that_show_what_both_collectors_have_twice_are_found(break_):
    break_("MOVED_NUMBERS", "QUALIFY {'session'", "QUALIFY false AND {'session'")
    assert judge(scenario(*KILLED)).kind == "another number of events"


def test_views_that_miss_what_the_other_collector_has_are_found(break_):
    break_("_JOINED", "least(k.remaining, coalesce(l.events, 0))", "k.remaining")
    assert judge(scenario()).kind == "another sum of the missing"


def test_views_that_miss_the_end_at_each_collector_are_found(break_):
    break_("_JOINED", "THEN NOT e.goes_on AND", "THEN NOT e.goes_on OR")
    assert judge(scenario(close=False)).kind == "another end"


def test_views_that_comfort_are_found(break_):
    """The broken view takes a client without a goodbye for one that ended in order."""
    goes_on = "bool_or(coalesce(closed = 'goodbye', part.watched(collector), false))"
    break_("_ENDS", goes_on, "true")
    assert judge(scenario(close=False)).kind == "called complete"
