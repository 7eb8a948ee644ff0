"""Test a recorder, a session, a queue and their link with a model of a collector, over networks that lose, duplicate
and reorder data in both directions, and with buffers that are too small: all events that the client calls delivered are
stored."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings, strategies as st

from clients.python.tests.collectors import option
from clients.python.tests.model_collector import Connections, Datagrams, World
from clients.python.tests.reader import Event, packets
from tailrace_client import _settlement
from tailrace_client._link import Link
from tailrace_client._recording import Recorder
from tailrace_client._session import Session

PATIENCE = 120.0
"""Virtual time (seconds) within which all events must be settled (durable or lost) if the network has no faults."""


@pytest.fixture(autouse=True)
def _certain(monkeypatch):
    """Switch off the client's own random numbers, so that a seed determines the whole course of a test."""
    monkeypatch.setattr(_settlement, "_chance", lambda: 0.0)


class Course:
    """A random course of events with one client, a network and a collector."""

    def __init__(self, seed, network, *, limit, chunk, asks=True, places=10**6):
        """`places` is the number of streams whose numbers the collector checks. The client has two streams."""
        self.rng = random.Random(seed)
        self.world = World(self.rng, places)
        self.network = network(self.world, chunk)
        self.recorder = Recorder(
            lambda: 0, 0, limit=limit, chunk=chunk, started=lambda: None, filled=lambda: None
        )
        session = Session(epoch=0, process="p", asks=asks)
        self.link = Link(
            self.network, session, self.recorder, room=limit // 2, clock=self.world.clock
        )
        self.recorded = set()
        self.marks = []
        """Flushes that wait: the position of each in the queue, and the events that must be stored when it succeeds."""
        self.verdicts = []

    @property
    def discarded(self):
        return sum(self.recorder.discarded.values())

    def emit(self, count):
        stream = self.rng.randint(1, 2)
        self.recorder.use_stream(stream)
        for _ in range(count):
            before, number = self.discarded, self.recorder.next_numbers().get(stream, 0)
            self.recorder.event("x", text="y" * self.rng.randint(0, 60))
            if self.discarded == before:
                self.recorded.add((stream, number))
        self.link.fresh = True
        if self.rng.random() < 0.5:
            self.link.push(4)

    def flush(self):
        self.link.gather()
        self.link.hurry()
        self.marks.append((self.link.queue.put_bytes, set(self.recorded)))

    def step(self):
        self.world.advance(self.network)
        if self.link.is_due():
            try:
                self.network.open()
            except OSError as error:
                self.link.missed(error)
            else:
                self.link.greet()
        self.link.attend()
        self.check()

    def check(self):
        """Check each flush that is settled: if the client reports no loss, all events recorded before the flush are
        stored."""
        waiting = []
        for position, recorded in self.marks:
            if not self.link.fate.is_settled(position):
                waiting.append((position, recorded))
                continue
            delivered = not self.link.fate.has_lost(position)
            self.verdicts.append(delivered)
            assert not delivered or recorded <= self.world.collector.stored
        self.marks = waiting

    def run(self, steps, rate):
        for _ in range(steps):
            chance = self.rng.random()
            if chance < 0.02:
                self.flush()
            elif chance < 0.03 and self.world.up:
                self.world.kill(self.network)
            elif chance < 0.08 and not self.world.up:
                self.world.start()
            elif chance < 0.5:
                self.emit(self.rng.randint(1, rate))
            self.step()

    def end(self):
        """Let the network be without faults until all events are settled and the end of the session is known. Return
        whether every event is accounted for."""
        if not self.recorded:
            return True
        self.world.bad = False
        self.world.start()
        self.flush()
        position = self.marks[-1][0]
        self.link.end()
        deadline = self.world.now + PATIENCE
        while not self.link.fate.has_ended(position):
            self.step()
            assert self.world.now < deadline, "a good network, and it never ends"
        self.check()
        assert not self.marks
        session, numbers = self.world.collector.only, self.recorder.next_numbers()
        assert session.goodbye
        said = {}
        for farewell in session.farewells:
            for stream, number in farewell["streams"].items():
                said[stream] = max(number, said.get(stream, 0))
        assert said == {str(stream): number for stream, number in numbers.items()}
        missing, lost = self.recorded - session.stored, self.recorder.discarded["lost"]
        uncounted = self.recorder.discarded["uncounted"]
        assert self.link.fate.has_lost(position) == bool(lost + uncounted)
        missing = {event for event in missing if event[0] in session.counted}
        if session.places == 1 and len(numbers) > 1:
            # The collector does not check the numbers of this stream, so the client must not call it delivered.
            (stream,) = numbers.keys() - {*session.counted}
            emitted = sum(event[0] == stream for event in self.recorded)
            return uncounted + lost >= emitted
        # A datagram may arrive although the client has already counted its events as lost.
        assert lost == len(missing) or (self.network.datagrams and lost > len(missing))
        return True


@pytest.mark.parametrize("network", [Datagrams, Connections])
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from([2_000, 20_000, 2**20]),
    chunk=st.sampled_from([200, 1432]),
    rate=st.sampled_from([1, 5, 30]),
)
def test_whatever_is_called_delivered_is_stored(network, seed, limit, chunk, rate):
    course = Course(seed, network, limit=limit, chunk=chunk)
    course.run(200, rate)
    course.end()


@pytest.mark.parametrize("network", [Datagrams, Connections])
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from([2_000, 20_000, 2**20]),
    rate=st.sampled_from([1, 5, 30]),
)
def test_of_a_stream_that_is_not_counted_nothing_is_called_delivered(network, seed, limit, rate):
    """The client does not wait for such a stream either: all events are settled in the end."""
    course = Course(seed, network, limit=limit, chunk=200, places=1)
    course.run(200, rate)
    assert course.end()


class Listening(Datagrams):
    """A network that keeps the sent datagrams."""

    def __init__(self, world, chunk_bytes):
        super().__init__(world, chunk_bytes)
        self.sent = []

    def send(self, pieces):
        size = super().send(pieces)
        if size:
            self.sent.append(packets(b"".join(pieces)))
        return size


@pytest.mark.parametrize("seed", range(20))
def test_a_datagram_that_says_more_than_new_events_announces_its_session(seed):
    """Otherwise, a collector that receives the datagram after another program has begun at the address would assign it
    to that program."""
    course = Course(seed, Listening, limit=20_000, chunk=200)
    course.run(200, 5)
    course.end()
    seen, more = set(), 0
    for said in course.network.sent:
        numbers = {(p.stream, p.counter) for p in said if isinstance(p, Event)}
        words = {p.name for p in said if not isinstance(p, Event)}
        if numbers & seen or words & {"tailrace.report", "tailrace.goodbye"}:
            more += 1
            assert [getattr(p, "name", None) for p in said[:2]] == ["epoch", "tailrace.session"]
        seen |= numbers
    assert more


@pytest.mark.parametrize("limit", [2_000, 2**20])
def test_a_client_that_gives_up_announces_the_session_with_its_goodbye(limit):
    course = Course(1, Listening, limit=limit, chunk=200)
    course.run(50, 5)
    course.link.end()
    course.link.give_up(ended=False)
    said = course.network.sent[-1]
    names = [getattr(p, "name", None) for p in said]
    assert names == ["epoch", "tailrace.session", "tailrace.goodbye"]


@pytest.mark.parametrize("network", [Datagrams, Connections])
def test_the_courses_show_both_verdicts_and_events_that_are_lost(network):
    """Otherwise, the property tested above could hold only because nothing was lost."""
    verdicts, missing = [], 0
    for seed in range(20):
        course = Course(seed, network, limit=[2_000, 2**20][seed % 2], chunk=200)
        course.run(200, 5)
        course.end()
        verdicts += course.verdicts
        missing += len(course.recorded - course.world.collector.stored)
    assert min(verdicts.count(True), verdicts.count(False), missing) > 10


class Calm(Course):
    """A client in a network without faults. Time passes and answers arrive only when the test says so."""

    def __init__(self, network, *, asks=True, limit=2**20):
        super().__init__(1, network, limit=limit, chunk=1432, asks=asks)
        self.world.bad = False
        self.recorder.use_stream(1)

    @property
    def collector(self):
        return self.world.collector.only

    def connect(self):
        self.network.open()
        self.link.greet()

    def record(self, **attributes):
        self.recorder.event("x", **attributes)
        self.link.fresh = True

    def arrive(self):
        """Let all sent data arrive."""
        self.world.now += 0.01
        self.network.carry()

    def reply(self, answer=None):
        """Let the collector store all data that has arrived, and let the client read its answer."""
        self.arrive()
        self.world.collector.commit()
        self.network.answer(answer or self.world.collector.answer(64))
        self.world.now += 0.01
        while self.network.back:
            self.link.attend()


@pytest.fixture(params=[Datagrams, Connections])
def calm(request):
    return Calm(request.param)


def test_without_events_nobody_connects_and_the_thread_sleeps(calm):
    assert not calm.link.is_due()
    assert calm.link.attend() is None
    calm.record()
    assert calm.link.is_due()
    assert calm.link.attend() == 0
    calm.link.missed(OSError(errno.ECONNREFUSED, "Connection refused"))
    assert not calm.link.is_due()
    assert calm.link.attend() > 0
    assert calm.link.last_error == "Connection refused"


def test_an_event_is_sent_by_the_call_that_pushes_it(calm):
    calm.connect()
    calm.record()
    calm.link.push(4)
    calm.arrive()
    assert calm.collector.heard == {(1, 0)}


def test_a_push_makes_one_call_to_listen():
    calm = Calm(Datagrams)
    calm.connect()
    calm.record()
    for _ in range(3):
        calm.network.answer(b"no answer")
    calm.world.now += 1
    calm.link.push(4)
    assert len(calm.network.back) == 2


class Full(Datagrams):
    """A network whose send buffer is full."""

    calls = 0

    def send(self, _):
        self.calls += 1
        return 0


def test_where_the_kernel_has_no_room_nothing_more_is_tried():
    calm = Calm(Full)
    calm.connect()
    calm.record()
    for _ in range(2):
        calm.link.push(4)
        assert calm.link.blocked
        assert calm.network.calls == 1


@pytest.mark.parametrize("asks", [True, False])
def test_a_turn_begins_with_each_connection_but_the_first_where_answers_are_wanted(asks):
    calm = Calm(Connections, asks=asks)
    for turn in range(3):
        calm.connect()
        calm.record()
        calm.link.attend()
        calm.arrive()
        calm.world.collector.commit()
        assert calm.collector.turn == (turn if asks else 0)
        calm.network.broken()
        calm.link.attend()
        assert not calm.link.is_open


@pytest.fixture
def reconnected():
    """Return a client whose connection broke after an answer of the collector, and which has connected again and
    recorded one more event."""
    calm = Calm(Connections)
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.reply()
    assert calm.collector.stored == {(1, 0)}
    calm.network.broken()
    calm.link.attend()
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.arrive()
    assert not calm.collector.heard
    return calm


def test_on_a_new_connection_new_events_wait_for_the_answer_of_its_turn(reconnected):
    id_ = reconnected.link.dialogue.id
    stale = {"session": id_, "turn": 0, "streams": {"1": 1}, "holes": [], "goodbye": False}
    reconnected.reply(option("tailrace.ack", stale))
    reconnected.arrive()
    assert not reconnected.collector.heard
    reconnected.reply()
    reconnected.arrive()
    assert reconnected.collector.heard == {(1, 1)}


def test_new_events_wait_no_longer_for_an_answer_that_does_not_come(reconnected):
    reconnected.world.now += PATIENCE
    assert reconnected.link.attend() > 0
    reconnected.arrive()
    assert reconnected.collector.heard == {(1, 1)}


class Cut(Connections):
    """Connections that each carry a limited number of bytes and then break. The answers of the collector arrive `late`
    seconds later."""

    late = 0.0

    def open(self):
        super().open()
        self.left = self.world.rng.randint(*self.carries)
        self.answers = []

    def carry(self):
        if not self.is_open or self.reset:
            return
        for at, data in list(self.answers):
            if at <= self.world.now:
                self.answers.remove((at, data))
                super().answer(data)
        there, self.there = self.there, self.there[: self.left]
        super().carry()
        self.left -= min(len(there), self.left)
        self.there = bytearray()
        if not self.left:
            self.reset = True
            self.back.clear()

    def answer(self, data):
        self.answers.append((self.world.now + self.late, data))


@pytest.mark.parametrize("late", [0.0, 3.0], ids=["in time", "late"])
@pytest.mark.parametrize("carries", [(2_000, 4_000), (2_000, 120_000)], ids=str)
def test_each_connection_goes_further_than_the_one_before_however_soon_it_breaks(carries, late):
    """This also holds from the first connection on, before any collector has answered."""
    network = type("Network", (Cut,), {"carries": carries, "late": late})
    course = Course(1, network, limit=2**20, chunk=64 * 1024)
    course.world.bad = False
    course.world.start()
    course.recorder.use_stream(1)
    for number in range(2_000):
        course.recorder.event("x", text="y" * 40)
        course.recorded.add((1, number))
    course.link.fresh = True
    course.flush()
    course.link.end()
    (position, _), *_ = course.marks
    fewest = 2_000 * 100 // carries[1]
    while not course.link.fate.has_ended(position):
        course.step()
        assert course.link.connections < 10 + 4 * 2_000 * 100 // carries[0], "it is stuck"
    assert course.link.connections > fewest
    assert course.world.collector.stored >= course.recorded


def test_where_no_answers_are_wanted_a_goodbye_that_is_sent_is_the_end():
    calm = Calm(Connections, asks=False)
    calm.connect()
    calm.record()
    calm.link.end()
    position = calm.link.queue.put_bytes
    assert not calm.link.fate.has_ended(position)
    calm.link.attend()
    assert calm.link.fate.has_ended(position)


def test_an_answer_to_an_earlier_goodbye_does_not_keep_the_next_one_unsaid(calm):
    calm.connect()
    for _ in range(2):
        calm.record()
        calm.link.end()
        said = {"turn": 0, "streams": {}, "holes": [], "goodbye": True}
        calm.reply(option("tailrace.ack", said | {"session": calm.link.dialogue.id}))
        calm.link.end_unanswered()
        calm.arrive()
        calm.world.collector.commit()
    assert calm.collector.farewells[-1]["streams"] == {"1": 2}


@pytest.mark.parametrize("answered", [True, False])
def test_a_connection_that_breaks_while_sending_says_why_and_is_closed(answered):
    calm = Calm(Connections)
    calm.network.refusal = "is it a collector?"
    calm.connect()
    calm.record()
    calm.link.attend()
    if answered:
        calm.reply()
    calm.network.back += b"x"
    calm.network.reset = True
    calm.record()
    calm.link.push(4)
    question = "" if answered else "; is it a collector?"
    assert calm.link.last_error == f"Connection reset by peer{question}"
    calm.network.open()
    assert not calm.link.is_open


class Narrow(Datagrams):
    """A network that refuses long datagrams."""

    def send(self, pieces):
        if len(b"".join(pieces)) > 600:
            raise OSError(errno.EMSGSIZE, "Message too long")
        return super().send(pieces)


def test_events_that_the_kernel_never_takes_are_counted_and_named():
    calm = Calm(Narrow)
    calm.connect()
    calm.record(text="y" * 800)
    calm.link.attend()
    calm.record()
    calm.link.attend()
    calm.reply()
    assert calm.recorder.discarded["refused"] == 1
    assert calm.collector.reported == {(1, 0)}
    assert calm.collector.stored == {(1, 1)}
    assert calm.link.fate.is_settled(calm.link.queue.put_bytes)


def test_events_of_a_stream_that_is_not_counted_are_discarded_and_waited_for_no_longer(calm):
    calm.connect()
    for stream in (1, 2, 2):
        calm.recorder.use_stream(stream)
        calm.record()
    calm.link.attend()
    said = {"turn": 0, "streams": {"1": 1}, "holes": [], "goodbye": False, "uncounted": [2]}
    calm.reply(option("tailrace.ack", said | {"session": calm.link.dialogue.id}))
    position = calm.link.queue.put_bytes
    assert calm.link.fate.is_settled(position)
    assert calm.link.fate.has_lost(position)
    assert not calm.link.queue.unsettled
    assert calm.recorder.discarded["uncounted"] == 2
    assert calm.recorder.discarded["lost"] == 0


@pytest.mark.parametrize("kept", [True, False])
def test_events_that_the_collector_has_given_up_are_discarded_once(calm, kept):
    """The collector may report this several times, and in any order. With `kept`, no other answer has acknowledged the
    events."""
    calm.connect()
    for _ in range(3):
        calm.record()
    calm.link.attend()
    said = {"turn": 0, "streams": {"1": 3}, "holes": [], "goodbye": False}
    said["session"] = calm.link.dialogue.id
    if not kept:
        calm.reply(option("tailrace.ack", said))
        assert not calm.link.fate.has_lost(calm.link.queue.put_bytes)
    for events in (1, 2, 1, 2):
        calm.reply(option("tailrace.ack", said | {"given_up": {"1": events}}))
    assert calm.recorder.discarded["given_up"] == 2
    assert calm.link.fate.has_lost(calm.link.queue.put_bytes)
    assert calm.link.fate.is_settled(calm.link.queue.put_bytes)


@pytest.mark.parametrize("ended", [True, False])
def test_who_gives_up_counts_what_was_not_answered_for(calm, ended):
    """A last datagram states the next event number of each stream, unless the collector has already acknowledged the
    end."""
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.arrive()
    calm.link.end()
    calm.link.give_up(ended=ended)
    assert calm.recorder.discarded["closed"] == 1
    assert calm.recorder.discarded["lost"] == 0
    calm.arrive()
    calm.world.collector.commit()
    assert calm.collector.goodbye == (calm.network.datagrams and not ended)


def test_what_nobody_got_goes_to_whoever_comes_next():
    """Before any collector has answered, the client sends the event again without being asked."""
    calm = Calm(Datagrams)
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.world.up = False
    calm.arrive()
    calm.world.up = True
    for _ in range(20):
        calm.world.now += PATIENCE
        calm.link.attend()
        calm.arrive()
    assert calm.collector.heard == {(1, 0)}


def test_datagrams_with_events_announce_the_session_until_the_collector_answers():
    """Without an announcement of the session, the collector would assign the events to the program that used the
    address before."""
    calm = Calm(Datagrams)
    calm.connect()
    for _ in range(20):
        calm.record()
        calm.link.push(4)
        assert b"tailrace.session" in calm.network.there[-1][2]
        assert calm.network.there[-1][2].count(b"x") > 0
    calm.reply()
    calm.record()
    calm.link.push(4)
    assert b"tailrace.session" not in calm.network.there[-1][2]


@pytest.mark.parametrize("given_up", [False, True])
def test_a_goodbye_in_datagrams_reaches_a_collector_that_has_forgotten_the_address(given_up):
    calm = Calm(Datagrams)
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.reply()
    assert calm.link.fate.is_settled(calm.link.queue.put_bytes)
    calm.world.collector.peer = None
    calm.link.end()
    if given_up:
        calm.link.give_up(ended=False)
    else:
        calm.link.attend()
    calm.arrive()
    calm.world.collector.commit()
    assert calm.collector.goodbye


def test_an_event_too_long_for_a_datagram_with_the_announcement_follows_it():
    calm = Calm(Datagrams)
    calm.connect()
    calm.record(text="y" * 5000)
    calm.link.push(8)  # do not call `attend`, which would send all data
    *announcements, event = (data for _, _, data in sorted(calm.network.there))
    assert announcements
    assert all(b"tailrace.session" in data and len(data) < 1432 for data in announcements)
    assert b"tailrace.session" not in event
    calm.reply()
    assert calm.collector.stored == {(1, 0)}


def test_where_nobody_is_a_goodbye_behind_events_asks_for_no_announcement_of_its_own():
    """The events wait until a process listens, and so does the goodbye (the packet that ends the session)."""
    calm = Calm(Datagrams)
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.network.there.clear()
    calm.link.end()
    calm.link._nobody = True
    calm.record()
    calm.link._farewell.want()
    calm.link.queue.last_packets(calm.link._farewell.send(0, 0, calm.world.now))
    calm.link._push(-1)
    assert not calm.network.there


@pytest.mark.parametrize("network", [Datagrams, Connections])
def test_what_is_forgotten_of_a_stream_of_which_nothing_came_is_lost(network):
    """The collector does not know the stream, so its answer to the announcement alone cannot contain the stream."""
    calm = Calm(network, limit=2_000)
    calm.connect()
    calm.record()
    calm.link.attend()
    calm.reply()
    for stream in range(2, 42):
        calm.recorder.use_stream(stream)
        calm.record(text="y" * 100)
        calm.link.attend()
        calm.network.there.clear()
        calm.world.now += 1
    assert calm.link.queue.forgotten.spans(2) == [(0, 1)]
    calm.network.broken()
    deadline = calm.world.now + PATIENCE
    while not calm.link.fate.is_settled(calm.link.queue.put_bytes):
        assert calm.world.now < deadline, "a good network, and it never ends"
        calm.step()
    assert calm.link.fate.has_lost(calm.link.queue.put_bytes)
    stored = calm.collector.stored
    lost = {(stream, 0) for stream in range(2, 42)} - stored
    assert calm.recorder.discarded["lost"] == len(lost) > 30
    calm.link.attend()
    calm.arrive()
    calm.collector.commit()
    assert calm.collector.reported == lost
    assert not calm.collector.goodbye
