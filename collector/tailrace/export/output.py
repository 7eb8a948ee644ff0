"""Files that have their names only once they are whole: `PATH`, and others beside it (`trace.gaps.csv`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tailrace.errors import ExportError
from tailrace.filesystem import refusal_text

STANDARD_OUTPUT = "-"


class Output:
    """Where an export goes. Leave the context without an exception, and the files get their names.

    Standard output, a pipe and a device take one file, and nothing beside it. Methods raise ExportError when
    a file cannot be made; writing to a file raises OSError, which leaving the context turns into
    ExportError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._named = Path(path)
        self.pipe = path == STANDARD_OUTPUT or (self._named.exists() and not self._named.is_file())
        if self._named.is_dir():
            raise ExportError(f"{path}: is a directory; name a file in it")
        self._files: list[tuple[BinaryIO, Path, Path]] = []
        self._stream: BinaryIO | None = None

    def main(self) -> BinaryIO:
        if not self.pipe:
            return self._make(self._named)
        if self._stream is None:
            self._stream = self._open_pipe()
        return self._stream

    def beside(self, word: str) -> BinaryIO | None:
        """Return a file whose name has one more word before its suffix, or None where there is one file."""
        if self.pipe:
            return None
        named = self._named
        return self._make(named.with_name(f"{named.stem}.{word}{named.suffix}"))

    @property
    def names(self) -> list[Path]:
        """Return the names of all files, the main one first."""
        return [name for _, name, _ in self._files]

    def restart(self) -> None:
        """Remove what was written, so that it can be written anew. Raise ExportError if it has been read."""
        if self.pipe:
            raise ExportError("the table's files were deleted while they were read; ask again")
        self._discard()
        self._files.clear()

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

    def _make(self, path: Path) -> BinaryIO:
        place = Path(os.path.realpath(path))  # a link stays, and the file that it names is replaced
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            file = part.open("wb")
        except OSError as error:
            raise ExportError(
                f"{path}: cannot be written: {refusal_text(error.errno, path)}"
            ) from error
        self._files.append((file, path, part))
        return file

    def _open_pipe(self) -> BinaryIO:
        if self.path == STANDARD_OUTPUT:
            return sys.stdout.buffer
        try:
            return self._named.open("wb")
        except OSError as error:
            raise ExportError(f"{self.path}: cannot be written: {self._reason(error)}") from error

    def _finish(self) -> None:
        """Sync all files and name them, the main one last: where it is, the others are."""
        if self._stream is not None:
            self._stream.flush()
        for file, _, _ in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for _, path, part in reversed(self._files):
            part.replace(os.path.realpath(path))

    def _discard(self) -> None:
        """Close all files, and remove those that have no name yet."""
        if self._stream not in {None, sys.stdout.buffer}:
            with suppress(OSError):  # what it holds has no room, which was said
                self._stream.close()
        for file, _, part in self._files:
            with suppress(OSError):
                file.close()
            part.unlink(missing_ok=True)
