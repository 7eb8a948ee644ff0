from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tailrace.daemon.disk import _check
from tailrace.errors import LockedError, StoreError
from tailrace.store.presence import WRITERS, DirectoryLock, Entrance, is_held

HOLD = """
import sys
from pathlib import Path
from tailrace.store.presence import DirectoryLock, is_held
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `tmp_path`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_held_lock_refuses_and_names_the_process_and_the_file(holder, tmp_path):
    with pytest.raises(LockedError) as caught, DirectoryLock(tmp_path):
        pass
    assert f"process {holder.pid}" in str(caught.value)
    assert str(tmp_path / "lock") in str(caught.value)


def test_a_lock_ends_with_its_process_however_that_ends(holder, tmp_path):
    holder.kill()
    holder.wait()
    with DirectoryLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_can_be_taken_again_after_it_was_left(tmp_path):
    for _ in range(2):
        with DirectoryLock(tmp_path), pytest.raises(LockedError), DirectoryLock(tmp_path):
            pass


def test_a_lock_file_that_cannot_be_made_leaves_the_directory_unlocked(tmp_path):
    held = tmp_path / "held"
    (held / "lock").mkdir(parents=True)
    with pytest.raises(StoreError, match="is not a file"), DirectoryLock(held, whole=tmp_path):
        pass
    with DirectoryLock(tmp_path / "held", name="other", whole=tmp_path):
        pass


def test_locks_of_other_names_are_other_locks(tmp_path):
    with DirectoryLock(tmp_path), DirectoryLock(tmp_path, name="other.lock"):
        pass


def test_who_waits_enters_when_the_holder_has_left(holder, tmp_path):
    holder.stdin.close()  # it will end now; whether before or after we ask does not matter
    with DirectoryLock(tmp_path, wait=True):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_in_a_directory_that_is_not_there_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="No such file"), DirectoryLock(tmp_path / "none"):
        pass


def test_whether_a_process_is_inside_can_be_asked_without_entering(holder, tmp_path):
    assert is_held(tmp_path)
    holder.kill()
    holder.wait()
    assert not is_held(tmp_path)
    assert not is_held(tmp_path / "none")


def test_who_asks_at_every_moment_keeps_nobody_out(tmp_path):
    """An asker has the lock for a moment; who enters tries again."""
    with DirectoryLock(tmp_path):
        pass
    asking = [subprocess.Popen([sys.executable, "-c", ASKING, tmp_path]) for _ in range(2)]
    try:
        for _ in range(300):
            with DirectoryLock(tmp_path):
                pass
    finally:
        for each in asking:
            each.kill()
            each.wait()


ASKING = """
import sys
from pathlib import Path
from tailrace.store.presence import is_held
while True:
    is_held(Path(sys.argv[1]))
"""


def test_a_removed_file_is_made_again_by_its_holder(tmp_path):
    with DirectoryLock(tmp_path) as held:
        (tmp_path / "lock").unlink()
        held.check()
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(LockedError), DirectoryLock(tmp_path):
            pass


def test_a_locked_directory_keeps_others_out_without_the_file(tmp_path):
    with DirectoryLock(tmp_path, whole=tmp_path):
        (tmp_path / "lock").unlink()
        with pytest.raises(LockedError), DirectoryLock(tmp_path, whole=tmp_path):
            pass


def test_no_lock_is_taken_through_a_link(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(StoreError, match="it is not a file"), DirectoryLock(tmp_path):
        pass
    assert (tmp_path / "target").read_text() == "kept"


def test_two_checks_at_once_make_a_removed_file_again_once(tmp_path):
    with Entrance(tmp_path) as entrance, ThreadPoolExecutor(2) as threads:
        check = partial(_check, threading.Lock(), [entrance])
        for _ in range(100):
            (tmp_path / WRITERS).unlink()
            for done in [threads.submit(check), threads.submit(check)]:
                done.result()
