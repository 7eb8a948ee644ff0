"""Test what a source says of files that rest: told once, taken back by growth, known across restarts."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tailrace.clock import SystemClock
from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail.location import System
from tests.decoding.ovni_bytes import HEADER, event, starts
from tests.sources.tail.recorder import TestClock

HOST = socket.gethostname().partition(".")[0]

PROGRAM = """
import os, sys
path = sys.argv[1].replace("PID", str(os.getpid()))
os.makedirs(os.path.dirname(path))
file = open(path, "wb", buffering=0)
for line in sys.stdin.buffer:
    file.write(bytes.fromhex(line.decode()))
    print(path, flush=True)
"""


class Program:
    """A process that writes what it is told into a stream of its own, which it keeps open."""

    def __init__(self, directory, host=HOST):
        path = f"{directory}/ovni/loom.{host}.1/proc.PID/thread.7/stream.obs"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def write(self, data):
        """The path, once it is written."""
        self.process.stdin.write(data.hex().encode() + b"\n")
        self.process.stdin.flush()
        self.path = self.process.stdout.readline().decode().strip()
        return self.path

    @property
    def written(self):
        return Path(self.path).stat().st_mtime_ns

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def program(files):
    made = []

    def start(**options):
        made.append(Program(files.directory, **options))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.kill()


@pytest.fixture
def ovni(follow, monkeypatch):
    """A source of ovni whose wall clock is the system's, moved on by the time that the test jumps."""
    begun, offset = SystemClock().wall_ns(), []

    def wall_ns(_):
        now = trio.current_time()
        offset.append(now)
        return begun + int((now - offset[0]) * 1e9)

    monkeypatch.setattr("tests.sources.tail.recorder.TestClock.wall_ns", wall_ns)

    def start(**keys):
        return follow(format="ovni", **keys)

    return start


def rests(intake, number=0):
    """Why the session's file was said to rest, in order; None where it was said to go on."""
    return [facts.rest and facts.rest.why for facts in intake.sessions[number].moves]


async def test_a_process_that_is_killed_is_gone_for_its_files(
    autojump_clock, ovni, program, intake
):
    run = program()
    run.write(HEADER + starts(5))
    ovni(rest_time=1e6)
    await trio.sleep(5)
    assert rests(intake) == []
    run.kill()
    await trio.sleep(20)
    assert rests(intake) == ["process_gone"]
    since = intake.sessions[0].moves[-1].rest.since
    assert since == run.written


async def test_a_process_that_begins_with_the_number_and_the_file_of_one_that_ended_is_there(
    autojump_clock, ovni, files, intake, tmp_path
):
    """The earlier process was seen less than a second before."""
    stream = "loom.node.1/proc.7/thread.7/stream.obs"
    place = tmp_path / "proc" / "7"
    (place / "fd").mkdir(parents=True)
    (place / "fd" / "3").symlink_to(files / stream)

    def begin(started):
        fields = ["0"] * 18 + [str(started)] + ["0"] * 30
        (place / "stat").write_text(f"7 (program) S {' '.join(fields)}\n")
        files.write(stream, HEADER + starts(started))

    begin(1)
    ovni(system=System(proc=str(tmp_path / "proc")))
    await trio.sleep(0.3)
    begin(2)
    await trio.sleep(20)
    assert [session.closed for session in intake.sessions] == ["rewritten", None]
    assert rests(intake, 1) == []
    (place / "stat").unlink()
    await trio.sleep(20)
    assert rests(intake, 1) == ["process_gone"]


async def test_a_process_that_lives_may_wait_for_as_long_as_it_likes(
    autojump_clock, ovni, program, intake
):
    run = program()
    run.write(HEADER + starts(5))
    ovni(rest_time=60)
    await trio.sleep(3600)
    assert rests(intake) == ["waits"]
    run.write(event("OHp", 6))
    os.utime(run.path, ns=(TestClock().wall_ns(),) * 2)
    await trio.sleep(30)
    assert len(intake.contents[0]) == len(HEADER + starts(5) + event("OHp", 6))
    assert rests(intake) == ["waits"], "that it goes on, its bytes say"
    await trio.sleep(3600)
    assert rests(intake) == ["waits", "waits"]
    run.kill()
    await trio.sleep(20)
    assert rests(intake) == ["waits", "waits", "process_gone"]


async def test_of_a_process_that_was_never_seen_only_the_silence_is_said(
    autojump_clock, ovni, program, intake
):
    run = program()
    run.write(HEADER + starts(5))
    run.kill()
    ovni(rest_time=600)
    await trio.sleep(500)
    assert rests(intake) == [], "another process may have its PID, or it is another host's"
    await trio.sleep(200)
    assert rests(intake) == ["silent"]
    await trio.sleep(10_000)
    assert rests(intake) == ["silent"], "once"


async def test_another_process_with_the_pid_in_the_path_is_not_taken_for_the_writer(
    autojump_clock, ovni, files, program, intake
):
    """A process of this host and of the same user, alive, that does not have the file."""
    other = program()
    other.write(b"")
    pid = other.process.pid
    path = files.write(f"ovni/loom.{HOST}.1/proc.{pid}/thread.1/stream.obs", HEADER + starts(1))
    os.utime(path)
    ovni(rest_time=600)
    await trio.sleep(30)
    other.kill()
    await trio.sleep(60)
    assert rests(intake) == []
    await trio.sleep(600)
    assert rests(intake) == ["silent"]


async def test_a_restart_says_nothing_twice(autojump_clock, ovni, program, intake):
    run = program()
    run.write(HEADER + starts(5))
    tail = ovni(rest_time=60)
    await trio.sleep(5)
    run.kill()
    await trio.sleep(20)
    await tail.restart()
    await trio.sleep(3600)
    assert rests(intake) == ["process_gone"]


async def test_a_file_of_any_format_rests(autojump_clock, follow, files, intake):
    files.write("a", b"{}\n")
    follow(rest_time=60)
    await trio.sleep(5)
    assert rests(intake) == ["silent"], "it was written long ago"
    files.append("a", b"{}\n")
    await trio.sleep(5)
    assert rests(intake) == ["silent", "silent"]
    assert [m.rest.since for m in intake.sessions[0].moves] == [10**9, 2 * 10**9]


async def test_a_compressed_file_does_not_rest_before_all_that_it_holds_is_handed_on(
    autojump_clock, follow, files, intake
):
    """Its own bytes are all read long before the last of what they inflate to is."""
    content = b"one line\n" * (CHUNK_MAX // 2)
    files.write("a.gz", gzip.compress(content))
    intake.delay = 1.0
    follow(rest_time=60)
    await trio.sleep(120)
    assert intake.contents == [content]
    assert len(intake.chunks) > 3
    assert rests(intake) == ["silent"]


async def test_files_that_are_read_once_do_not_rest(autojump_clock, follow, files, intake):
    files.write("a", b"{}\n")
    tail = follow(once=True, rest_time=0)
    await tail.stopped.wait()
    assert rests(intake) == []
    assert intake.sessions[0].closed == "at rest"


async def test_the_bytes_of_a_member_that_is_not_over_are_told_with_the_rest(
    autojump_clock, files, follow, intake, settle
):
    packed = gzip.compress(b"a line\n" * 100)
    files.write("a.gz", packed + packed[:-9])
    follow(rest_time=1)
    await settle()
    assert [facts.rest.pending for facts in intake.sessions[0].moves if facts.rest] == [
        len(packed) - 9
    ]
    files.append("a.gz", packed[-9:])
    await trio.sleep(30)
    assert intake.contents == [b"a line\n" * 200]
    assert intake.sessions[0].moves[-1].rest.pending == 0
