"""Checkpoints of the ingest's state, beside the log, so that a start need not decode the whole log.

One file for each checkpoint, named by its position: a header of 32 bytes (8s magic with version, u64
position, u64 length, u32 crc32 of position, length, reach unless it is 0, and state, u32 reach;
little-endian), then the state, which is opaque here. A file that has its name is complete.
The *reach* is how many bytes of the log before its position the state still needs.

Checkpoints belong in the spool's own directory, so that whoever moves the spool moves them with it.
One thread at a time may call this module.
"""

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
"""Two, so that one damaged file does not make a start decode the whole log."""

_HEADER = struct.Struct("<8sQQII")
_COVERED = struct.Struct("<QQ")
_REACH = struct.Struct("<I")
_NAME = re.compile(r"(\d{20})\.checkpoint")
_DRAFT = re.compile(r"\d{20}\.checkpoint\.new")


class Checkpoint(NamedTuple):
    """The ingest's state after all entries below `position`."""

    position: int
    state: bytes


class Checkpoints:
    """The checkpoints in one directory, which is made if it is missing."""

    def __init__(self, directory: Path, disk: Disk = SYSTEM) -> None:
        self.directory = directory
        self._disk = disk
        self.size_max: int | None = None
        """Files larger than this many bytes are not read; None sets no limit."""
        self.too_large: list[str] = []
        """The files that `newest` did not read because of `size_max`: one sentence each."""
        self.damaged: list[str] = []
        """The files that `newest` passed over as damaged, and why: one sentence each."""
        try:
            disk.make_directory(directory)
            for path in self._files().values():
                # `save` could not replace an obstacle, and would end the process.
                disk.files.make_way(path)
        except OSError as error:
            raise StoreError(f"{directory}: {refusal_text(error.errno, directory)}") from error

    @property
    def needed_from(self) -> int | None:
        """The position up to which the log may be released; None (release nothing) with fewer than two files. To read it
        raises LostError or SyncError, and FullError if a file cannot be read for now."""
        with opening(self.directory):
            files = self._files()
        if len(files) < KEPT:
            return None
        try:
            return min(position - self._reach(path) for position, path in files.items())
        except OSError as error:
            raise FullError(
                f"{self.directory}: {refusal_text(error.errno, self.directory)}"
            ) from error

    @property
    def size(self) -> int:
        """The size of the largest file in bytes; 0 while there is none."""
        return max((self._disk.size(path) for path in self._files().values()), default=0)

    def save(self, position: int, state: bytes, *, since: int | None = None) -> None:
        """Save a checkpoint durably, then delete all but the newest two, and what a kill left of another one.

        The state needs the log from `since` on, by default from its own position. Call this once the table
        holds all rows from below `position`: a start needs a checkpoint that is not beyond the commit.
        Raise FullError, LostError or SyncError; the earlier checkpoints stay.
        """
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
        """Return the newest sound checkpoint at or below the position `not_beyond`, or None.

        Raise FullError when no descriptor is free: the files may be sound."""
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
        """Return how many bytes of log before its position a checkpoint needs; 0 if it is torn. Raise OSError."""
        header = self._disk.read(path, _HEADER.size)
        return int(_HEADER.unpack(header)[-1]) if len(header) == _HEADER.size else 0

    def _read(self, path: Path, position: int, size: int) -> bytes:
        """Return the state. Raise ValueError when it is not what was saved."""
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
