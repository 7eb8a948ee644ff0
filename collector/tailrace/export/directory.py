"""A directory that has its name only once it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self

from tailrace.errors import ExportError
from tailrace.filesystem import refusal_text


class Directory:
    """Where an export of many files goes: a directory that is not there yet, or is empty.

    Leave the context without an exception, and the directory gets its name. Methods raise ExportError when a file
    cannot be made; writing to a file raises OSError, which leaving the context turns into ExportError."""

    pipe = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._named = Path(os.path.realpath(path))
        self._part = self._named.with_name(f".{self._named.name}.{os.getpid()}.part")
        self._check()
        try:
            self._part.mkdir()
        except OSError as error:
            raise ExportError(
                f"{path}: cannot be made: {refusal_text(error.errno, path)}"
            ) from error

    @property
    def names(self) -> list[Path]:
        return [Path(self.path)]

    def has(self, name: PurePosixPath) -> bool:
        """Return whether there is a file or directory of this name."""
        return os.path.lexists(self._part / name)

    @contextmanager
    def file(self, name: PurePosixPath) -> Iterator[BinaryIO]:
        """Make a file; `name` is relative and does not lead out of the directory."""
        path = self._part / name
        if name.is_absolute() or ".." in name.parts:
            raise ExportError(f"{self.path}: {name} is not in it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        except OSError as error:
            why = refusal_text(error.errno, path)
            raise ExportError(f"{self.path}/{name}: cannot be written: {why}") from error
        with file:
            yield file

    def place(self, name: str) -> Path:
        """Return the path at which a library is to make a file of this name by itself."""
        return self._part / name

    def remove(self, name: PurePosixPath) -> None:
        """Remove a file, and the directories that are empty without it."""
        path = self._part / name
        path.unlink()
        for parent in path.parents:
            if parent == self._part or any(parent.iterdir()):
                break
            parent.rmdir()

    def restart(self) -> None:
        """Remove what was written, so that it can be written anew."""
        shutil.rmtree(self._part)
        self._part.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        except OSError as failure:
            error = failure
        finally:
            shutil.rmtree(self._part, ignore_errors=True)
        if isinstance(error, OSError):
            raise ExportError(f"{self.path}: {refusal_text(error.errno, self.path)}") from error

    def _check(self) -> None:
        if os.path.lexists(self._named) and not self._named.is_dir():
            raise ExportError(f"{self.path}: is a file; name a directory")
        if self._named.is_dir() and any(self._named.iterdir()):
            raise ExportError(f"{self.path}: is not empty; name another directory")

    def _finish(self) -> None:
        """Sync all files and directories, then give this one its name, which an empty directory may have."""
        for directory, _, files in os.walk(self._part):
            for name in files:
                _sync(Path(directory, name))
            _sync(directory)
        self._part.replace(self._named)
        _sync(self._named.parent)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
