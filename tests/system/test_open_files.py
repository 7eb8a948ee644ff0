"""A daemon that may open few files: it says so, and what could not be opened is taken when it can."""

from __future__ import annotations

import contextlib
import json
import resource
import socket

from tailrace.sources.listening import split
from tests import toml
from tests.ingest.log import heph_event
from tests.system.announcing import connected
from tests.system.collector import Collector, until
from tests.system.test_attacks import figures
from tests.system.test_import import jets
from tests.system.test_pending import of_files

LIMIT = 160
TCP = toml.source("tcp", "tcp")


def limited():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def test_connections_and_files_without_a_descriptor_are_a_condition_until_there_is_one(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    collector = Collector(tmp_path, sources=TCP + of_files(runs), before=limited).start()
    try:
        assert collector.status()["conditions"] == {}
        with contextlib.ExitStack() as stack:
            honest = stack.enter_context(connected(collector, "tcp"))
            honest.sendall(heph_event(1, 0))
            for _ in range(LIMIT):
                stack.enter_context(connected(collector, "tcp"))
            said = condition_of(collector, "connections")
            assert f"of {LIMIT} are open" in said
            assert "LimitNOFILE=" in said
            (runs / "a.jets").write_bytes(jets(10))
            condition_of(collector, "files")
            code, body = collector.get("/healthz")
            assert (code, json.loads(body)["status"]) == (200, "degraded")
            counts = collector.status()["out_of_descriptors"]
            assert counts["connections"] > 0 < counts["files"]
            assert 'tailrace_out_of_descriptors_total{what="files"}' in collector.metrics()
            assert figures(collector, "runs")["rows"] == 0
            honest.sendall(heph_event(1, 1))
            until(lambda: figures(collector, "tcp")["seen_events"] == 2, "the honest events")
            collector.settle()
        until(lambda: figures(collector, "runs")["records"].get("begin") == 10, "the file")
        until(lambda: collector.status()["conditions"] == {}, "room")
        collector.settle()
        collector.check_balance()
        collector.stop()
        assert collector.process.returncode == 0
    finally:
        collector.end()


def test_the_table_has_descriptors_however_many_ask_for_status(tmp_path):
    collector = Collector(tmp_path, sources=TCP, before=limited).start()
    admin = split(collector.status()["admin"])
    try:
        with contextlib.ExitStack() as stack:
            honest = stack.enter_context(connected(collector, "tcp"))
            honest.sendall(heph_event(1, 0))
            for _ in range(LIMIT):
                stack.enter_context(connected(collector, "tcp"))
            for count in range(1, 4):
                for _ in range(40):
                    asking = stack.enter_context(socket.create_connection(admin))
                    asking.sendall(b"GET /status")
                commits = collector.status()["commits"]
                honest.sendall(heph_event(1, count))
                until(lambda: collector.status()["commits"] > commits, "a commit")  # noqa: B023 - called at once
            lacking = collector.status()["out_of_descriptors"]
            assert (lacking["store"], lacking["log"], lacking["admin"]) == (0, 0, 0)
            assert collector.status()["admin_refused"]["too many connections"]
        collector.settle()
        assert figures(collector, "tcp")["seen_events"] == 4
        collector.check_balance()
    finally:
        collector.end()


def condition_of(collector, what):
    def said():
        condition = collector.status()["conditions"].get("descriptors", "")
        return condition if what in condition else ""

    until(said, f"the condition to name {what}")
    return said()
