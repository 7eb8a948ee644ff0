"""Store checkpoints of the ingest's state next to the log, so that a restart replays only a part of the log.

Each checkpoint is one file, named by its log position: a header of 32 bytes (little-endian), then the state. Header: 8s
magic with version, u64 position, u64 length of the state, u32 crc32, u32 reach. The *reach* is the number of log bytes
before the position that the state still needs. Only one thread at a time may call this module."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from tailrace.errors import FullError, StoreError
from tailrace.filesystem import refusal_text
from tailrace.spool.disk import SYSTEM, Disk, opening, waiting

MAGIC = b"tailckp1"
KEPT = 2
"""Number of checkpoints to keep. If the newest checkpoint's file is damaged, a restart uses an earlier checkpoint."""

_HEADER = struct.Struct("<8sQQII")
_COVERED = struct.Struct("<QQ")
_REACH = struct.Struct("<I")
_NAME = re.compile(r"(\d{20})\.checkpoint")
_DRAFT = re.compile(r"\d{20}\.checkpoint\.new")


class Checkpoint(NamedTuple):
    """The ingest's state after all log entries below `position` were processed."""

    position: int
    state: bytes


class Checkpoints:
    """The checkpoints in one directory, which is created if it is missing."""

    def __init__(self, directory: Path, disk: Disk = SYSTEM) -> None:
        self.directory = directory
        self._disk = disk
        self.size_max: int | None = None
        """Maximum size (bytes) of a checkpoint file that `newest` reads; None sets no limit."""
        self.too_large: list[str] = []
        """Messages, one for each checkpoint file that `newest` skipped because it exceeds `size_max`."""
        self.damaged: list[str] = []
        """Messages, one for each checkpoint file that `newest` skipped because the file is damaged."""
        try:
            disk.make_directory(directory)
            for path in self._files().values():
                # `save` cannot replace a directory or another non-file, and its error would stop the process.
                disk.files.make_way(path)
        except OSError as error:
            raise StoreError(f"{directory}: {refusal_text(error.errno, directory)}") from error

    @property
    def needed_from(self) -> int | None:
        """Return the lowest log position that the kept checkpoints need, or None if there are fewer than `KEPT`. Raise
        FullError if the checkpoints cannot be read now, but perhaps later, and LostError or SyncError if the directory
        cannot be read."""
        with opening(self.directory):
            files = self._files()
        if len(files) < KEPT:
            return None
        try:
            return min(position - self._reach(path) for position, path in files.items())
        except OSError as error:
            text = f"{self.directory}: {refusal_text(error.errno, self.directory)}"
            raise FullError(text) from error

    @property
    def size(self) -> int:
        return max((self._disk.size(path) for path in self._files().values()), default=0)

    def save(self, position: int, state: bytes, *, since: int | None = None) -> None:
        """Save a checkpoint durably, once the table has all rows from entries below `position`. Then delete all but the
        newest `KEPT`. `since` is the lowest log position that a restart needs, by default `position`. Raise FullError,
        LostError or SyncError on failure."""
        reach = 0 if since is None else position - since
        checksum = _checksum(position, reach, state)
        header = _HEADER.pack(MAGIC, position, len(state), checksum, reach)
        self._disk.replace(self.directory / f"{position:020}.checkpoint", header, state)
        with opening(self.directory):
            files, paths = self._files(), self._disk.paths(self.directory)
        left = [path for path in paths if _DRAFT.fullmatch(path.name)]
        with self._disk.naming(self.directory):
            for path in [*(files[at] for at in sorted(files)[:-KEPT]), *left]:
                self._disk.unlink(path)

    def newest(self, not_beyond: int) -> Checkpoint | None:
        """Return the newest valid checkpoint at or below the position `not_beyond`, or None. Raise FullError if no file
        descriptor is free."""
        with waiting(self.directory):
            files = self._files()
        for position in sorted(files, reverse=True):
            if position <= not_beyond:
                try:
                    with waiting(files[position]):
                        size = self._disk.size(files[position])
                        if self.size_max is not None and size > self.size_max:
                            self.too_large.append(f"{files[position]}: has {size} bytes")
                            continue
                        return Checkpoint(position, self._read(files[position], position, size))
                except (OSError, ValueError) as error:
                    self.damaged.append(f"{files[position]}: {error}")
        return None

    def _files(self) -> dict[int, Path]:
        found = ((_NAME.fullmatch(path.name), path) for path in self._disk.paths(self.directory))
        return {int(match[1]): path for match, path in found if match}

    def _reach(self, path: Path) -> int:
        header = self._disk.read(path, _HEADER.size)
        return int(_HEADER.unpack(header)[-1]) if len(header) == _HEADER.size else 0

    def _read(self, path: Path, position: int, size: int) -> bytes:
        header = self._disk.read(path, _HEADER.size)
        if len(header) < _HEADER.size:
            raise ValueError("is shorter than its header")
        state = self._disk.read(path, size, _HEADER.size)
        magic, at, length, checksum, reach = _HEADER.unpack(header)
        if magic != MAGIC:
            raise ValueError(f"format {magic!r} is not {MAGIC!r}, the only one this version reads")
        if at != position or length != len(state):
            raise ValueError(
                f"holds {len(state)} bytes at {at} and should hold {length} at {position}"
            )
        if _checksum(at, reach, state) != checksum:
            raise ValueError("its checksum is wrong")
        return state


def _checksum(position: int, reach: int, state: bytes) -> int:
    covered = _COVERED.pack(position, len(state)) + (_REACH.pack(reach) if reach else b"")
    return crc32(state, crc32(covered))
