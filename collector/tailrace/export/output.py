"""Write exports to temporary files, rename them when the export is complete, and show the progress."""

from __future__ import annotations

import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self, TextIO

from tailrace.errors import DELETED, ExportError
from tailrace.filesystem import refusal_text
from tailrace.units import counted

EVERY_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class RowCount:
    """Counts the rows that an export has read, and shows the count on `terminal`, if any. When the file is complete,
    `written` sets the count to the number of rows in the file."""

    def __init__(self, terminal: TextIO | None) -> None:
        self.rows = 0
        self._terminal = terminal
        self._of = 0
        self._said = time.monotonic()

    def begin(self, of: int) -> None:
        """Start to count rows at 0. `of` is the approximate number of rows that the export will read."""
        self.rows = 0
        self._of = of

    def add(self, rows: int) -> None:
        self.rows += rows
        now = time.monotonic()
        if self._terminal and now >= self._said + EVERY_SECONDS:
            self._said = now
            share = f" ({min(self.rows / self._of, 1):.0%})" if self._of else ""
            self._terminal.write(
                f"{_CLEAR}exporting ... {counted(self.rows, 'row', grouped=True)}{share}"
            )
            self._terminal.flush()

    def written(self, rows: int) -> None:
        """Set the count to the number of rows in the written file, which may lack some that were read."""
        self.rows = rows

    def end(self) -> None:
        if self._terminal:
            self._terminal.write(_CLEAR)
            self._terminal.flush()


STANDARD_OUTPUT = "-"


class ExportTarget(ABC):
    """The files of an export, with temporary names until the `with` block ends without an exception. Methods raise
    ExportError if a file cannot be created. After an OSError within the block, other than BrokenPipeError, its end
    raises ExportError."""

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def restart(self) -> None:
        """Remove the files written so far, for a new attempt. Raise ExportError if the output is a pipe."""

    @abstractmethod
    def _finish(self) -> None:
        """Sync all files, and give them their final names."""

    @abstractmethod
    def _discard(self) -> None:
        """Close and remove the files that still have temporary names."""

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
            self._discard()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise ExportError(f"{self.path}: {self._reason(error)}") from error

    def _reason(self, error: OSError) -> str:
        if self.path == STANDARD_OUTPUT:
            return os.strerror(error.errno or 0)
        return refusal_text(error.errno, self.path)


class Output(ExportTarget):
    """The main file of an export, and the files beside it. Standard output, a pipe and a device take only one file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._named = Path(path)
        self.pipe = path == STANDARD_OUTPUT or (self._named.exists() and not self._named.is_file())
        if self._named.is_dir():
            raise ExportError(f"{path}: is a directory; name a file in it")
        self._files: list[tuple[BinaryIO, Path, Path]] = []
        self._stream: BinaryIO | None = None

    def main(self) -> BinaryIO:
        if not self.pipe:
            return self._make(self._named)
        try:
            standard = self.path == STANDARD_OUTPUT
            self._stream = sys.stdout.buffer if standard else self._named.open("wb")
        except OSError as error:
            raise ExportError(f"{self.path}: cannot be written: {self._reason(error)}") from error
        return self._stream

    def beside(self, word: str) -> BinaryIO | None:
        """Create a file beside the main file, with `word` before the suffix of its name. Return None if the output is a
        pipe."""
        if self.pipe:
            return None
        named = self._named
        return self._make(named.with_name(f"{named.stem}.{word}{named.suffix}"))

    @property
    def names(self) -> list[Path]:
        return [name for _, name, _ in self._files]

    def restart(self) -> None:
        if self.pipe:
            raise ExportError(DELETED)
        self._discard()
        self._files.clear()

    def _make(self, path: Path) -> BinaryIO:
        # If the path is a symbolic link, keep the link, and replace the file to which it points.
        place = Path(os.path.realpath(path))
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            file = part.open("wb")
        except OSError as error:
            raise ExportError(
                f"{path}: cannot be written: {refusal_text(error.errno, path)}"
            ) from error
        self._files.append((file, path, part))
        return file

    def _finish(self) -> None:
        # The main file gets its name last: if it exists after a crash, all others exist.
        if self._stream is not None:
            self._stream.flush()
        for file, _, _ in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for _, path, part in reversed(self._files):
            part.replace(os.path.realpath(path))

    def _discard(self) -> None:
        if self._stream not in {None, sys.stdout.buffer}:
            # ignore the error, which was already reported: the disk may be full
            with suppress(OSError):
                self._stream.close()
        for file, _, part in self._files:
            with suppress(OSError):
                file.close()
            part.unlink(missing_ok=True)


class Directory(ExportTarget):
    """The directory of an export of many files."""

    pipe = False

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._named = Path(os.path.realpath(path))
        self._part = self._named.with_name(f".{self._named.name}.{os.getpid()}.part")
        if os.path.lexists(self._named) and not self._named.is_dir():
            raise ExportError(f"{path}: is a file; name a directory")
        if self._named.is_dir() and any(self._named.iterdir()):
            raise ExportError(f"{path}: is not empty; name another directory")
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
        """Return whether the directory already has a file or directory with the relative path `name`."""
        return os.path.lexists(self._part / name)

    @contextmanager
    def file(self, name: PurePosixPath) -> Iterator[BinaryIO]:
        """Create a file. Raise ExportError if that fails, or if `name` is an absolute path or contains ".."."""
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
        """Return the temporary path at which a library must create the file `name` of the export."""
        return self._part / name

    def remove(self, name: PurePosixPath) -> None:
        """Remove a file of the export, and then those of its parent directories that have become empty."""
        path = self._part / name
        path.unlink()
        for parent in path.parents:
            if parent == self._part or any(parent.iterdir()):
                break
            parent.rmdir()

    def restart(self) -> None:
        shutil.rmtree(self._part)
        self._part.mkdir()

    def _discard(self) -> None:
        shutil.rmtree(self._part, ignore_errors=True)

    def _finish(self) -> None:
        for directory, _, files in os.walk(self._part):
            for name in files:
                _sync(Path(directory, name))
            _sync(directory)
        self._part.replace(self._named)  # An empty directory of this name is replaced.
        _sync(self._named.parent)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
