"""Define the cases: an event and a span with one attribute, emitted by our client and by libraries that users choose
instead.

Our client sends to the address in the environment. The others do what is most similar, and send nothing: OpenTelemetry
exports to nothing, VizTracer keeps the events in memory, and logging writes to /dev/null.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.emitting.blocks import Calls

KEPT = 50_000
"""Number of events for which the library that is measured must have room."""
_FLUSH_SECONDS = 60
PURE = "TAILRACE_PURE"


@contextmanager
def ours() -> Iterator[Calls]:
    """Emit with the client of this repository.

    The environment decides whether its compiled or its Python recorder is used.
    """
    import tailrace_client
    from tailrace_client import event, span

    if not tailrace_client.compiled and not os.environ.get(PURE):
        raise ImportError("the client's compiled part is not built")
    emitter = tailrace_client.connect()

    def spanned(number: int) -> None:
        with span("step", cell=number):
            pass

    yield Calls(
        lambda number: event("step", cell=number), spanned, lambda: emitter.flush(_FLUSH_SECONDS)
    )
    tailrace_client.close(_FLUSH_SECONDS)
    if any(emitter.discarded.values()):
        raise RuntimeError(f"not a fair measurement: {emitter.discarded}")


@contextmanager
def opentelemetry() -> Iterator[Calls]:
    """Emit spans with OpenTelemetry's SDK, in batches that are exported to nothing."""
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
    provider.add_span_processor(BatchSpanProcessor(Nobody(), max_queue_size=KEPT))
    tracer = provider.get_tracer("benchmark")

    def spanned(number: int) -> None:
        with tracer.start_as_current_span("step", attributes={"cell": number}):
            pass

    yield Calls(None, spanned, provider.force_flush)
    provider.shutdown()


@contextmanager
def viztracer() -> Iterator[Calls]:
    """Log with VizTracer, which keeps the events in memory."""
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, max_stack_depth=0, tracer_entries=KEPT)
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
    """Log lines to /dev/null in the calling thread."""
    import logging

    with _logged(logging.FileHandler("/dev/null")) as calls:
        yield calls


@contextmanager
def logging_queue() -> Iterator[Calls]:
    """Put log lines into a queue, from which another thread writes them to /dev/null."""
    import logging
    import logging.handlers
    import queue

    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, logging.FileHandler("/dev/null"))
    listener.start()
    with _logged(logging.handlers.QueueHandler(records)) as calls:

        def flush() -> None:
            while not records.empty():
                time.sleep(0.01)

        yield calls._replace(flush=flush)
    listener.stop()


@contextmanager
def _logged(handler: object) -> Iterator[Calls]:
    import logging

    logger = logging.getLogger("benchmark")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)  # type: ignore[arg-type]
    yield Calls(lambda number: logger.info("step cell=%d", number), None, lambda: None)


@contextmanager
def least() -> Iterator[Calls]:
    """Do the least that any client must do, with compiled functions of the interpreter alone: keep an attribute, read
    the clock and, for a span, enter and leave a `with` block.
    """
    import threading

    clock, something = time.perf_counter_ns, threading.Lock()

    def event(number: int) -> None:
        dict(cell=number)  # noqa: C408 - a call with a keyword, as ours is
        clock()

    def spanned(number: int) -> None:
        dict(cell=number)  # noqa: C408 - a call with a keyword, as ours is
        clock()
        with something:
            pass
        clock()

    yield Calls(event, spanned, lambda: None)


CASES: dict[str, Callable[[], AbstractContextManager[Calls]]] = {
    case.__name__: case
    for case in (ours, opentelemetry, viztracer, logging_file, logging_queue, least)
}
