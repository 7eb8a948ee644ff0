"""Run programs that are traced: real clients, whose spans are as long as a test wants."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

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
