"""A recorder, a session, a queue and their link beside a model of a collector, over networks that lose,
double and reorder in both directions, with buffers that are too small: whatever is called delivered is
stored."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from clients.python.tests.model_collector import Connections, Datagrams, World
from tailrace_client import _backoff
from tailrace_client._link import Link
from tailrace_client._recording import Recorder
from tailrace_client._session import Session

PATIENCE = 120.0
"""Seconds of virtual time in which a good network has to settle everything."""


@pytest.fixture(autouse=True)
def _certain(monkeypatch):
    """A seed is a course: the one chance of the client's own is taken away."""
    monkeypatch.setattr(_backoff, "_chance", lambda: 0.0)


class Course:
    """A client in a world."""

    def __init__(self, seed, network, *, limit, chunk):
        self.rng = random.Random(seed)
        self.world = World(self.rng)
        self.network = network(self.world, chunk)
        self.recorder = Recorder(
            lambda: 0, 0, limit=limit, chunk=chunk, started=lambda: None, filled=lambda: None
        )
        session = Session(epoch=0, process="p")
        self.link = Link(
            self.network, session, self.recorder, room=limit // 2, clock=self.world.clock
        )
        self.recorded = set()
        self.marks = []
        """Flushes that wait: their position, and what they are to find stored."""
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
        """The one thing that matters. What is lost is known and stays so."""
        waiting = []
        for position, recorded in self.marks:
            if not self.link.is_settled(position):
                waiting.append((position, recorded))
                continue
            delivered = not self.link.has_lost(position)
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
        """In a good network: everything is settled, and the end of the session is known."""
        if not self.recorded:
            return
        self.world.bad = False
        self.world.start()
        self.flush()
        position = self.marks[-1][0]
        self.link.end()
        deadline = self.world.now + PATIENCE
        while not self.link.has_ended(position):
            self.step()
            assert self.world.now < deadline, "a good network, and it never ends"
        self.check()
        assert not self.marks
        session, numbers = self.world.collector.only, self.recorder.next_numbers()
        assert session.goodbye
        said = {
            stream: number for f in session.farewells for stream, number in f["streams"].items()
        }
        assert said == {str(stream): number for stream, number in numbers.items()}
        missing, lost = self.recorded - session.stored, self.recorder.discarded["lost"]
        assert self.link.has_lost(position) == bool(lost)
        # A datagram may arrive after all when nobody waits for it any more.
        assert lost == len(missing) or (self.network.datagrams and lost > len(missing))


@pytest.mark.parametrize("network", [Datagrams, Connections])
@settings(max_examples=150, deadline=None)
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
def test_the_courses_show_both_verdicts_and_events_that_are_lost(network):
    """Else the property above would hold of nothing."""
    verdicts, missing = [], 0
    for seed in range(20):
        course = Course(seed, network, limit=[2_000, 2**20][seed % 2], chunk=200)
        course.run(200, 5)
        course.end()
        verdicts += course.verdicts
        missing += len(course.recorded - course.world.collector.stored)
    assert min(verdicts.count(True), verdicts.count(False), missing) > 10
