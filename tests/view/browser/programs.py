"""Run programs that are traced: real clients, whose spans are as long as a test wants."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from random import Random

from tailrace.clock import SystemClock
from tailrace.demo.binary import epoch, event
from tailrace_client import Emitter, _emitter

MILLISECOND = 1_000_000
STEP = 10 * MILLISECOND


class Unwritable:
    """A value that no client can write. The event with it gets a number, and is discarded and reported."""

    def __str__(self):
        raise ValueError("this event is lost on purpose")


def simulate(
    address, *, steps=60, solve=2 * MILLISECOND, lost_at=(), lost=5, names=("assemble", "solve")
):
    """Run a simulation with steps of 10 ms.

    Lose `lost` events after some of the steps. Return the time of the first step (Unix ns).
    """
    emitter = Emitter(address, process="simulation")
    emitter.use_stream(0)
    begin = time.monotonic_ns()
    time.sleep(steps * STEP / 1e9)
    for number in range(steps):
        at = begin + number * STEP
        assemble, solver = names
        emitter.write(assemble, at + MILLISECOND, at + 3 * MILLISECOND, {"cells": 64})
        emitter.write(
            solver,
            at + 4 * MILLISECOND,
            at + 4 * MILLISECOND + solve,
            {"iterations": 12 + number % 5},
        )
        emitter.write("step", at, at + 9 * MILLISECOND, {"number": number})
        emitter.write(
            "checkpoint", at + 9 * MILLISECOND, at + 9 * MILLISECOND, {}
        ) if number % 10 == 9 else None
        if number in lost_at:
            for _ in range(lost):
                emitter.write("lost", at, at, {"value": Unwritable()})
    assert emitter.close(30)
    return emitter.epoch + begin - _emitter._IMPORTED


@contextmanager
def emitting(address, *, pause=0.02):
    """Run a program beside the test until the `with` block ends. It holds a span open."""
    over = threading.Event()
    emitter = Emitter(address, process="worker")

    def work():
        emitter.use_stream(7)
        with emitter.span("whole run"):
            while not over.wait(pause):
                with emitter.span("tick", size=3):
                    pass
                emitter.counter("queue length", time.monotonic_ns() % 100)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield emitter
    finally:
        over.set()
        thread.join()
        emitter.close(30)


FLOW_STREAMS = 4
FLOW_NAMES = ("assemble", "exchange", "output", "solve")
BURST_SECONDS = 0.01


class Flow(threading.Thread):
    """Sends `rate` Heph events a second over TCP, in several streams, until `over` is set.

    A share of the events is left out: the share `lost` or, in the second `burst` of the flow, `lost_in_burst`. The last
    event of each stream is sent.
    """

    def __init__(self, address, rate, *, lost=0.03, burst=4, lost_in_burst=0.6):
        super().__init__()
        self.over = threading.Event()
        self.left_out = 0
        self.burst_over = False
        self._address = address
        self._rate = rate
        self._lost, self._burst, self._lost_in_burst = lost, burst, lost_in_burst

    def run(self):
        random = Random(1)
        begun = SystemClock().wall_ns()
        counters = [0] * FLOW_STREAMS
        done = 0
        with socket.create_connection(self._address) as sock:
            sock.sendall(epoch(begun))
            while not self.over.wait(BURST_SECONDS):
                due = (SystemClock().wall_ns() - begun) * self._rate // 10**9
                sock.sendall(b"".join(self._events(random, counters, done, due)))
                done = due
                self.burst_over = due > (self._burst + 2) * self._rate
            self._lost = 0
            sock.sendall(b"".join(self._events(random, counters, done, done + FLOW_STREAMS)))

    def _events(self, random, counters, first, behind):
        for number in range(first, behind):
            start = number * 10**9 // self._rate
            length = 10**9 // self._rate * 7 // 10
            stream = number % FLOW_STREAMS
            lost = self._lost_in_burst if start // 10**9 == self._burst else self._lost
            if random.random() < lost:
                self.left_out += 1
            else:
                name = FLOW_NAMES[number // 97 % len(FLOW_NAMES)]
                yield event(stream, counters[stream], start, start + length, name, {})
            counters[stream] += 1


@contextmanager
def flowing(address, rate):
    flow = Flow(address, rate)
    flow.start()
    try:
        yield flow
    finally:
        flow.over.set()
        flow.join()
