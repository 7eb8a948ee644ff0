"""Sides take turns; those that are not here are named; work apart is measured where it runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.__main__ import _options, _parser
from benchmarks.contest import beside, contest, ours, reference
from benchmarks.options import QUICK, Options
from benchmarks.peers.environment import version
from benchmarks.peers.output import Output
from benchmarks.peers.peer import Peer
from benchmarks.places import ROOT
from benchmarks.processes import apart, sending, usage
from benchmarks.references import drain
from benchmarks.results import Case, Role, Side
from benchmarks.suite.decoding import judge


def test_sides_take_turns_and_the_absent_do_not():
    turns = []
    here, gone = Peer("here", "1", "get here", "", ""), Peer("gone", "", "get gone", "", "")
    sides = [
        beside(here, lambda: turns.append("here") or {}),
        beside(gone, lambda: turns.append("gone") or {}),
        ours("", lambda: turns.append("ours") or {}),
        reference("least", "", lambda: turns.append("least") or {}),
    ]
    case = contest("", sides, 2)
    assert turns == ["here", "ours", "least"] * 2
    assert [(side.absent, len(side.runs)) for side in case.sides] == [
        ("", 2), ("get gone", 0), ("", 2), ("", 2),
    ]  # fmt: skip


def test_a_package_that_is_not_installed_has_no_version():
    assert version("no-such-package") == ""


def test_versions_of_peers_are_pinned():
    pinned = (ROOT / "requirements" / "peers.txt").read_text()
    for line in (ROOT / "requirements" / "peers.in").read_text().splitlines():
        assert line.startswith("#") or f"\n{line}==" in f"\n{pinned}"


def test_work_apart_is_prepared_then_done_beside_something(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    begun = []
    done = apart.run("benchmarks.references.drain:files", [str(path)], beside=lambda: begun.append(1))  # fmt: skip
    assert (done.value, begun) == (1000, [1])
    assert done.usage.resident >= done.usage.private > 0


def test_work_apart_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="none could not be prepared"):
        apart.run("benchmarks.references.drain:none")


def test_usage_is_that_of_the_process():
    program = "sum(range(10**6)); held = b'x' * 50_000_000; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as process:
        with usage.Watch(process.pid) as watch:
            process.stdout.readline()
        process.stdin.close()
    assert watch.usage.resident >= watch.usage.private >= 50_000_000
    assert watch.usage.cpu > 0


def test_senders_send_all(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        packets = sending.packed([b"x" * 700] * 5)
        assert [len(packet) for packet in packets] == [1400, 1400, 700]
        sending.datagrams(sock.getsockname(), packets, 1000)
        assert drain.datagrams(os.dup(sock.fileno()), 3)() == 3
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = Path(tmp_path / "file")
        path.write_bytes(b"x" * 100_000)
        work = drain.connection(os.dup(listener.fileno()))
        sending.stream(listener.getsockname(), path)
        assert work() == 100_000


def test_marks_are_counted_in_whole_lines_of_a_growing_file(tmp_path):
    output = Output(tmp_path / "output", b"m")
    assert list(output.look()) == []
    with (tmp_path / "output").open("wb", buffering=0) as file:
        file.write(b"m1\nm")
        assert list(output.look()) == [0]
        file.write(b"2\nx\nm3\n")
        assert list(output.look()) == [1, 2]


def test_options_of_the_command_line_replace_those_of_a_form():
    asked = _parser().parse_args(["idle", "--quick", "--rows", "10", "20", "--runs", "7"])
    assert _options(asked) == msgspec.structs.replace(QUICK, rows=(10, 20), runs=7)
    assert _options(_parser().parse_args([])) == Options()
    assert min(QUICK.runs, Options().runs) >= 3


@pytest.mark.parametrize(("cost", "kept"), [(2.9, True), (3.1, False)])
def test_the_largest_ratio_of_a_spelling_decides(cost, kept):
    def side(name, *cpu):
        return Side(name=name, role=Role.OURS, does="", runs=[{"cpu": each} for each in cpu])

    absent = Side(name="kernel", role=Role.OURS, does="", absent="make dev", runs=[])
    sides = [absent, absent, side("Python", cost, 9.0), side("usual", 1.0, 4.0)]
    judgement = judge([Case(label="jets: tabs", sides=sides)])
    assert judgement.kept == kept
    assert f"{cost:.2f} (jets: tabs, Python)" in judgement.text
