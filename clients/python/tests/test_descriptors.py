"""Test programs that close all descriptors, and whose own files and connections then get the descriptor numbers of the
client."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from clients.python.tests.collectors import Answering, TcpCollector
from clients.python.tests.reader import events
from tailrace_client._descriptors import Mark, TakenError, above_standard
from tailrace_client._transport import parse

BEGINNING = """
import fcntl, json, os, socket, sys
import tailrace_client as t

directory, how = sys.argv[1:3]

def taken(number):
    try: return bool(os.fstat(number))
    except OSError: return False

class Mine:
    "Files and connections of the program's own, under every number that the client had."

    def __init__(self):
        self.peers, self.ours, self.files, self.numbers = [], [], [], []
        if how == "files":
            os.closerange(3, 256)
            self.files = [open(f"{directory}/own.{n}", "w+b", buffering=0) for n in range(12)]
        elif how == "sockets":
            os.closerange(3, 256)
            pairs = [socket.socketpair() for n in range(8)]
            self.ours, self.peers = zip(*pairs)
            for peer in self.peers: peer.send(b"YOURS")
        else:
            self.files = [open(f"{directory}/own", "w+b", buffering=0)]
            number = os.dup2(self.files[0].fileno(), 200)
            self.numbers = [n for n in map(int, os.listdir("/proc/self/fd")) if 3 <= n < 64 and taken(n)]
            for each in self.numbers: os.dup2(number, each)
            # The rest at free numbers only: dup2() could replace what the client's thread has just opened.
            self.numbers += [fcntl.fcntl(number, fcntl.F_DUPFD, 3) for n in range(50)]
        self.numbers += [each.fileno() for each in (*self.files, *self.ours, *self.peers)]

    def harm(self):
        "Return what was done to them."
        found = []
        for file in self.files:
            file.write(b"MINE")
            file.seek(0)
            if (read := file.read()) != b"MINE": found.append(read[:60].hex())
        for ours, peer in zip(self.ours, self.peers):
            if (read := ours.recv(99, socket.MSG_DONTWAIT)) != b"YOURS": found.append(read.hex())
            ours.send(b"MINE")
            if (read := peer.recv(99, socket.MSG_DONTWAIT)) != b"MINE": found.append(read[:60].hex())
        for number in self.numbers:
            try: os.fstat(number)
            except OSError: found.append(number)
        return found
"""

EMITTING = """
emitter = t.connect()
t.event("before")
assert t.flush(20)
mine = Mine()
for i in range(200): t.event("after", i=i)
flushed = t.flush(20)
t.event("last")
closed = t.close(20)
print(json.dumps([flushed, closed, mine.harm(), sum(emitter.discarded.values()), emitter.last_error]))
"""


def run(program, directory, how, **environ):
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING + program, str(directory), how],
        env={"PYTHONPATH": ":".join(sys.path), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


HOW = pytest.mark.parametrize("how", ["files", "sockets", "dup2"])


@HOW
@pytest.mark.parametrize("scheme", ["tcp", "unix", "udp", "tls"])
def test_the_programs_descriptors_are_left_alone_and_every_event_arrives(
    scheme, how, authority, tmp_path
):
    place = tmp_path / "socket" if scheme == "unix" else None
    context = authority.server() if scheme == "tls" else None
    with Answering(scheme, place, context=context) as collector:
        environ = {"TAILRACE_TLS_AUTHORITY": str(authority.file)}
        said = run(EMITTING, tmp_path, how, TAILRACE_ADDRESS=collector.address, **environ)
        stored = [sorted(s.stored[1]) for s in collector.sessions.values()]
    assert said == [True, True, [], 0, None]
    assert stored == [list(range(202))]


@HOW
def test_a_file_is_gone_on_with_where_it_ended(how, tmp_path):
    trace = tmp_path / "trace"
    said = run(EMITTING, tmp_path, how, TAILRACE_ADDRESS=f"file://{trace}")
    assert said == [True, True, [], 0, None]
    assert [event.counter for event in events(trace.read_bytes())] == list(range(202))


@HOW
def test_a_jets_trace_goes_on_without_another_header(how, tmp_path):
    program = """
writer = t.JetsWriter(f"file://{directory}/trace")
for clk in range(10): writer.record(clk, "before", "step")
assert writer.flush(20)
mine = Mine()
for clk in range(10, 200): writer.record(clk, "after", "step")
print(json.dumps([writer.close(20), mine.harm(), writer.dropped]))
"""
    assert run(program, tmp_path, how) == [True, [], 0]
    lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["header", *["record"] * 200, "footer"]
    assert lines[-1]["total_records"] == 200


def test_what_a_removed_file_cannot_take_any_more_is_not_called_delivered(tmp_path):
    program = """
emitter = t.connect()
t.event("before")
assert t.flush(20)
os.remove(f"{directory}/traces/trace")
os.rmdir(f"{directory}/traces")
mine = Mine()
for i in range(200): t.event("after", i=i)
print(json.dumps([t.flush(0.5), t.close(0.5), mine.harm(), emitter.discarded["closed"], emitter.last_error]))
"""
    (tmp_path / "traces").mkdir()
    address = f"file://{tmp_path}/traces/trace"
    *said, error = run(
        program, tmp_path, "files", TAILRACE_ADDRESS=address, PYTHONWARNINGS="ignore"
    )
    assert said == [False, False, [], 200]
    assert error.startswith("No such file or directory")


def test_a_program_that_closes_everything_and_is_never_heard_again_says_what_is_lost(tmp_path):
    program = """
emitter = t.connect()
t.event("before")
assert t.flush(20)
os.remove(f"{directory}/socket")
mine = Mine()
for i in range(200): t.event("after", i=i)
print(json.dumps([t.close(0.5), mine.harm(), emitter.discarded["closed"], bool(emitter.last_error)]))
"""
    with Answering("unix", tmp_path / "socket") as collector:
        environ = {"TAILRACE_ADDRESS": collector.address, "PYTHONWARNINGS": "ignore"}
        assert run(program, tmp_path, "sockets", **environ) == [False, [], 200, True]


@pytest.mark.parametrize("scheme", ["tcp", "unix", "udp", "tls", "file"])
def test_no_descriptor_takes_the_place_of_a_closed_standard_one(scheme, authority, tmp_path):
    program = """
t.connect(acknowledge=False)
t.event("x")
assert t.flush(20)
standard = [os.path.exists(f"/proc/self/fd/{n}") for n in range(3)]
t.close(20)
open(f"{directory}/found", "w").write(json.dumps(standard))
"""
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", sys.executable, "-c", BEGINNING + program]
    context = authority.server() if scheme == "tls" else None
    kind = "tcp" if scheme == "file" else scheme
    with Answering(
        kind, tmp_path / "socket" if kind == "unix" else None, context=context
    ) as collector:
        address = f"file://{tmp_path}/trace" if scheme == "file" else collector.address
        environ = {"PYTHONPATH": ":".join(sys.path), "TAILRACE_TLS_AUTHORITY": str(authority.file)}
        subprocess.run(
            [*closed, str(tmp_path), ""],
            env={**environ, "TAILRACE_ADDRESS": address},
            timeout=60,
            check=False,
        )
    assert json.loads((tmp_path / "found").read_text()) == [False, False, False]


def test_a_mark_holds_as_long_as_its_number_leads_to_what_was_opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    number = os.open(path, os.O_WRONLY | os.O_APPEND)
    mark = Mark.of(number)
    assert mark.holds()
    os.close(number)
    assert not mark.holds()
    assert os.open(path, os.O_RDONLY) == number
    assert not mark.holds()  # the same inode, opened with other flags
    os.close(number)
    with socket.socket() as one, socket.socket() as other:
        mark = Mark.of(one.fileno())
        os.dup2(other.fileno(), one.fileno())
        assert not mark.holds()


def test_a_descriptor_up_to_2_is_moved():
    kept = os.dup(0)
    try:
        assert above_standard(kept) == kept
        moved = above_standard(0)
        assert moved > 2
        with pytest.raises(OSError):  # noqa: PT011 - it is closed
            os.fstat(0)
        os.close(moved)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_transport_whose_number_was_taken_is_closed_and_can_be_opened_again():
    with TcpCollector() as collector, socket.socket() as other:
        transport = parse(collector.address)
        transport.open()
        os.dup2(other.fileno(), transport._kept.socket.fileno())
        with pytest.raises(TakenError):
            transport.receive()
        assert not transport.is_open
        transport.open()
        assert transport.send([b"x"]) == 1
        transport.close()
        transport.close()
