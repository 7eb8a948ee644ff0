"""Time calls in short blocks, and use only the blocks during which the machine was fastest.

The speed of a virtual machine may change by a factor of two within seconds, because other machines on the host work or
rest. So some fixed work, the yardstick, is timed before and after each block of calls. The blocks with the shortest
times of the yardstick count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

ROUNDS = 8
"""Maximum number of rounds in which all calls are made and flushed. If there are few calls, fewer rounds are made."""
BLOCK_NS = 300_000
SHARE = 1 / 50
"""Share of the blocks of a case that count: those during which the machine was fastest."""

Emit = Callable[[int], object]


class Calls(NamedTuple):
    """A case: a function that emits an event, one that makes an empty span, and one that waits until all events are
    processed.

    A function that a library lacks is None.
    """

    event: Emit | None
    span: Emit | None
    flush: Callable[[], object]


class Block(NamedTuple):
    """A block of calls: the CPU time of a call in its thread (ns), and the longer of the two times of the yardstick
    around it (ns).
    """

    call: float
    yardstick: float


class Cost(NamedTuple):
    """The cost of a call in nanoseconds:

    CPU time of its thread, CPU time of all threads, and the duration that one call in a thousand exceeds.
    """

    caller: float
    process: float
    stall: float


def cost_of(emit: Emit, flush: Callable[[], object], events: int) -> Cost:
    """Measure a call. The loop around it is measured separately and subtracted."""
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
    """Return the median cost of a call in the blocks during which the machine was fastest."""
    blocks = sorted(_blocks(emit, flush, events), key=lambda block: block.yardstick)
    return median(block.call for block in blocks[: round(len(blocks) * SHARE) or 1])


def _process_time(emit: Emit, flush: Callable[[], object], events: int) -> float:
    """Return the CPU time (ns) of all threads of the process for each call."""
    before = time.process_time_ns()
    rounds = _rounds(events)
    for _ in range(rounds):
        for number in range(events):
            emit(number)
        flush()
    return (time.process_time_ns() - before) / events / rounds


def _blocks(emit: Emit, flush: Callable[[], object], events: int) -> list[Block]:
    """Make as many calls as `_process_time` does, in blocks that each take about the same time."""
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
    """Return the CPU time (ns) of some work of the interpreter that is always the same.

    It makes no calls, because a profiler such as VizTracer would make them slower.
    """
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
