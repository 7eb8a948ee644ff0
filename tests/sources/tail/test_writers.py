"""Which process writes a file, asked of the real system about real processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tailrace.clock import SystemClock
from tailrace.decoding.contract import Writer
from tailrace.sources.tail import session as session_module
from tailrace.sources.tail.session import Writers

HERE = socket.gethostname()

WRITER = """
import os, sys
path, keep, user = sys.argv[1], sys.argv[2] == "keep", int(sys.argv[3])
if user:
    os.setgid(user)
    os.setuid(user)
file = open(path, "wb")
file.write(b"x")
file.flush()
if not keep:
    file.close()
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def write(tmp_path):
    """A function that starts a process that writes a file, keeps it open or not, and waits."""
    made = []

    def start(path=tmp_path / "file", *, keep=True, wrap=(), user=0):
        what = [path, "keep" if keep else "leave", str(user)]
        process = subprocess.Popen(
            [*wrap, sys.executable, "-c", WRITER, *what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        made.append(process)
        assert process.stdout.readline() == b"written\n"
        return process, path

    yield start
    for process in made:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@pytest.fixture
def look(monkeypatch):
    """Nothing that was seen is kept."""
    monkeypatch.setattr(session_module, "KEPT_SECONDS", 0.0)
    return Writers(SystemClock())


def test_a_process_that_has_the_file_open_writes_it_whatever_the_host_is_called(look, write):
    process, path = write()
    found = look.find(Writer("elsewhere", process.pid), path.stat(), 0)
    assert found.pid == process.pid
    assert look.runs(found)


def test_a_process_that_does_not_have_the_file_open_is_another_one(look, write):
    process, path = write(keep=False)
    assert look.find(Writer(HERE, process.pid), path.stat(), 0) is None


def test_a_process_that_was_killed_is_gone_even_before_its_parent_has_heard_of_it(look, write):
    process, path = write()
    found = look.find(Writer(HERE, process.pid), path.stat(), 0)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not look.runs(found), "a zombie writes nothing"
    process.wait()
    assert not look.runs(found)


def test_a_pid_that_is_used_again_is_another_process(look, write):
    process, path = write()
    found = look.find(Writer(HERE, process.pid), path.stat(), 0)
    assert look.runs(found)
    assert not look.runs(found._replace(started=found.started - 1))


def test_no_process_and_no_such_pid_are_nobody(look, write):
    process, path = write()
    process.kill()
    process.wait()
    assert look.find(Writer(HERE, process.pid), path.stat(), 0) is None
    assert look.find(Writer(HERE, 2**31 - 1), path.stat(), 0) is None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")
class TestOfAnotherUser:
    """Whose descriptors nobody but root may read: the look is a process of a third user."""

    LOOK = """
import os, sys
from tailrace.clock import SystemClock
from tailrace.decoding.contract import Writer
from tailrace.sources.tail.session import Writers
path, pid, host, birth = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
writers = Writers(SystemClock())
os.setgid(65534)
os.setuid(65534)
found = writers.find(Writer(host, pid), os.stat(path), birth)
print("nobody" if found is None else found.pid)
"""

    @pytest.fixture
    def shared(self):
        """A directory that any user may enter. A pytest that starts closes those of all pytests."""
        with tempfile.TemporaryDirectory(prefix="tailrace-writers-") as name:
            Path(name).chmod(0o777)
            yield Path(name)

    def _look(self, pid, path, host=HERE, birth=0):
        done = subprocess.run(
            [sys.executable, "-c", self.LOOK, path, str(pid), host, str(birth)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def test_a_process_of_this_host_with_the_files_owner_may_be_the_writer(self, write, shared):
        process, path = write(shared / "file", user=1234)
        assert self._look(process.pid, path) == str(process.pid)
        assert self._look(process.pid, path, host="elsewhere") == "nobody"

    def test_a_process_younger_than_the_file_or_of_another_owner_is_not(self, write, shared):
        process, path = write(shared / "file", user=1234)
        assert self._look(process.pid, path, birth=10**18) == "nobody"
        (shared / "roots").write_bytes(b"")
        assert self._look(process.pid, shared / "roots") == "nobody"

    @pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
    def test_a_process_that_counts_its_pids_otherwise_is_not(self, write, shared):
        wrap = ("unshare", "--pid", "--fork", "--kill-child")
        parent, path = write(shared / "file", wrap=wrap, user=1234)
        (child,) = map(
            int, Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        )
        status = Path(f"/proc/{child}/status").read_text()
        (numbers,) = re.findall(r"^NSpid:\s+(.*)$", status, re.MULTILINE)
        assert numbers.split() == [str(child), "1"]
        assert self._look(child, path) == "nobody"
