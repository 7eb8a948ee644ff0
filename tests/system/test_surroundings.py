"""Starts of the daemon in hostile surroundings: it works, or refuses in words. Never a traceback, never a silent end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import program, toml
from tests.forms import in_turn
from tests.ingest.log import heph_event
from tests.program import COMMAND, environment
from tests.system.collector import SOURCES, until
from tests.system.surroundings import SURROUNDINGS

TAILRACE = Path(sys.executable).with_name("tailrace")

SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    sock.sendall(sys.stdin.buffer.read())
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(65536):
        pass
"""
"""A client that ends once the daemon has read everything, and that imports little."""


def serve(surrounding, tmp_path):
    store, config, log = tmp_path / surrounding.store, tmp_path / "tailrace.toml", tmp_path / "log"
    config.write_text(
        toml.section("admin", listen="127.0.0.1:0")
        + toml.section("store", commit_interval="200 ms")
        + SOURCES
    )
    changed = {**environment(), **surrounding.environ}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "/bin/sh", "-c", surrounding.shell.format(room=tmp_path), "sh",
                TAILRACE, "serve", "--config", config, "--store", store,
            ],
            env={name: value for name, value in changed.items() if value is not None},
            stdout=output, stderr=output, cwd="/",
        )  # fmt: skip
    try:
        ports = _wait(process, store / "ports.json")
        said = log.read_text(errors="replace")
        if surrounding.refusal:
            assert ports is None
            assert process.returncode in {1, 2}, said
            assert surrounding.refusal in said
        else:
            assert ports, f"exit {process.returncode}: {said}"
            _use(process, ports, store, surrounding)
        assert "Traceback" not in log.read_text(errors="replace")
        assert not (tmp_path / "RAN").exists()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if os.path.ismount(store):
            subprocess.run(["umount", "-l", store], check=True)


def _wait(process, path):
    """Return where the daemon listens, or nothing once it has ended."""

    def look():
        return process.poll() is not None or path.exists()

    until(look, "the daemon to listen or to end")
    return json.loads(path.read_text()) if process.poll() is None else None


def _use(process, ports, store, surrounding):
    """Send 50 events, shut the daemon down, and find the events in the table."""
    enter = ["nsenter", "-t", str(process.pid), "-n"] if surrounding.network else []
    host, _, port = ports["sources"]["tcp"].rpartition(":")
    subprocess.run(
        [*enter, sys.executable, "-I", "-S", "-c", SENDER, host, port],
        input=b"".join(heph_event(1, number) for number in range(50)), check=True, timeout=90,
    )  # fmt: skip
    # `unshare -f` waits for the daemon, and ignores signals meanwhile.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    daemon = int(children[0]) if surrounding.forks else process.pid
    os.kill(daemon, signal.SIGTERM)
    assert process.wait(60) == 0
    counted = "SELECT count(*) AS n FROM events WHERE name = 'work'"
    answer = program.run(
        [*COMMAND, "query", "--json", "--store", store, counted],
        env=environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(answer)["n"] == 50


def run(surrounding, tmp_path):
    store, log, ran = tmp_path / surrounding.store, tmp_path / "log", tmp_path / "ran"
    changed = {**environment(), **surrounding.environ}
    with log.open("wb") as output:
        done = subprocess.run(
            [
                "/bin/sh", "-c", surrounding.shell.format(room=tmp_path), "sh",
                TAILRACE, "run", "--store", store, "--", "/bin/sh", "-c", f"umask > {ran}; exit 7",
            ],
            env={name: value for name, value in changed.items() if value is not None},
            stdout=output, stderr=output, cwd="/", timeout=100, check=False,
        )  # fmt: skip
    said = log.read_text(errors="replace")
    if os.path.ismount(store):
        subprocess.run(["umount", "-l", store], check=True)
    assert "Traceback" not in said
    assert int(ran.read_text(), 8) == surrounding.umask, said
    assert done.returncode == 7, said
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize(
    ("surrounding", "command"),
    in_turn(SURROUNDINGS, [serve, run]),
    ids=lambda each: each.__name__ if callable(each) else each.name,
)
def test_a_start_holds(surrounding, command, tmp_path):
    if not surrounding.needs():
        pytest.skip("needs root and util-linux")
    command(surrounding, tmp_path)


def test_the_page_lists_what_is_tried():
    root = Path(__file__).parents[2]
    starts, runs = (root / "docs/surroundings.md").read_text().split("## While it runs")
    rows = re.findall(r"^\| (.+?) \| (works|refused)\b", starts, re.MULTILINE)
    expected = [(each.name, "refused" if each.refusal else "works") for each in SURROUNDINGS]
    assert rows == expected
    tests = re.findall(r"\| `([^`]+)` \|$", runs, re.MULTILINE)
    assert len(tests) == runs.count("\n| ") - runs.count("\n|---")
    assert [test for test in tests if not (root / test).is_file()] == []
