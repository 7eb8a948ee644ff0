"""Describe one file of a producer while it is written, and the content that can be read of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tests.traffic.pieces import inflated

Tree = Mapping[str, bytes]
"""Contents by path. Paths are relative and have "/"."""


class Incarnation(NamedTuple):
    """One stream from its first to its last byte, as a reader that missed nothing has read it."""

    names: tuple[str, ...]
    """All names that the stream's file has had, below the target."""
    data: bytes
    """The content without compression."""
    stale: int
    """Number of bytes at the file's end that belong to an earlier incarnation."""
    documents: Tree
    """All documents of the stream's run."""


class Stream:
    """One incarnation while it grows. `raw` is the content of the file."""

    def __init__(self, target: Path, name: str, flags: int, documents: Tree) -> None:
        self.raw = bytearray()
        self.names = [name]
        self._target = target
        self._documents = documents
        self._at = 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | flags, 0o644)

    @property
    def path(self) -> Path:
        return self._target / self.names[-1]

    def keep(self, old: Stream) -> None:
        """Keep bytes of an earlier incarnation that are still there."""
        self.raw[:] = old.raw

    def write(self, data: bytes) -> None:
        if self._file is None:  # This is the same process running another program.
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        write_all(self._file, data)
        self.raw[self._at : self._at + len(data)] = data
        self._at += len(data)

    def rename(self) -> str:
        name = PurePosixPath(self.names[-1])
        path = self.path
        self.names.append(str(name.with_name(f"moved-{name.name}")))
        path.rename(self.path)
        return f"rename {name}"

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def incarnation(self) -> Incarnation:
        data = bytes(self.raw)
        if self.names[0].endswith(".gz"):
            data = inflated(data)
        return Incarnation(tuple(self.names), data, len(self.raw) - self._at, dict(self._documents))


def write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
