"""What an event and a span with one attribute cost the program that emits them.

Each case is a process of its own that runs the same loops. Ours send to the real daemon; `events` of
them at a time, which fit the buffer, and a flush after each, so nothing is discarded. The peers do
what comes nearest, and send nothing: OpenTelemetry exports to nobody, VizTracer keeps, logging writes
to /dev/null.
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
from typing import NamedTuple

from tests.system.collector import Collector

EVENTS = 20_000
ROUNDS = 8
RUNS = 3

Emit = Callable[[int], object]


class Calls(NamedTuple):
    """A case: what emits an event, what makes a span of nothing, and what waits for the rest."""

    event: Emit | None
    span: Emit | None
    flush: Callable[[], object]


class Cost(NamedTuple):
    """Nanoseconds: a call's CPU time in its thread, all of the process's for it, both without the
    loop's; and the time by the clock that one call in a thousand exceeds."""

    caller: float
    process: float
    slowest: float


def main() -> None:
    """All cases, the least of some runs of each; ratios are to the compiled client's span."""
    print(f"{'':38} {'caller ns':>10} {'process ns':>11} {'p99.9 us':>9}  {'to ours':>8}")
    with tempfile.TemporaryDirectory() as directory:
        collector = Collector(Path(directory)).start()
        try:
            addresses = {
                name: "{}://{}:{}".format(name, *collector.address(name)) for name in ("udp", "tcp")
            }
            for kind in ("event", "span"):
                costs = {
                    case: cost
                    for case in CASES
                    if (cost := least(case, kind, addresses.get(case.rpartition(" ")[2], "")))
                }
                ours = costs.get("compiled, tcp") or costs["pure Python, tcp"]
                for case, cost in costs.items():
                    print(
                        f"{f'{kind}: {case}':38} {cost.caller:10.0f} {cost.process:11.0f} "
                        f"{cost.slowest / 1000:9.1f}  {cost.process / ours.process:8.2f}"
                    )
        finally:
            collector.end()


def least(case: str, kind: str, address: str) -> Cost | None:
    """The least of each figure of some runs; None if the case has no such call or is not here."""
    environ = {"TAILRACE_ADDRESS": address, "TAILRACE_PURE": "1" if "pure" in case else ""}
    costs = []
    for _ in range(RUNS):
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks.emitting", case, kind],
            env=os.environ | environ, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        found = json.loads(output)
        if found is None:
            return None
        costs.append(found)
    return Cost(*map(min, zip(*costs, strict=True)))


def measure(case: str, kind: str) -> Cost | None:
    """One case, in this process."""
    try:
        with CASES[case]() as calls:
            emit = calls.span if kind == "span" else calls.event
            return cost_of(emit, calls.flush) if emit else None
    except ImportError:
        return None


def cost_of(emit: Emit, flush: Callable[[], object]) -> Cost:
    def nothing(number: int) -> None:
        pass

    for number in range(EVENTS):
        emit(number)
    flush()
    idle, _ = cpu(nothing, lambda: None)
    caller, process = cpu(emit, flush)
    times = []
    clock = time.perf_counter_ns
    for number in range(EVENTS):
        begun = clock()
        emit(number)
        times.append(clock() - begun)
    flush()
    times.sort()
    return Cost(caller - idle, process - idle, times[-EVENTS // 1000])


def cpu(emit: Emit, flush: Callable[[], object]) -> tuple[float, float]:
    """CPU nanoseconds a call: in this thread, the least of all rounds; in all, their mean."""
    numbers = range(EVENTS)
    least = float("inf")
    before = time.process_time_ns()
    for _ in range(ROUNDS):
        begun = time.thread_time_ns()
        for number in numbers:
            emit(number)
        least = min(least, (time.thread_time_ns() - begun) / EVENTS)
        flush()
    return least, (time.process_time_ns() - before) / EVENTS / ROUNDS


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
    "OpenTelemetry SDK, batches": opentelemetry,
    "VizTracer": viztracer,
    "logging, FileHandler": logging_file,
    "logging, QueueHandler": logging_queue,
}

if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
