"""Emit events at a rate with one tool, and count them where SIGKILL cannot reach the count.

    python programs.py TOOL TARGET COUNT RATE SECONDS REPORT

COUNT is a file of 8 bytes that is mapped into memory. It has the number of the newest event, set before the tool gets
the event. After an orderly end, REPORT has what the tool reported inside the program, as JSON. Runs in the environment
that has the tool.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

Emit = Callable[[int], object]
Told = dict[str, object]
"""The tool's report: `missing` events, and whether it says that `more` may be missing."""


@contextmanager
def tailrace(target: str, told: Told) -> Iterator[Emit]:  # noqa: ARG001 - the collector reports
    import tailrace_client

    tailrace_client.connect(target)
    yield lambda number: tailrace_client.event("step", number=number)
    tailrace_client.close(10)


@contextmanager
def opentelemetry(target: str, told: Told) -> Iterator[Emit]:
    """Export spans to a file, a line each. The SDK counts what its queue has no room for, if its metrics are on."""
    os.environ["OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"] = "true"
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    file = Path(target).open("ab", 0)  # noqa: SIM115 - it stays open until the end of the process

    class Lines(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            file.write(b"".join(b"%d\n" % (span.attributes or {})["number"] for span in spans))
            return SpanExportResult.SUCCESS

    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader])
    provider = TracerProvider(meter_provider=meters)
    provider.add_span_processor(BatchSpanProcessor(Lines(), meter_provider=meters))
    tracer = provider.get_tracer("diagonal")

    def emit(number: int) -> None:
        with tracer.start_as_current_span("step", attributes={"number": number}):
            pass

    yield emit
    provider.shutdown()
    found = reader.get_metrics_data()
    points = [
        point
        for resource in (found.resource_metrics if found else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "otel.sdk.processor.span.processed"
        for point in metric.data.data_points
    ]
    told["missing"] = sum(p.value for p in points if p.attributes.get("error.type"))


@contextmanager
def viztracer(target: str, told: Told) -> Iterator[Emit]:
    """Keep events in VizTracer's ring of the default size. It warns without a number once it is full."""
    from viztracer import VizTracer

    tracer = VizTracer(max_stack_depth=0)
    tracer.start()
    yield lambda number: tracer.log_instant("step", args={"number": number})
    tracer.stop()
    with redirect_stdout(StringIO()) as said:
        tracer.save(target)
    told["more"] = "buffer is full" in said.getvalue()


@contextmanager
def syslog(target: str, told: Told) -> Iterator[Emit]:  # noqa: ARG001 - rsyslog reports
    host, _, port = target.rpartition(":")
    logger = logging.getLogger("diagonal")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.handlers.SysLogHandler((host, int(port))))
    yield lambda number: logger.info("step %d", number)


TOOLS = {tool.__name__: tool for tool in (tailrace, opentelemetry, viztracer, syslog)}
TURN = 2000
"""Maximum number of events between two looks at the clock."""


def main() -> None:
    tool, target, count, rate, seconds, report = sys.argv[1:]
    told: Told = {}
    with Path(count).open("r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    with TOOLS[tool](target, told) as emit:
        number, begun = 0, time.monotonic()
        while (passed := time.monotonic() - begun) < float(seconds):
            due = min(int(passed * int(rate)), number + TURN)
            while number < due:
                number += 1
                shared[0] = number
                emit(number)
            time.sleep(0.0005)
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
