"""Calls timed in short blocks, of which those count during which the machine was quickest.

The speed of a virtual machine may change by two within seconds, as its neighbours work or rest. So each
block of calls is timed between two readings of a yardstick, and the blocks with the best readings count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

ROUNDS = 8
"""How often all calls are made and flushed; less often where there are few."""
BLOCK_NS = 300_000
SHARE = 1 / 50
"""The part of a case's blocks that counts."""

Emit = Callable[[int], object]


class Calls(NamedTuple):
    """A case: what emits an event, what makes a span of nothing, and what waits for the rest."""

    event: Emit | None
    span: Emit | None
    flush: Callable[[], object]


class Block(NamedTuple):
    """Some calls: nanoseconds of a call's CPU time in its thread, and what the yardstick read."""

    call: float
    yardstick: float


class Cost(NamedTuple):
    """Nanoseconds of a call: CPU of its thread, CPU of all threads, and what one call in a thousand exceeds."""

    caller: float
    process: float
    stall: float


def cost_of(emit: Emit, flush: Callable[[], object], events: int) -> Cost:
    """Measure a call; the loop around it is measured, too, and taken off."""
    for number in range(events):
        emit(number)
    flush()
    caller = _quickest(emit, flush, events) - _quickest(_nothing, _nobody, events)
    process = _process_time(emit, flush, events) - _process_time(_nothing, _nobody, events)
    return Cost(caller, process, _slowest(emit, flush, events))


def _rounds(events: int) -> int:
    return max(1, min(ROUNDS, events // 500))


def _nothing(number: int) -> None:
    pass


def _nobody() -> None:
    pass


def _quickest(emit: Emit, flush: Callable[[], object], events: int) -> float:
    """Return the median of the calls in the blocks during which the machine was quickest."""
    blocks = sorted(_blocks(emit, flush, events), key=lambda block: block.yardstick)
    return median(block.call for block in blocks[: round(len(blocks) * SHARE) or 1])


def _process_time(emit: Emit, flush: Callable[[], object], events: int) -> float:
    """Return the CPU nanoseconds of all threads for a call."""
    before = time.process_time_ns()
    rounds = _rounds(events)
    for _ in range(rounds):
        for number in range(events):
            emit(number)
        flush()
    return (time.process_time_ns() - before) / events / rounds


def _blocks(emit: Emit, flush: Callable[[], object], events: int) -> list[Block]:
    """Make as many calls as `_process_time` does, in blocks that take about the same time."""
    begun = time.thread_time_ns()
    for number in range(events // 100):
        emit(number)
    size = max(10, BLOCK_NS * events // 100 // (time.thread_time_ns() - begun))
    flush()
    blocks = []
    for _ in range(_rounds(events)):
        reading = _yardstick()
        for first in range(0, events, size):
            numbers = range(first, min(first + size, events))
            begun = time.thread_time_ns()
            for number in numbers:
                emit(number)
            taken = (time.thread_time_ns() - begun) / len(numbers)
            before, reading = reading, _yardstick()
            blocks.append(Block(taken, max(before, reading)))
        flush()
    return blocks


def _yardstick() -> float:
    """Return the CPU time of some work of the interpreter that is always the same. It makes no calls: a
    profiler, which VizTracer is, would make them slower."""
    begun = time.thread_time_ns()
    for number in range(300):
        _ = (f"{number}", {"number": number}, number * 3)
    return time.thread_time_ns() - begun


def _slowest(emit: Emit, flush: Callable[[], object], events: int) -> float:
    times = []
    clock = time.perf_counter_ns
    for number in range(events):
        begun = clock()
        emit(number)
        times.append(clock() - begun)
    flush()
    times.sort()
    return times[-max(events // 1000, 1)]
