"""A program that OpenTelemetry instruments, in the table of a real daemon: whole, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import tailrace
from clients.python.tests.reader import events
from tests.cli.command import run
from tests.system.test_contexts import OPEN

BEGINNING = """
import os, signal, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
import tailrace_client
from tailrace_client.otel import SpanProcessor

provider = TracerProvider(span_limits=SpanLimits(max_events=2))
provider.add_span_processor(SpanProcessor())
tracer = provider.get_tracer("solver")
caller = TraceContextTextMapPropagator().extract({"traceparent": os.environ["TRACEPARENT"]})
"""
WHOLE = (
    BEGINNING
    + """
with tracer.start_as_current_span("serve", context=caller) as serve:
    for number in range(3):
        with tracer.start_as_current_span("step", attributes={"number": number}):
            pass
    try:
        with tracer.start_as_current_span("fail"):
            raise ValueError("no such cell")
    except ValueError:
        pass
    for _ in range(5):
        serve.add_event("residual", {"norm": 0.5})
if os.fork() == 0:
    with tracer.start_as_current_span("child", context=trace.set_span_in_context(serve)):
        pass
    sys.exit()
os.wait()
"""
)
KILLED = (
    BEGINNING
    + """
with tracer.start_as_current_span("serve", context=caller):
    with tracer.start_as_current_span("ended"):
        pass
    with tracer.start_as_current_span("step", links=[trace.Link(serve)] if (serve := trace.get_current_span().get_span_context()) else []):
        assert tailrace_client.flush(60)
        os.kill(os.getpid(), signal.SIGKILL)
"""
)
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def traced(collector, transport, program, pure):
    host, port = collector.address(transport)
    environ = {
        "PYTHONPATH": ":".join(sys.path),
        "TAILRACE_ADDRESS": f"{transport}://{host}:{port}",
        "TAILRACE_PURE": pure,
        "TRACEPARENT": f"00-{TRACE}-{CALLER}-01",
    }
    status = subprocess.run(
        [sys.executable, "-c", program], env=environ, timeout=60, check=False
    ).returncode
    collector.settle()
    return status


def test_spans_keep_their_ids_and_what_the_sdk_drops_is_missing_with_its_reason(collector_of, tmp_path):  # fmt: skip
    collector = collector_of()
    for pure in ("", "1"):
        assert traced(collector, "tcp", WHOLE, pure) == 0
    with tailrace.open(collector.store) as store:
        spans = list(store.sql('SELECT * FROM spans ORDER BY start, "end" DESC'))
        by_name = {}
        for span in spans:
            by_name.setdefault(span["name"], []).append(span)
        assert {name: len(each) for name, each in by_name.items()} == {
            "serve": 2, "step": 6, "fail": 2, "exception": 2, "residual": 4, "child": 2, "otel.start": 12,
        }  # fmt: skip
        serves = {span["attributes"]["span_id"] for span in by_name["serve"]}
        for name in ("step", "fail", "residual", "child"):
            assert {span["attributes"]["parent_id"] for span in by_name[name]} == serves
        assert {span["attributes"]["trace_id"] for span in spans} == {TRACE}
        assert {span["attributes"]["parent_id"] for span in by_name["serve"]} == {CALLER}
        for span in by_name["fail"]:
            assert (span["attributes"]["error"], span["attributes"]["otel.status"]) == ("ValueError", "ERROR")  # fmt: skip
        assert {span["attributes"]["otel.dropped_events"] for span in by_name["serve"]} == {3}
        for span in by_name["serve"] + by_name["step"]:
            assert span["seq"] is not None
        assert list(store.sql(OPEN)) == []
        gaps = list(store.sql("SELECT reason, detail, remaining FROM gaps"))
        assert gaps == [{"reason": "sender", "detail": "unnumbered", "remaining": 3}] * 2
        (counts,) = store.sql("SELECT sum(events) AS events, sum(missing) AS missing FROM sessions")
        assert (counts["events"], counts["missing"]) == (30, 6)
    otlp = tmp_path / "trace.jsonl"
    run("export", "--to", "otlp", "--store", str(collector.store), "-o", str(otlp))
    exported = [
        span
        for line in otlp.read_text().splitlines()
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        if span["name"] in {"serve", "step"}
    ]
    assert len(exported) == 8
    assert len({span["spanId"] for span in exported}) == 8
    for span in exported:
        assert span["traceId"] == TRACE
        assert (span["spanId"] if span["name"] == "serve" else span["parentSpanId"]) in serves
    again = tmp_path / "again"
    run("export", "--to", "original", "--store", str(collector.store), "-o", str(again))
    copies = [events(path.read_bytes()) for path in again.rglob("*.heph")]
    assert [len(copy) for copy in copies if len(copy) == 2] == [2, 2], "the children's"
    for copy in copies:
        assert sorted(event.counter for event in copy) == list(range(len(copy)))


def test_the_spans_that_were_open_in_a_killed_program_are_known(collector_of):
    collector = collector_of()
    for transport in ("tcp", "udp"):
        for pure in ("", "1"):
            assert traced(collector, transport, KILLED, pure) == -signal.SIGKILL
    with tailrace.open(collector.store) as store:
        spans = list(store.sql("SELECT name, seq, attributes FROM spans"))
        assert sorted((span["name"], span["seq"]) for span in spans) == sorted(
            [("otel.start", 0), ("otel.start", 1), ("ended", 2), ("otel.start", 3)] * 4
        )
        assert {span["attributes"]["trace_id"] for span in spans} == {TRACE}
        starts = {
            span["attributes"]["parent_id"]: span["attributes"]
            for span in spans
            if span["name"] == "otel.start"
        }
        found = list(store.sql(OPEN))
        assert sorted(row["name"] for row in found) == ["serve"] * 4 + ["step"] * 4
        for row in found:
            assert row["name"] == starts[row["span_id"]]["otel.name"]
            if row["name"] == "step":
                serve = starts[row["span_id"]]["otel.parent_id"]
                assert starts[row["span_id"]]["otel.links"] == [f"00-{TRACE}-{serve}-01"]
                assert starts[serve]["otel.name"] == "serve"
        (counts,) = store.sql("SELECT sum(events) AS events FROM streams")
        assert counts["events"] == 16
