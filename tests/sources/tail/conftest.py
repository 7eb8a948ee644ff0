from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.sources.tail.recorder import Recorder, Tail


class Files:
    """A directory whose files change as a test demands.

    The times of all changes differ, because two changes may come within one tick of the system's clock.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ticks = 0

    def __truediv__(self, name: str) -> Path:
        return self.directory / name

    def write(self, name: str, data: bytes, mode: str = "wb", at: int = 0) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.seek(at, os.SEEK_SET if at or mode == "r+b" else os.SEEK_END)
            file.write(data)
        self.touch(path)
        return path

    def append(self, name: str, data: bytes) -> Path:
        return self.write(name, data, "ab")

    def overwrite(self, name: str, data: bytes, at: int = 0) -> Path:
        return self.write(name, data, "r+b", at)

    def touch(self, path: Path) -> None:
        self.ticks += 1
        os.utime(path, (self.ticks, self.ticks))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "files").mkdir()
    return Files(tmp_path / "files")


@pytest.fixture
def intake():
    return Recorder()


@pytest.fixture
def follow(nursery, files, intake):
    """Return a function that starts a source on the directory, or on some patterns in it.

    The test itself must use `autojump_clock`.
    """

    def start(*patterns: str, **keys) -> Tail:
        paths = [files / pattern for pattern in patterns] or [files.directory]
        return Tail(nursery, intake, *paths, **keys)

    return start


@pytest.fixture
def settle():
    """Wait until everything is read that can be read, and everything has ended that will end."""

    async def wait() -> None:
        await trio.sleep(30)

    return wait


@pytest.fixture
def followed(files, follow, settle):
    """Return a function that starts a source on a directory with one file in it, `a`, and waits until this file is
    read.
    """

    async def read(data: bytes, **keys) -> Tail:
        files.write("a", data)
        tail = follow(**keys)
        await settle()
        return tail

    return read
