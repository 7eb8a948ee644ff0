from __future__ import annotations

import json
import os
import random
import socket
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from clients.python.tests.collectors import option
from clients.python.tests.reader import packets
from tailrace_client._session import Answer, Answers, Range, Session


def said(data):
    """Return the names and the JSON objects of the metadata packets, without the epoch packet."""
    return [(name, json.loads(value)) for name, value in packets(data) if name != "epoch"]


def answer(told, /, **fields):
    return json.dumps({"session": told.id, "turn": 0} | fields).encode()


def test_an_announcement_says_who_it_is_behind_the_epoch():
    session = Session(epoch=1_700_000_000_000_000_000, process="solver")
    epoch, announced = packets(session.announcement())
    assert epoch == ("epoch", (1_700_000_000_000_000_000).to_bytes(8, "big"))
    assert announced.name == "tailrace.session"
    fields = json.loads(announced.option)
    assert fields.pop("client").startswith("tailrace-python ")
    assert fields == {
        "session": session.id, "turn": 0, "acknowledge": True, "process": "solver", "pid": os.getpid(),
        "host": socket.gethostname(),
    }  # fmt: skip
    assert len(bytes.fromhex(session.id)) == 16
    assert Session(epoch=0).id != session.id


def test_an_announcement_says_when_it_was_made():
    times = iter([3, 2**40])
    session = Session(epoch=0, ticks=lambda: next(times))
    found = [said(session.announcement())[0][1]["now"] for _ in range(2)]
    assert found == [3, 2**40]


def test_a_clock_of_its_own_is_announced_and_has_no_epoch():
    (announced,) = said(Session(epoch=None, asks=False).announcement())
    fields = announced[1]
    assert (fields["clock"], fields["ticks_per_second"]) == ("logical", 10**9)
    assert fields["acknowledge"] is False
    assert {"process", "pid", "host", "client"} <= fields.keys()


@pytest.mark.parametrize(
    ("argv", "executable", "name"),
    [
        (["/opt/sim/run.py", "x"], "/usr/bin/python3", "run.py"),
        ([""], "/usr/bin/python3", "python3"),
        ([], "/usr/bin/python3", "python3"),
        ([], "", "python"),
    ],
)
def test_a_process_without_a_name_is_called_what_it_runs(monkeypatch, argv, executable, name):
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.setattr("sys.executable", executable)
    assert said(Session(epoch=0).announcement())[0][1]["process"] == name


def test_a_given_name_holds_whatever_the_arguments_are(monkeypatch):
    monkeypatch.setattr("sys.argv", [b"embedded"])
    assert said(Session(epoch=0, process="solver").announcement())[0][1]["process"] == "solver"


def test_a_report_has_what_was_discarded_with_numbers_as_on_the_wire():
    session = Session(epoch=0)
    packet = session.report({"full": 3, "nested": 0}, [Range(1, 2**32 + 5, 2**32 + 8)])
    assert said(packet) == [
        ("tailrace.report", {"discarded": {"full": 3}, "ranges": [[1, 5, 3]]}),
    ]


@given(st.integers(0, 200), st.integers(0, 40), st.integers(0, 2**32))
def test_goodbyes_name_every_stream_once_and_the_last_says_so(count, each, seed):
    """There are as few packets as their maximum size allows, with at least one stream in each."""
    rng = random.Random(seed)
    numbers = {rng.randrange(2**31, 2**32): rng.randrange(2**40) for _ in range(count)}
    size = 400 + 26 * each
    parts = list(Session(epoch=0).goodbyes(numbers, {"full": 7, "nested": 0}, size))
    assert all(len(part) <= max(size, 400 + 26) for part in parts)
    assert len(parts) == max(1, -(-len(numbers) // max(1, each)))
    fields = [dict(said(part))["tailrace.goodbye"] for part in parts]
    assert [f["more"] for f in fields] == [True] * (len(fields) - 1) + [False]
    assert [f.get("part", 0) for f in fields] == [*range(len(fields))]
    assert [f.get("discarded") for f in fields] == [None] * (len(fields) - 1) + [{"full": 7}]
    named = [(int(s), n) for f in fields for s, n in f["streams"].items()]
    assert named == sorted((s, n % 2**32) for s, n in numbers.items())


def test_the_last_goodbye_states_the_cost_and_a_repeated_one_the_same():
    told = iter([{"emitting": 5}, {"emitting": 7}, None])
    session = Session(epoch=0, cost=lambda events: next(told))
    numbers = dict.fromkeys(range(1, 31), 2)
    for more, cost in ((0, {"emitting": 5}), (0, {"emitting": 5}), (1, {"emitting": 7}), (2, None)):
        parts = list(session.goodbyes(numbers | {1: 2 + more}, {}, 900))
        fields = [dict(said(part))["tailrace.goodbye"] for part in parts]
        assert [part.get("cost") for part in fields] == [None, cost]


def test_a_packet_holds_no_byte_too_many():
    """The sizes of datagrams are computed without spaces in JSON."""
    session = Session(epoch=0)
    assert b" " not in session.report({"full": 3}, [Range(1, 5, 8), Range(2, 0, 1)])
    assert b" " not in next(session.goodbyes({1: 5, 2: 7}, {"full": 7}, 1432))


@given(st.lists(st.one_of(st.just(None), st.integers(0, 300)), max_size=20), st.binary(max_size=7))
@example([0], b"")
def test_the_events_among_packets_are_counted(packets, torn):
    """Each item is a metadata packet (None), or the size of an event whose body looks like the beginning of an
    event."""
    event = (0xC1FC1FB7).to_bytes(4, "big")
    data = b"".join(
        option("tailrace.report", {}) if size is None
        else event + (8 + 4 * size).to_bytes(4, "big") + event * size
        for size in packets
    )  # fmt: skip
    events = sum(size is not None for size in packets)
    assert Session(epoch=0).count(data + torn) == events


def test_an_answer_says_what_is_durable_and_names_holes():
    session = Session(epoch=0)
    heard = session.hear(
        answer(session, streams={"1": 50, "3": 7}, holes=[[1, 40, 3]]),
        {1: 100, 3: 7},
        {1: 60, 3: 7},
    )
    assert heard == Answer(0, {1: 50, 3: 7}, {1: [Range(1, 40, 43)]})
    assert session.answered == 0
    assert heard.has(1, 0, 40)
    assert not heard.has(1, 39, 41)
    assert heard.lacks(1, 39, 41)
    assert not heard.has(1, 43, 51)
    assert not heard.lacks(1, 43, 51)
    assert not heard.has(2, 0, 1)


def test_what_an_answer_says_does_not_depend_on_those_before_it():
    """Answers may arrive in any order."""
    session = Session(epoch=0)
    turns = [{"streams": {"1": 100}, "holes": [[1, 0, 50]]}, {"streams": {"1": 0}}, {"streams": {}}]
    numbers = {1: 100}
    said = [session.hear(answer(session, **turn), numbers, numbers) for turn in turns]
    back = [session.hear(answer(session, **turn), numbers, numbers) for turn in reversed(turns)]
    assert said == back[::-1]
    assert [heard.has(1, 0, 50) for heard in said] == [False] * 3
    assert [heard.has(1, 50, 100) for heard in said] == [True, False, False]


@given(st.integers(0, 2**33), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
@example(2**32 + 5, 6, 0)
@example(2**33, 2**31 - 1, 2**31 - 1)
@example(2**33, 2**31, 0)
def test_numbers_of_answers_are_unwrapped(following, behind, size):
    """A number that lies half the 32-bit range or more behind is ignored."""
    session = Session(epoch=0)
    number = max(0, following - behind)
    first = max(0, number - size)
    fields = {"streams": {"1": number % 2**32}, "holes": [[1, first % 2**32, 3]]}
    heard = session.hear(answer(session, **fields), {1: following}, {1: following})
    if following - number >= 2**31:
        assert heard.below == {}
    else:
        assert heard.below == {1: number}
        assert heard.holes == {1: [Range(1, first, min(first + 3, following))]}


@pytest.mark.parametrize(
    ("fields", "below", "holes"),
    [
        ({"goodbye": True}, {}, {}),
        ({"holes": [[2, 0, 3]]}, {2: 0}, {2: [Range(2, 0, 3)]}),
        ({"holes": [[2, 1, 3]]}, {}, None),
        ({"streams": {"7": 0}}, {}, {}),
        ({"streams": {"7": 1}}, {}, {}),
        ({"streams": {"3": 1}}, {3: 0}, {}),
        ({"holes": [[7, 0, 3]]}, {}, {}),
        ({"holes": [[2, 0, 1]] * 64}, {2: 0}, {2: [Range(2, 0, 1)] * 64}),
    ],
)
@pytest.mark.parametrize("goodbye", [True, False, 1, "true", None])
def test_an_answer_may_leave_streams_out_and_name_others(fields, below, holes, goodbye):
    """Events of stream 2 were sent, events of stream 3 wait, and stream 7 has no events."""
    session = Session(epoch=0)
    said = {"session": session.id, **fields, "goodbye": goodbye}
    heard = session.hear(json.dumps(said).encode(), {2: 9, 3: 9}, {2: 9})
    assert heard.below == below
    assert holes is None or heard.holes == holes
    assert heard.goodbye is (goodbye is True)


def test_an_answer_says_what_was_given_up_and_which_streams_are_not_counted():
    """An answer cannot give up more events of a stream than the stream has, nor any event of an unknown stream."""
    session = Session(epoch=0)
    fields = {"given_up": {"1": 4, "2": 10**12, "7": 1}, "uncounted": [2, 7]}
    heard = session.hear(answer(session, **fields), {1: 9, 2: 30}, {1: 9, 2: 30})
    assert heard == Answer(0, {}, {}, given_up={1: 4, 2: 30}, uncounted=frozenset({2, 7}))


def test_an_answer_that_names_no_turn_is_of_the_first():
    session = Session(epoch=0)
    fields = {"session": session.id, "streams": {"1": 5}}
    heard = session.hear(json.dumps(fields).encode(), {1: 9}, {1: 9})
    assert heard == Answer(0, {1: 5})


@pytest.mark.parametrize(
    "fields",
    [
        {"streams": {"1": 101}},  # more events than were recorded
        {"given_up": {"1": -1}},
        {"given_up": {"1": True}},
        {"given_up": [1]},
        {"uncounted": [-1]},
        {"uncounted": 1},
        {"uncounted": ["1"]},
        {"streams": {"2": 1}},  # of a stream that is not
        {"streams": {"1": 2**31 + 5}},  # behind
        {"streams": {"1": 50}, "holes": [[1, 51, 3]]},  # a hole above the number
        {"streams": {"1": 50}, "holes": [[1, 4, 3], [1, 60, 1], [1, 7, 1]]},
        {"streams": {"1": 50}, "holes": [[1, 4, 3]] * 65},
        {"turn": 1},  # no announcement had this number yet
        {"turn": -1},
        {"turn": True},
        {"session": "another"},
        {"session": None},
        {"streams": {"1": "50"}},
        {"streams": {"1": 50.0}},
        {"streams": {"1": 2**32 + 50}},
        {"streams": {"1": 50 - 2**32}},
        {"streams": {"one": 50}},
        {"streams": [[1, 50]]},
        {"streams": {"1": 50}, "holes": [[1]]},
        {"streams": {"1": 50}, "holes": [[1, 2, "3"]]},
        {"streams": {"1": 50}, "holes": 7},
        {"streams": {"1": 50}, "turn": []},
    ],
)
def test_what_cannot_be_is_believed_in_nothing(fields):
    session = Session(epoch=0)
    heard = session.hear(answer(session, **fields), {1: 100}, {1: 100})
    assert heard is None or not any(heard.below.values())


def test_what_was_not_sent_is_not_durable_whatever_is_said():
    session = Session(epoch=0)
    heard = session.hear(answer(session, streams={"1": 90}), {1: 100}, {1: 60})
    assert heard.below == {1: 60}


PLAIN = st.sampled_from([None, True, 0, 1, 5, 6, 7, 9, 2**31, 2**32, -1, 0.5, "1", "x"])
JSON = st.one_of(
    PLAIN,
    st.lists(st.lists(PLAIN, max_size=4), max_size=4),
    st.dictionaries(st.sampled_from(["1", "2", "x", "-1"]), PLAIN, max_size=4),
)


@given(
    st.dictionaries(st.sampled_from(["turn", "streams", "holes", "goodbye", "session"]), JSON),
    st.booleans(),
)
def test_no_answer_raises_or_makes_durable_what_was_not_sent(fields, ours):
    session = Session(epoch=0)
    fields = {**fields, "session": session.id} if ours else fields
    heard = session.hear(json.dumps(fields).encode(), {1: 9, 2: 4}, {1: 6})
    assert heard is None or heard.below.get(1, 0) <= 6
    assert heard is None or heard.below.get(2, 0) == 0


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    session = Session(epoch=0)
    assert session.hear(data, {}, {}) is None
    Answers().feed(data)
    assert session.hear(b"[" * 100_000, {}, {}) is None


def test_an_answer_has_nothing_of_streams_that_this_client_does_not_have():
    session = Session(epoch=0)
    said = {"streams": {"1": 9, "2": 9}, "holes": [[1, 1, 1], [2, 1, 1], [3, 1, 1]]}
    heard = session.hear(answer(session, **said), {1: 9}, {1: 9})
    assert heard.below == {1: 9}
    assert heard.holes == {1: [Range(1, 1, 2)]}


def test_a_packet_longer_than_any_answer_is_the_last_that_is_heard():
    reader = Answers()
    assert reader.feed(option("tailrace.ack", {"x": "y" * 20_000})[:1000]) == []
    assert reader._pending == b""
    assert reader.feed(option("tailrace.ack", {})) == []


@given(st.lists(st.integers(0, 400), max_size=6))
def test_answers_are_read_however_they_are_cut(cuts):
    data = b"".join(
        [
            option("tailrace.ack", {"a": 1}),
            option("epoch", {"other": 2}),
            option("tailrace.ack", {"b": "x" * 200}),
            option("tailrace.ackn", {"c": 3}),
        ]
    )
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = Answers()
    found = [
        json.loads(value)
        for begin, end in pairwise(places)
        for value in reader.feed(data[begin:end])
    ]
    assert found == [{"a": 1}, {"b": "x" * 200}]


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x75\xd1\x1d\x4d\xff\xff\xff\xff",
        b"\x75\xd1\x1d\x4d\x00\x00\x00\x00",
        b"\x75\xd1\x1d\x4d\x00\x00\x00\x09",
        b"\x75\xd1\x1d\x4d\x01\x00\x00\x10" + bytes(8),
        bytes(20),
    ],
)
def test_behind_what_is_no_packet_nothing_is_heard_or_kept(garbage):
    reader = Answers()
    assert reader.feed(garbage) == []
    assert reader._pending == b""
    assert reader.feed(option("tailrace.ack", {})) == []
    assert reader._pending == b""


def test_an_event_may_be_longer_than_three_bytes_can_say():
    event = bytes.fromhex("c1fc1fb701000010") + bytes(2**24 + 8)
    assert Session(epoch=0).count(event + event) == 2


def test_the_shortest_and_the_longest_packets_are_read():
    nameless = bytes.fromhex("75d11d4d0000000a0000")
    empty = len(option("tailrace.ack", {"a": ""}))
    longest = option("tailrace.ack", {"a": "x" * (2**14 - empty)})
    reader = Answers()
    (value,) = reader.feed(nameless + longest)
    assert len(value) + 24 - 2 == len(longest) == 2**14
    assert reader.feed(option("tailrace.ack", {})) == [b"{}"]
    assert Answers().feed(option("tailrace.ack", {"a": "x" * (2**14 - empty + 1)})) == []
