"""The daemon as a process: start, addresses, probes, two of them, stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests import program
from tests.ingest.log import heph_epoch, heph_event
from tests.system.collector import Collector, until


def send_tcp(collector, data, source="tcp"):
    with socket.create_connection(collector.address(source)) as sock:
        sock.sendall(data)


def test_what_is_sent_over_udp_and_tcp_is_in_the_table_and_on_status(collector):
    events = [heph_event(1, n) for n in range(100)]
    send_tcp(collector, heph_epoch(10**18) + b"".join(events))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        for n in range(0, 100, 10):
            sock.send(b"".join(events[n : n + 10]))
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 100, "the datagrams")
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 100, "the stream")
    collector.settle()
    spans = [row for row in collector.rows() if row["kind"] == "span"]
    assert sorted((row["source"], row["seq"]) for row in spans) == sorted(
        (source, n) for source in ("tcp", "udp") for n in range(100)
    )
    assert collector.status()["sources"]["tcp"]["decoded_bytes"] == 23 + sum(map(len, events))


def test_the_probes_and_the_status_answer(collector):
    assert collector.get("/healthz")[0] == 200
    assert collector.get("/readyz")[0] == 200
    status = collector.status()
    assert status["state"] == "ok"
    assert status["sources"]["udp"]["address"] == collector.ports["sources"]["udp"]
    assert status["sources"]["udp"]["buffer_bytes"] > 0


def test_a_stop_drains_commits_and_prints_the_final_ledger(collectors):
    collector = collectors().start()
    send_tcp(collector, heph_event(1, 0) + heph_event(1, 3))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2, "both events")
    log = collector.stop()
    assert collector.process.returncode == 0
    assert "events: 4 expected, 2 seen, 0 of them duplicates, 2 missing" in log
    assert "gaps found: network 2" in log
    rows = collector.rows()
    assert [row["seq"] for row in rows if row["kind"] == "span"] == [0, 3]
    assert [(row["seq"], row["name"]) for row in rows if row["kind"] == "gap"] == [(1, "network")]


class SpeaksJson(Collector):
    """A daemon that says in JSON what it says."""

    def command(self):
        return [*super().command(), "--json"]


def test_as_json_a_status_is_printed_at_the_start_and_at_the_end(tmp_path):
    collector = SpeaksJson(tmp_path).start()
    try:
        send_tcp(collector, heph_event(1, 0) + heph_event(1, 3))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2, "both events")
        printed = [line for line in collector.stop().splitlines() if line.startswith("{")]
    finally:
        collector.end()
    first, last = map(json.loads, printed)
    assert (first["admin"], first["store"]) == (collector.ports["admin"], str(collector.store))
    assert first["sources"]["tcp"]["address"] == collector.ports["sources"]["tcp"]
    assert last["sources"]["tcp"]["missing_events"] == 2
    assert (last["rows_committed"] > 2, last["sources"]["tcp"]["awaited_events"]) == (True, 0)


NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


class FirstProcess(Collector):
    """A daemon that is started as process 1, as in a container; the kernel then has no default for its signals."""

    def command(self):
        return [*NAMESPACE, *super().command()]

    def signal(self, number):
        """To process 1: a process in between waits for it, and ends as it does."""
        between = self.process.pid
        (daemon,) = Path(f"/proc/{between}/task/{between}/children").read_text().split()
        os.kill(int(daemon), number)


@pytest.fixture
def namespaces():
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare: apt-get install util-linux")
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs leave to make a namespace of processes: run it as root")


@pytest.mark.usefixtures("namespaces")
def test_as_process_1_it_reloads_and_stops_as_elsewhere(tmp_path):
    collector = FirstProcess(tmp_path).start()
    try:
        assert collector.status()["pid"] == 2  # the child of one that hands signals on to it
        collector.signal(signal.SIGHUP)
        until(lambda: collector.status()["config"]["reloads"]["done"] == 1, "the reload")
        send_tcp(collector, heph_event(1, 0) + heph_event(1, 3))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2, "both events")
        collector.signal(signal.SIGTERM)
        assert collector.process.wait(timeout=180) == 0
    finally:
        collector.end()
    assert "events: 4 expected, 2 seen, 0 of them duplicates, 2 missing" in collector.log()
    assert [row["seq"] for row in collector.rows() if row["kind"] == "span"] == [0, 3]


def test_what_a_peer_sent_before_the_stop_is_kept(collectors):
    """Bytes still in the kernel's buffers when the signal comes were sent while we were up."""
    collector = collectors().start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        for n in range(500):
            sock.send(heph_event(1, n))
        collector.stop()
    assert sorted(row["seq"] for row in collector.rows() if row["kind"] == "span") == list(
        range(500)
    )


def test_a_udp_peer_goes_on_across_a_restart_without_a_gap(collectors):
    collector = collectors().start()
    port = collector.address("udp")[1]
    collector.config.write_text(collector.config.read_text().replace(
        'format = "heph"\nlisten = "127.0.0.1:0"', f'format = "heph"\nlisten = "127.0.0.1:{port}"', 1
    ))  # fmt: skip
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        sock.send(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 1, "the first event")
        collector.stop()
        collector.start()
        sock.send(heph_event(1, 1))
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 2, "the second event")
    collector.stop()
    rows = collector.rows()
    spans = [row for row in rows if row["kind"] == "span"]
    assert sorted(row["seq"] for row in spans) == [0, 1]
    assert len({row["session"] for row in spans}) == 1
    assert [row for row in rows if row["kind"] == "gap"] == []


def test_a_second_daemon_on_the_same_store_refuses_and_names_the_first(collector):
    second = program.run(
        [*program.COMMAND, "serve", "--config", collector.config, "--store", collector.store],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"{collector.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert collector.get("/readyz")[0] == 200


def test_a_second_signal_stops_at_once_and_loses_nothing_that_was_synced(collectors):
    collector = collectors().start()
    send_tcp(collector, b"".join(heph_event(1, n) for n in range(1000)))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 1000, "the events")
    collector.process.send_signal(signal.SIGTERM)
    collector.process.send_signal(signal.SIGINT)
    collector.process.wait(timeout=120)
    collector.start()
    collector.settle()
    collector.stop()
    assert sorted(row["seq"] for row in collector.rows() if row["kind"] == "span") == list(
        range(1000)
    )


def test_the_metrics_say_what_the_status_says(collector):
    send_tcp(collector, heph_event(1, 0) + heph_event(1, 2))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2, "the events")
    _, text = collector.get("/metrics")
    assert 'tailrace_ledger_seen_events_total{source="tcp"} 2.0' in text
    assert 'tailrace_ledger_missing_events{source="tcp"} 1.0' in text
    assert 'tailrace_state{state="ok"} 1.0' in text


def test_the_port_file_names_every_address(collector):
    ports = json.loads((collector.store / "ports.json").read_text())
    assert set(ports["sources"]) == {"udp", "tcp", "jets"}
    assert all(
        not address.endswith(":0") for address in [*ports["sources"].values(), ports["admin"]]
    )


def serve(*arguments):
    return program.run(
        [*program.COMMAND, "serve", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_store_that_cannot_be_made_is_said_in_a_line(tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = serve("--store", file / "store")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    why = f"Not a directory: {file} is not a directory; move it away; "
    assert line.startswith(f"tailrace: {file}/store: cannot be made: {why}")
    assert "TAILRACE_STORE_PATH" in line
