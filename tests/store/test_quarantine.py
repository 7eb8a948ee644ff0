from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.schema import KIB, QuarantineConfig
from tailrace.errors import FullError, StoreError, SyncError
from tailrace.model.quarantine import QuarantineFrame, frame, frames
from tailrace.store.quarantine import SUFFIX, Quarantine, file_name
from tailrace.units import Size


def frames_of(quarantine, session, at=0):
    """Return the frames in a session's file, without those that stand for removed bytes."""
    path = quarantine.directory / file_name(session)
    data = path.read_bytes() if path.exists() else b""
    return [found for found in frames(data[at:]) if found.reason]


def _config(*, total=1024 * KIB, session=64 * KIB):
    return QuarantineConfig(max_size=Size(total), session_size=Size(session))


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "quarantine"


def _fill(quarantine, session, sizes, *, at=0):
    """Write a frame of each size, one after the other; where each begins."""
    places = []
    for number, size in enumerate(sizes):
        places.append(at)
        data = frame(number, "garbage", bytes([number % 256]) * size)
        quarantine.write(session, at, data)
        at += len(data)
    return places


def test_frames_are_read_as_they_were_written_and_from_each_position(directory):
    quarantine = Quarantine(directory, _config())
    places = _fill(quarantine, "a/b", [3, 0, 500])
    expected = [QuarantineFrame(n, "garbage", bytes([n]) * s) for n, s in enumerate([3, 0, 500])]
    assert frames_of(quarantine, "a/b") == expected
    assert [frames_of(quarantine, "a/b", at)[0] for at in places] == expected
    assert frames_of(Quarantine(directory, _config()), "a/b") == expected
    assert frames_of(quarantine, "other") == []


def test_a_replay_writes_the_same_bytes_to_the_same_places(directory):
    quarantine = Quarantine(directory, _config())
    places = _fill(quarantine, "s", [10, 20, 30])
    [file] = directory.iterdir()
    before = file.read_bytes()
    again = Quarantine(directory, _config())
    for number in (1, 2):
        again.write(
            "s", places[number], frame(number, "garbage", bytes([number]) * (10 + 10 * number))
        )
    assert file.read_bytes() == before
    assert again.size == quarantine.size


def test_a_session_keeps_its_share_and_no_more(directory):
    quarantine = Quarantine(directory, _config(session=4 * KIB))
    first = frame(0, "garbage", bytes(4000))
    assert quarantine.write("s", 0, first)
    assert not quarantine.write("s", len(first), frame(4000, "garbage", bytes(100)))
    assert quarantine.write("s", len(first), frame(4000, "garbage", bytes(10)))
    assert [len(kept.data) for kept in frames_of(quarantine, "s")] == [4000, 10]


def test_the_file_written_longest_ago_goes_first(directory):
    quarantine = Quarantine(directory, _config(total=12 * KIB))
    for session in ("one", "two", "three"):
        quarantine.write(session, 0, frame(0, "garbage", b"x"))
    quarantine.write("one", len(frame(0, "garbage", b"x")), frame(1, "garbage", b"y"))
    quarantine.write("four", 0, frame(0, "garbage", b"x"))
    kept = {
        session: len(frames_of(quarantine, session)) for session in ("one", "two", "three", "four")
    }
    assert kept == {"one": 2, "two": 0, "three": 1, "four": 1}


def test_which_file_is_oldest_is_known_after_a_restart(directory):
    quarantine = Quarantine(directory, _config())
    for age, session in enumerate(("newest", "middle", "oldest")):
        quarantine.write(session, 0, frame(0, "garbage", b"x"))
        os.utime(directory / file_name(session), (10**9 - age, 10**9 - age))
    again = Quarantine(directory, _config(total=12 * KIB))
    again.write("next", 0, frame(0, "garbage", b"x"))
    assert frames_of(again, "oldest") == []
    assert frames_of(again, "middle")


def test_a_session_that_goes_on_after_its_file_was_removed_is_read_from_there(directory):
    quarantine = Quarantine(directory, _config(total=8 * KIB))
    _fill(quarantine, "s", [100, 200])
    end = len(frame(0, "garbage", bytes(100))) + len(frame(1, "garbage", bytes(200)))
    quarantine.write("t", 0, frame(0, "garbage", b"x"))
    quarantine.write("u", 0, frame(0, "garbage", b"x"))
    assert frames_of(quarantine, "s") == []
    quarantine.write("s", end, frame(300, "late", b"abc"))
    assert frames_of(quarantine, "s") == [QuarantineFrame(300, "late", b"abc")]
    assert frames_of(quarantine, "s", end) == [QuarantineFrame(300, "late", b"abc")]
    # A replay from the session's beginning brings back what was removed.
    _fill(quarantine, "s", [100, 200])
    assert [found.offset for found in frames_of(quarantine, "s")] == [0, 1, 300]


def test_a_session_goes_on_after_somebody_cut_its_file(directory):
    expected = [QuarantineFrame(n, "garbage", bytes([n]) * s) for n, s in enumerate([3, 40, 5])]
    whole = [len(frame(*each)) for each in expected]
    for left in range(sum(whole[:2])):
        quarantine = Quarantine(directory, _config())
        _fill(quarantine, "s", [3, 40])
        [file] = directory.iterdir()
        os.truncate(file, left)
        quarantine.write("s", sum(whole[:2]), frame(*expected[2]))
        assert frames_of(quarantine, "s") == [*expected[: left >= whole[0]], expected[2]]
        file.unlink()


def test_a_place_where_no_frame_can_begin_is_refused(directory):
    with pytest.raises(ValueError, match="no frame"):
        Quarantine(directory, _config()).write("s", 5, frame(0, "garbage", b"x"))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9000)), max_size=40),
)
def test_files_never_take_more_than_the_bound_and_what_is_read_was_written(
    tmp_path_factory, writes
):
    directory = tmp_path_factory.mktemp("quarantine")
    limit = 16 * KIB
    quarantine = Quarantine(directory, _config(total=limit, session=10 * KIB))
    ends: dict[str, int] = {}
    written: dict[str, list[QuarantineFrame]] = {}
    for number, size in writes:
        session = f"session {number}"
        at = ends.get(session, 0)
        data = frame(at, "garbage", bytes([number]) * size)
        quarantine.write(session, at, data)
        ends[session] = at + len(data)
        written.setdefault(session, []).append(
            QuarantineFrame(at, "garbage", bytes([number]) * size)
        )
        blocks = sum(-(-path.stat().st_size // 4096) for path in directory.iterdir())
        assert blocks * 4096 == quarantine.size <= limit
        for one, expected in written.items():
            kept = frames_of(quarantine, one)
            assert all(found in expected for found in kept)


@settings(deadline=None)
@given(st.lists(st.text(max_size=400), unique=True, max_size=6))
def test_every_session_has_a_safe_file_name_of_its_own(sessions):
    names = {file_name(session) for session in sessions}
    assert len(names) == len(sessions)
    for name in names:
        assert name.endswith(SUFFIX)
        assert len(name) <= 255
        assert Path(name).name == name
        assert not name.startswith(".")
        assert name.isprintable()
        assert name.isascii()


def test_a_sync_that_fails_is_a_sync_error(directory, monkeypatch):
    quarantine = Quarantine(directory, _config())
    _fill(quarantine, "s", [10])
    quarantine.keep([])

    def fsync(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SyncError):
        quarantine.keep([])


def test_a_file_that_was_removed_before_the_sync_is_not_missed(directory):
    quarantine = Quarantine(directory, _config(total=4 * KIB))
    quarantine.keep((session, 0, frame(0, "garbage", b"x")) for session in ("one", "two"))
    assert frames_of(quarantine, "two")


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        Quarantine(tmp_path / "file" / "quarantine", _config())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root: run pytest tests/store as root")
def test_a_full_disk_refuses_and_takes_the_same_frame_later(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs ({made.stderr.strip()}): run as root, --privileged")
    try:
        quarantine = Quarantine(tmp_path / "quarantine", _config(session=1024 * KIB))
        big = frame(0, "garbage", bytes(100 * KIB))
        with pytest.raises(FullError):
            quarantine.write("s", 0, big)
        small = frame(0, "garbage", b"x")
        assert quarantine.write("t", 0, small)
        assert frames_of(quarantine, "t") == [QuarantineFrame(0, "garbage", b"x")]
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
