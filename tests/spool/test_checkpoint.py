from __future__ import annotations

import errno
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tailrace.errors import FullError, LostError, StoreError, SyncError
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.spool.disk import FileSystem


def test_the_newest_not_beyond_the_commit_is_found(tmp_path):
    checkpoints = Checkpoints(tmp_path / "spool")
    assert checkpoints.newest(10**9) is None
    checkpoints.save(100, b"early")
    checkpoints.save(2_000, b"late")
    for found in (checkpoints, Checkpoints(tmp_path / "spool")):
        assert found.newest(99) is None
        assert found.newest(100) == Checkpoint(100, b"early")
        assert found.newest(1_999) == Checkpoint(100, b"early")
        assert found.newest(2_000) == Checkpoint(2_000, b"late")
        assert found.damaged == []


def test_two_are_kept_and_the_log_is_needed_from_the_older_one(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.needed_from is None
    checkpoints.save(10, b"")
    assert checkpoints.needed_from is None, "with one alone, the log from its start is the other"
    checkpoints.save(20, b"")
    assert checkpoints.needed_from == 10
    checkpoints.save(30, b"")
    assert checkpoints.needed_from == 20
    assert len(list(tmp_path.iterdir())) == 2


def test_a_draft_that_a_kill_left_goes_with_the_next_checkpoint(tmp_path):
    draft = tmp_path / f"{7:020}.checkpoint.new"
    draft.write_bytes(bytes(2**20))
    checkpoints = Checkpoints(tmp_path)
    assert draft.exists(), "it may be of a collector that has the lock"
    checkpoints.save(10, b"")
    assert [path.name for path in tmp_path.iterdir()] == [f"{10:020}.checkpoint"]


def test_the_log_is_needed_from_where_the_states_that_are_kept_need_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1_000, b"", since=400)
    checkpoints.save(2_000, b"", since=300)
    assert checkpoints.needed_from == 300
    checkpoints.save(3_000, b"")
    assert Checkpoints(tmp_path).needed_from == 300
    checkpoints.save(4_000, b"")
    assert checkpoints.needed_from == 3_000
    assert checkpoints.newest(2**63) == Checkpoint(4_000, b"")


@pytest.mark.parametrize("since", [None, 7])
def test_how_far_back_the_log_is_needed_is_under_the_checksum(tmp_path, since):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"state", since=since)
    (path,) = tmp_path.glob("*.checkpoint")
    content = bytearray(path.read_bytes())
    content[28] ^= 1
    path.write_bytes(content)
    assert checkpoints.newest(10) is None


def test_saving_again_at_the_same_position_replaces(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"first")
    checkpoints.save(10, b"second")
    assert checkpoints.newest(10) == Checkpoint(10, b"second")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damage_is_passed_over_and_told(tmp_path, data):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"sound")
    checkpoints.save(20, os.urandom(50))
    path = tmp_path / f"{20:020}.checkpoint"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert checkpoints.newest(10**6) == Checkpoint(10, b"sound")
    assert checkpoints.damaged[0].startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["open", "listdir"])
def test_without_a_free_descriptor_none_is_called_damaged(tmp_path, disk, name):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"state")
    checkpoints.save(20, b"newer")
    with disk.failing((name,), OSError(errno.EMFILE, os.strerror(errno.EMFILE)), after=0, times=9):
        for _ in range(9):
            with pytest.raises(FullError, match="Too many open files"):
                checkpoints.newest(100)
        assert checkpoints.newest(100) == Checkpoint(20, b"newer")
    assert checkpoints.damaged == []


def test_one_under_another_name_is_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"state")
    (tmp_path / f"{10:020}.checkpoint").rename(tmp_path / f"{30:020}.checkpoint")
    assert checkpoints.newest(100) is None
    assert "should hold" in checkpoints.damaged[0]


def test_without_room_the_ones_before_stay(tmp_path, disk):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"before")
    for names, number in ((disk.WRITES, errno.ENOSPC), (("open",), errno.EMFILE)):
        for after in range(2):
            with (
                disk.failing(names, OSError(number, os.strerror(number)), after=after),
                pytest.raises(FullError, match=os.strerror(number)),
            ):
                checkpoints.save(20, b"state")
            assert checkpoints.newest(100) == Checkpoint(10, b"before")
    checkpoints.save(20, b"state")
    assert checkpoints.newest(100) == Checkpoint(20, b"state")


@pytest.mark.parametrize("after", range(2))
def test_a_failed_sync_is_told(tmp_path, disk, after):
    checkpoints = Checkpoints(tmp_path)
    with (
        disk.failing(disk.SYNCS, OSError(errno.EIO, "Input/output error"), after=after),
        pytest.raises(SyncError),
    ):
        checkpoints.save(20, b"state")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        Checkpoints(tmp_path / "file")


CALLS = [lambda checkpoints: checkpoints.save(30, b""), lambda checkpoints: checkpoints.needed_from]


@pytest.mark.parametrize("call", CALLS, ids=["save", "needed_from"])
@pytest.mark.parametrize(
    ("error", "means"),
    [(errno.ENOENT, LostError), (errno.EMFILE, FullError), (errno.EIO, SyncError)],
)
def test_a_directory_that_cannot_be_listed_is_told_by_what_that_means(
    tmp_path, monkeypatch, call, error, means
):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, b"")
    checkpoints.save(20, b"")

    def names(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(FileSystem, "names", names)
    with pytest.raises(means, match=str(tmp_path)):
        call(checkpoints)


def test_nothing_is_released_while_a_checkpoint_cannot_be_read(tmp_path, monkeypatch):
    """It may need the log from far below its position."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1_000, b"", since=400)
    checkpoints.save(2_000, b"")

    def unreadable(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "read", unreadable)
        with pytest.raises(FullError, match=str(tmp_path)):
            _ = checkpoints.needed_from
    assert checkpoints.needed_from == 400


def test_a_directory_that_is_removed_is_lost(tmp_path):
    checkpoints = Checkpoints(tmp_path / "spool")
    shutil.rmtree(tmp_path / "spool")
    for call in CALLS:
        with pytest.raises(LostError):
            call(checkpoints)
