"""What an event and a span with one attribute cost the program that emits them.

Each case is a process of its own that runs the same loops. Ours send to the real daemon; `EVENTS` of
them at a time, which fit the buffer, and a flush after that, so nothing is discarded. The peers do
what comes nearest, and send nothing: OpenTelemetry exports to nobody, VizTracer keeps, logging writes
to /dev/null.

The speed of a virtual machine may change by two within seconds, as its neighbours work or rest. So
calls are timed in short blocks, each between two readings of a yardstick, and the blocks with the best
readings count; `speed` tells how quick the machine was then beside its best in any case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.system.collector import Collector

EVENTS = 20_000
ROUNDS = 8
RUNS = 4
BLOCK_NS = 300_000
SHARE = 1 / 50
"""Of a case's blocks, those that count."""
PEER = "OpenTelemetry SDK, batches"

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


class Found(NamedTuple):
    """Of one process: blocks of calls and of empty loops; the CPU time of all threads for a call, in
    nanoseconds without the loop's; and the time by the clock that one call in a thousand exceeds."""

    blocks: list[Block]
    empty: list[Block]
    process: float
    slowest: float


class Cost(NamedTuple):
    """Nanoseconds, and what the yardstick read in the blocks of which `caller` is the median."""

    caller: float
    process: float
    slowest: float
    yardstick: float


def main() -> None:
    """All cases; ratios are of what the calling thread pays, to a span of OpenTelemetry's."""
    found: dict[tuple[str, str], list[Found]] = {}
    with tempfile.TemporaryDirectory() as directory:
        collector = Collector(Path(directory)).start()
        try:
            addresses = {
                name: "{}://{}:{}".format(name, *collector.address(name)) for name in ("udp", "tcp")
            }
            for _ in range(RUNS):
                for kind in ("event", "span"):
                    for case in CASES:
                        run = in_a_process(case, kind, addresses.get(case.rpartition(" ")[2], ""))
                        if run:
                            found.setdefault((kind, case), []).append(run)
        finally:
            collector.end()
    costs = {key: cost_of(runs) for key, runs in found.items()}
    best = min(cost.yardstick for cost in costs.values())
    peer = costs.get(("span", PEER))
    print(
        f"{'':38} {'caller ns':>10} {'process ns':>11} {'p99.9 us':>9} {'speed':>6}  to OpenTelemetry"
    )
    for (kind, case), cost in costs.items():
        ratio = f"1/{peer.caller / cost.caller:.1f}" if peer else ""
        print(
            f"{f'{kind}: {case}':38} {cost.caller:10.0f} {cost.process:11.0f} "
            f"{cost.slowest / 1000:9.1f} {best / cost.yardstick:6.0%}  {ratio}"
        )


def in_a_process(case: str, kind: str, address: str) -> Found | None:
    """None if the case has no such call or is not here."""
    environ = {"TAILRACE_ADDRESS": address, "TAILRACE_PURE": "1" if "pure" in case else ""}
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.emitting", case, kind],
        env=os.environ | environ, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = json.loads(output)
    if found is None:
        return None
    blocks, empty, process, slowest = found
    return Found([Block(*b) for b in blocks], [Block(*b) for b in empty], process, slowest)


def cost_of(runs: list[Found]) -> Cost:
    calls, reading = quickest([block for run in runs for block in run.blocks])
    loop, _ = quickest([block for run in runs for block in run.empty])
    process, slowest = min(run.process for run in runs), min(run.slowest for run in runs)
    return Cost(calls - loop, process, slowest, reading)


def quickest(blocks: list[Block]) -> Block:
    """Return the medians of the blocks during which the machine was quickest."""
    chosen = sorted(blocks, key=lambda block: block.yardstick)[: round(len(blocks) * SHARE) or 1]
    return Block(*map(median, zip(*chosen, strict=True)))


def measure(case: str, kind: str) -> Found | None:
    """One case, in this process."""
    try:
        with CASES[case]() as calls:
            emit = calls.span if kind == "span" else calls.event
            return found_of(emit, calls.flush) if emit else None
    except ImportError:
        return None


def found_of(emit: Emit, flush: Callable[[], object]) -> Found:
    def nothing(number: int) -> None:
        pass

    for number in range(EVENTS):
        emit(number)
    flush()
    idle = process_time(nothing, lambda: None)
    process = process_time(emit, flush)
    return Found(
        blocks_of(emit, flush),
        blocks_of(nothing, lambda: None),
        process - idle,
        slowest(emit, flush),
    )


def process_time(emit: Emit, flush: Callable[[], object]) -> float:
    """CPU nanoseconds of all threads for a call."""
    before = time.process_time_ns()
    for _ in range(ROUNDS):
        for number in range(EVENTS):
            emit(number)
        flush()
    return (time.process_time_ns() - before) / EVENTS / ROUNDS


def blocks_of(emit: Emit, flush: Callable[[], object]) -> list[Block]:
    """As many calls as `process_time` makes, in blocks that take about the same time."""
    begun = time.thread_time_ns()
    for number in range(EVENTS // 100):
        emit(number)
    size = max(10, BLOCK_NS * EVENTS // 100 // (time.thread_time_ns() - begun))
    flush()
    blocks = []
    for _ in range(ROUNDS):
        reading = yardstick()
        for first in range(0, EVENTS, size):
            numbers = range(first, min(first + size, EVENTS))
            begun = time.thread_time_ns()
            for number in numbers:
                emit(number)
            taken = (time.thread_time_ns() - begun) / len(numbers)
            before, reading = reading, yardstick()
            blocks.append(Block(taken, max(before, reading)))
        flush()
    return blocks


def yardstick() -> float:
    """CPU time of some work of the interpreter that is always the same. Without calls: a profiler,
    which VizTracer is, would make them slower."""
    begun = time.thread_time_ns()
    for number in range(300):
        _ = (f"{number}", {"number": number}, number * 3)
    return time.thread_time_ns() - begun


def slowest(emit: Emit, flush: Callable[[], object]) -> int:
    times = []
    clock = time.perf_counter_ns
    for number in range(EVENTS):
        begun = clock()
        emit(number)
        times.append(clock() - begun)
    flush()
    times.sort()
    return times[-EVENTS // 1000]


@contextmanager
def ours() -> Iterator[Calls]:
    import tailrace_client
    from tailrace_client import event, span

    if not tailrace_client.compiled and not os.environ.get("TAILRACE_PURE"):
        raise ImportError("the compiled part is not built")
    emitter = tailrace_client.connect()

    def spanned(number: int) -> None:
        with span("step", cell=number):
            pass

    yield Calls(lambda number: event("step", cell=number), spanned, lambda: emitter.flush(20))
    tailrace_client.close(20)
    if any(emitter.discarded.values()):
        raise RuntimeError(f"not a fair measurement: {emitter.discarded}")


@contextmanager
def opentelemetry() -> Iterator[Calls]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class Nobody(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nobody(), max_queue_size=2 * EVENTS))
    tracer = provider.get_tracer("benchmark")

    def spanned(number: int) -> None:
        with tracer.start_as_current_span("step", attributes={"cell": number}):
            pass

    yield Calls(None, spanned, provider.force_flush)
    provider.shutdown()


@contextmanager
def viztracer() -> Iterator[Calls]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, max_stack_depth=0, tracer_entries=2 * EVENTS)
    tracer.start()

    def spanned(_number: int) -> None:
        with tracer.log_event("step"):
            pass

    yield Calls(
        lambda number: tracer.log_instant("step", args={"cell": number}), spanned, tracer.clear
    )
    tracer.stop()


@contextmanager
def logging_file() -> Iterator[Calls]:
    import logging

    with logged(logging.FileHandler("/dev/null")) as calls:
        yield calls


@contextmanager
def logging_queue() -> Iterator[Calls]:
    import logging
    import logging.handlers
    import queue

    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, logging.FileHandler("/dev/null"))
    listener.start()
    with logged(logging.handlers.QueueHandler(records)) as calls:

        def flush() -> None:
            while not records.empty():
                time.sleep(0.01)

        yield calls._replace(flush=flush)
    listener.stop()


@contextmanager
def logged(handler: object) -> Iterator[Calls]:
    import logging

    logger = logging.getLogger("benchmark")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)  # type: ignore[arg-type]
    yield Calls(lambda number: logger.info("step cell=%d", number), None, lambda: None)


CASES: dict[str, Callable[[], AbstractContextManager[Calls]]] = {
    "off, compiled": ours,
    "off, pure Python": ours,
    "compiled, udp": ours,
    "compiled, tcp": ours,
    "pure Python, udp": ours,
    "pure Python, tcp": ours,
    PEER: opentelemetry,
    "VizTracer": viztracer,
    "logging, FileHandler": logging_file,
    "logging, QueueHandler": logging_queue,
}

if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
