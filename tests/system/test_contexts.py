"""Spans of two programs that one request went through, and what their runs are labelled with, in the table
of a real daemon."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tailrace

README = Path(__file__).parents[2] / "clients" / "python" / "README.md"

SERVING = """
import os
import tailrace_client as trace
trace.connect(process="server", labels={"revision": "4f2a", "job": 17})
try:
    with trace.span("serve") as span:
        trace.take_up(span, os.environ["TRACEPARENT"])
        raise ValueError("no such cell")
except ValueError:
    pass
assert trace.close(20)
"""
ASKING = """
import os, subprocess, sys
import tailrace_client as trace
trace.connect(process="asker", labels={"revision": "5b00"})
with trace.span("request") as span:
    with trace.span("call") as call:
        onward = trace.hand_on(call)
        environ = os.environ | {"TRACEPARENT": onward}
        subprocess.run([sys.executable, "-c", sys.argv[1]], env=environ, check=True)
assert trace.close(20)
"""
CAUSES, OF_A_RUN, OPEN = re.findall(r"```sql\n(.*?)```", README.read_text(), re.DOTALL)


def test_a_request_is_one_tree_over_programs_and_runs_are_told_apart_by_labels(collector_of):
    collector = collector_of()
    host, port = collector.address("tcp")
    environ = {"PYTHONPATH": ":".join(sys.path), "TAILRACE_ADDRESS": f"tcp://{host}:{port}"}
    for pure in ("", "1"):
        command = [sys.executable, "-c", ASKING, SERVING]
        subprocess.run(command, env=environ | {"TAILRACE_PURE": pure}, check=True, timeout=60)
    collector.settle()
    with tailrace.open(collector.store) as store:
        caused = [tuple(row.values()) for row in store.sql(CAUSES)]
        assert caused == [("serve", "call")] * 2
        for revision, names in (("4f2a", ["serve"]), ("5b00", ["call", "request"]), ("none", [])):
            found = store.sql(OF_A_RUN.replace("4f2a", revision))
            assert sorted(row["name"] for row in found) == sorted(2 * names)
        served = list(store.sql("SELECT attributes FROM spans WHERE name = 'serve'"))
        assert len(served) == 2
        for row in served:
            assert row["attributes"]["error"] == "ValueError"
            assert row["attributes"]["error_message"] == "no such cell"
