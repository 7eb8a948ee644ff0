"""Commits that the system refuses: no room, not writable. Real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.errors import FullError, StoreError
from tests.store.writer import commit

ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="mounting a small file system needs root: run pytest tests/store as root",
)


@pytest.fixture
def small(tmp_path):
    """A file system of 1 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs ({made.stderr.strip()}): run as root, --privileged")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def _fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fd, bytes(4096)):
            pass
    except OSError:
        pass
    finally:
        os.close(fd)


@ROOT_ONLY
def test_a_full_disk_refuses_and_the_same_batch_goes_in_once_there_is_room(
    open_table, numbered, small, seqs
):
    table = open_table(path=small)
    commit(table, numbered("s", 0, 50), 1)
    _fill(small / "ballast")
    for _ in range(3):
        with pytest.raises(FullError, match="No space left on device"):
            commit(table, numbered("s", 50, 50), 2)
    assert table.position() == 1
    assert not table.checkpoint()
    (small / "ballast").unlink()
    commit(table, numbered("s", 50, 50), 2)
    assert table.checkpoint()
    assert seqs(at=small / "events") == list(range(100))


@ROOT_ONLY
def test_a_disk_that_fills_up_while_rows_are_written_leaves_no_trace(
    open_table, numbered, small, seqs
):
    table = open_table(path=small)
    number = 0
    full = False
    while not full:
        try:
            commit(table, numbered("s", number * 5000, 5000), number + 1)
            number += 1
        except FullError:
            full = True
    assert number > 1
    named = set(DeltaTable(str(small / "events")).file_uris())
    assert {str(path) for path in small.rglob("*.parquet")} == named
    assert seqs(at=small / "events") == list(range(number * 5000))


@contextmanager
def _unwritable(path):
    """As root (who may write to any directory) a mount of it that is read-only."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield "Read-only file system"
        subprocess.run(["umount", str(path)], check=True)
    else:
        directories = [path, *(found for found in path.rglob("*") if found.is_dir())]
        for directory in directories:
            directory.chmod(0o500)
        yield "Permission denied"
        for directory in directories:
            directory.chmod(0o700)


def test_a_store_that_may_not_be_written_is_a_store_error_that_says_so(
    open_table, numbered, store, seqs
):
    table = open_table()
    commit(table, numbered("s", 0, 50), 1)
    with _unwritable(store) as reason:
        with pytest.raises(StoreError, match=reason):
            commit(table, numbered("s", 50, 50), 2)
        assert not table.checkpoint()
        with pytest.raises(StoreError, match=reason):
            open_table(path=store / "new")
    commit(table, numbered("s", 50, 50), 2)
    assert seqs() == list(range(100))


@ROOT_ONLY
def test_a_store_on_a_full_disk_cannot_be_made_for_want_of_room(open_table, small):
    _fill(small / "ballast")
    with pytest.raises(FullError):
        open_table(path=small)


def test_a_file_larger_than_the_process_may_write_counts_as_no_room(store):
    """In a process of its own: the limit would hold for the whole test run."""
    script = f"""
import resource, signal, sys
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
from writer import commit, numbered
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.errors import FullError
from tailrace.store.table import Table

table = Table.open({str(store)!r}, options={{}}, collector="one", config=StoreConfig(), clock=SystemClock(), refills=bool)
commit(table, numbered("s", 0, 10), 1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
try:
    commit(table, numbered("s", 10, 20_000), 2)
except FullError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
commit(table, numbered("s", 10, 20_000), 2)
print(table.version(), table.position())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert done.stdout.endswith("2 2\n")
