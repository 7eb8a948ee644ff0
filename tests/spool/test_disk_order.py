"""Tell from the calls alone what is on disk at each moment: no power has to be cut for that.

`Volatile` follows each call that changes the disk, and knows what a power cut would still take.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.entry import EntryKind
from tests.spool.conftest import kill


class Volatile:
    """Names of files whose bytes, and of those whose names, a power cut would take now."""

    def __init__(self) -> None:
        self.bytes: set[str] = set()
        self.names: set[str] = set()
        self.given_name: dict[str, set[str]] = {}
        """For each name given by a rename: what was volatile at that moment."""

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("pwritev", "ftruncate", "posix_fallocate"):
                patch.setattr(os, name, self._changing(getattr(os, name)))
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._syncing(getattr(os, name)))
            patch.setattr(os, "rename", self._renaming(os.rename))
            patch.setattr(os, "replace", self._renaming(os.replace))
            patch.setattr(os, "unlink", self._unlinking(os.unlink))
            yield

    def _changing(self, call: Callable[..., int]) -> Callable[..., int]:
        def wrapped(fd: int, *args: object) -> int:
            path = _path(fd)
            self.bytes.add(path.name)
            return call(fd, *args)

        return wrapped

    def _syncing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def wrapped(fd: int) -> None:
            call(fd)
            if _path(fd).is_dir():
                self.names.clear()
            self.bytes.discard(_path(fd).name)

        return wrapped

    def _renaming(self, call: Callable[..., None]) -> Callable[..., None]:
        def wrapped(old: Path, new: Path) -> None:
            if old.name[0].isdigit():
                self._vanishing()
            call(old, new)
            self.given_name[new.name] = self.bytes | self.names
            if old.name in self.bytes:
                self.bytes.discard(old.name)
                self.bytes.add(new.name)
            self.names.add(new.name)

        return wrapped

    def _unlinking(self, call: Callable[..., None]) -> Callable[..., None]:
        def wrapped(path: Path) -> None:
            if path.name[0].isdigit():
                self._vanishing()
            call(path)
            self.bytes.discard(path.name)
            self.names.add(path.name)

        return wrapped

    def _vanishing(self) -> None:
        assert not self.names, "segments vanish one by one"


def _path(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


WAITING = {"next.segment", "lock"}
"""May be volatile: the one is not part of the log yet, the other matters to the living alone."""


def test_when_a_sync_returns_no_power_cut_can_take_anything(open_spool):
    volatile = Volatile()
    with volatile.followed():
        spool = open_spool()
        assert volatile.bytes | volatile.names <= WAITING
        sealed: set[str] = set()
        for index in range(12):
            spool.append(EntryKind.DATA, index, bytes(1000))
            spool.sync()
            # Room that was given back behind the end of a finished segment may come back.
            sealed |= {path.name for path in sorted(spool.directory.glob("0*.segment"))[:-1]}
            assert volatile.bytes | volatile.names <= WAITING | sealed
    assert len(sealed) >= 3


def test_when_a_close_returns_what_it_gave_back_does_not_come_again(open_spool):
    volatile = Volatile()
    spool = open_spool()
    for index in range(12):
        spool.append(EntryKind.DATA, index, bytes(1000))
    spool.sync()
    spool.release(spool.durable - 1)
    with volatile.followed():
        spool.close()
    assert (volatile.bytes, volatile.names) == (set(), set())


def test_a_segment_gets_its_name_when_all_before_it_and_its_header_are_on_disk(open_spool):
    volatile = Volatile()
    with volatile.followed():
        spool = open_spool()
        for index in range(12):
            spool.append(EntryKind.DATA, index, bytes(1000))
        spool.sync()
    segments = sorted(spool.directory.glob("0*.segment"))
    assert len(segments) >= 4
    for index, path in enumerate(segments):
        sealed = {before.name for before in segments[: max(0, index - 1)]}
        assert volatile.given_name[path.name] <= sealed | {"lock"}


def test_what_recovery_finds_behind_the_end_is_gone_for_good_before_anything_is_written(open_spool):
    spool = open_spool()
    spool.append(EntryKind.DATA, 1, bytes(100))
    spool.sync()
    kill(spool)
    path = max(spool.directory.glob("0*.segment"))
    with path.open("r+b") as file:
        file.seek(-200, os.SEEK_END)
        file.write(b"torn")
    volatile = Volatile()
    with volatile.followed():
        assert open_spool().recovery.leftovers
        assert b"torn" not in path.read_bytes()
        assert volatile.bytes | volatile.names <= WAITING


def test_a_checkpoint_gets_its_name_when_it_is_on_disk(tmp_path):
    volatile = Volatile()
    checkpoints = Checkpoints(tmp_path)
    with volatile.followed():
        for position in (10, 20, 30, 40):
            checkpoints.save(position, b"state")
            assert volatile.bytes | volatile.names == set()
    assert list(volatile.given_name.values()) == [set()] * 4


def test_segments_are_released_one_by_one(open_spool):
    volatile = Volatile()
    spool = open_spool()
    for index in range(12):
        spool.append(EntryKind.DATA, index, bytes(1000))
    spool.sync()
    with volatile.followed():
        spool.release(spool.durable)
        assert volatile.names == set()
    assert len(list(spool.directory.glob("0*.segment"))) == 1


def test_a_file_that_becomes_a_segment_again_leaves_the_log_before_its_header_changes(open_spool):
    spool = open_spool()
    volatile = Volatile()
    for _ in range(6):
        for index in range(12):
            spool.append(EntryKind.DATA, index, bytes(1000))
        spool.sync()
        with volatile.followed():
            spool.release(spool.durable)
    assert any(name.startswith("released-") for name in volatile.given_name)
