"""Test who is told, and how much at a time, when not everybody hears and there is much to tell."""

from __future__ import annotations

import json

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announced import HOLES_MAX, STREAMS_IN_ONE, STREAMS_MOST
from tests.ingest.log import Log, heph_event, heph_session, run


def told(ingest, *, hears=lambda number: True, most=1000):
    """The streams that are named to each session in one call; so many packets are taken."""
    found = {}
    for answer in ingest.acknowledgements(hears):
        (record,) = FORMATS["heph"].decoder(2**16, None).feed(answer.data)
        said = json.loads(json.loads(record.attributes)["value"])
        most -= 1
        answer.taken = most >= 0
        if answer.taken:
            streams = {int(stream): number for stream, number in said["streams"].items()}
            streams |= dict.fromkeys(said.get("uncounted", ()))
            found.setdefault(answer.number, {}).update(streams)
    return found


def test_what_a_peer_does_not_hear_waits_until_it_does():
    log = Log()
    deaf, other = log.open(), log.open()
    for number, session in enumerate((deaf, other)):
        log.data(session, heph_session(number, acknowledge=True) + heph_event(1, 0))
    ingest, _ = run(log.entries)
    assert told(ingest, hears=lambda number: number == other) == {other: {1: 1}}
    assert told(ingest, hears=lambda number: number == other) == {}
    before = len(log.entries)
    log.data(deaf, heph_event(1, 1) + heph_event(2, 0))
    run(log.entries[before:], ingest)
    assert told(ingest, hears=lambda number: False) == {}
    assert told(ingest) == {deaf: {1: 2, 2: 1}}
    assert told(ingest) == {}


def test_of_very_many_streams_each_is_told_in_its_turn_and_none_is_left_out():
    log = Log()
    session = log.open()
    streams = range(3 * STREAMS_MOST)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    heard = []
    for count in range(1, 7):
        (names,) = told(ingest).values()
        assert len(names) <= STREAMS_MOST
        heard += names
        before = len(log.entries)
        log.data(session, b"".join(heph_event(stream, count) for stream in streams))
        run(log.entries[before:], ingest)
    assert sorted(heard) == sorted(2 * [*streams])


def test_a_question_is_answered_over_as_many_calls_as_it_takes():
    log = Log()
    session = log.open()
    streams = range(2 * STREAMS_MOST + 10)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    for _ in range(3):
        told(ingest)
    assert told(ingest) == {}
    before = len(log.entries)
    log.data(session, heph_session(1, acknowledge=True, turn=1))
    run(log.entries[before:], ingest)
    heard = {}
    for _ in range(3):
        heard |= told(ingest)[session]
    assert heard == dict.fromkeys(streams, 1)
    assert told(ingest) == {}


def test_a_question_that_comes_before_an_answer_is_refused_is_answered_all_the_same():
    log = Log()
    session = log.open()
    log.data(session, heph_session(1, acknowledge=True) + heph_event(1, 0) + heph_event(2, 0))
    ingest, _ = run(log.entries)
    assert told(ingest) == {session: {1: 1, 2: 1}}
    before = len(log.entries)
    log.data(session, heph_event(1, 1))
    run(log.entries[before:], ingest)
    answers = ingest.acknowledgements(lambda number: True)
    answer = next(answers)
    before = len(log.entries)
    log.data(session, heph_session(1, acknowledge=True, turn=1))
    run(log.entries[before:], ingest)
    answer.taken = False
    assert list(answers) == []
    assert told(ingest) == {session: {1: 2, 2: 1}}


def test_holes_for_which_an_answer_had_no_room_are_named_with_the_next_news():
    """A client that keeps none of the events waits for nothing else."""
    log = Log()
    session = log.open()
    streams = range(HOLES_MAX + 6)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(s, n) for n in (0, 2) for s in streams))
    ingest, _ = run(log.entries)
    numbers = told(ingest)[session]
    cut = {stream for stream, number in numbers.items() if number == 1}
    assert len(cut) == 6
    assert told(ingest) == {}
    before = len(log.entries)
    log.data(session, heph_event(min({*streams} - cut), 1))
    run(log.entries[before:], ingest)
    assert {s: n for s, n in told(ingest)[session].items() if s in cut} == dict.fromkeys(cut, 3)
    assert told(ingest) == {}


def test_what_is_not_taken_is_told_another_time():
    log = Log()
    session = log.open()
    streams = range(STREAMS_MOST + 30)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    heard = {}
    for most in (0, 3, 0, 1, 2, 100, 100):
        heard |= told(ingest, most=most).get(session, {})
    assert heard == dict.fromkeys(streams, 1)
    assert told(ingest) == {}


@pytest.mark.parametrize("places", [1, 40, 100])
def test_who_asks_again_before_all_is_taken_is_told_the_rest_first(places):
    """Some of the streams are not counted."""
    log = Log()
    session = log.open(limits=LedgerConfig(streams_max=places))
    streams = range(100, 100 + 4 * STREAMS_IN_ONE)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    heard = {}
    for turn in range(1, 6):
        heard |= told(ingest, most=1)[session]
        before = len(log.entries)
        log.data(session, heph_session(1, acknowledge=True, turn=turn))
        run(log.entries[before:], ingest)
    assert heard.keys() == {*streams}


def test_who_asks_again_and_again_and_takes_one_answer_each_time_is_told_of_all_streams():
    log = Log()
    session = log.open()
    streams = range(100, 100 + 4 * STREAMS_IN_ONE)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    assert told(ingest)[session].keys() == {*streams}
    heard = []
    for turn in range(1, 9):
        before = len(log.entries)
        log.data(session, heph_session(1, acknowledge=True, turn=turn))
        run(log.entries[before:], ingest)
        heard += told(ingest, most=1)[session]
    assert heard == 2 * [*streams]


def test_streams_of_which_something_came_since_are_told_before_those_that_were_only_asked_about():
    log = Log()
    session = log.open()
    streams = range(100, 100 + 4 * STREAMS_IN_ONE)
    log.data(session, heph_session(1, acknowledge=True))
    log.data(session, b"".join(heph_event(stream, 0) for stream in streams))
    ingest, _ = run(log.entries)
    assert told(ingest)[session].keys() == {*streams}
    before = len(log.entries)
    log.data(session, heph_session(1, acknowledge=True, turn=1))
    run(log.entries[before:], ingest)
    assert told(ingest, most=0) == {}
    before = len(log.entries)
    log.data(session, heph_event(streams[-1], 1) + heph_session(1, acknowledge=True, turn=2))
    run(log.entries[before:], ingest)
    heard = []
    for most in (0, 1, 1, 1, 1):
        heard += told(ingest, most=most).get(session, ())
    assert heard == [streams[-1], *streams[:-1]]
    assert told(ingest) == {}


def test_an_answer_without_streams_that_is_not_taken_is_told_another_time():
    log = Log()
    session = log.open()
    log.data(session, heph_session(1, acknowledge=True))
    ingest, _ = run(log.entries)
    assert told(ingest, most=0) == {}
    assert told(ingest) == {session: {}}
    assert told(ingest) == {}
