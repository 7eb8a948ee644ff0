"""States of the ingest, saved beside the log so that a start need not read all of it.

One file a checkpoint, named by its position: a header of 32 bytes (8s magic with version, u64
position, u64 length, u32 crc32 of position, length and state, 4 zero bytes; little-endian) and the
state, which is opaque here. A file is complete from the moment it has its name.

Checkpoints belong in the spool's own directory: moved together, they always fit together.
Called by one thread at a time.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tailrace.away import make_way
from tailrace.errors import StoreError
from tailrace.spool import disk

MAGIC = b"tailckp1"
KEPT = 2
"""Two, so that one file the disk spoiled does not cost reading the whole log."""

_HEADER = struct.Struct("<8sQQI4x")
_COVERED = struct.Struct("<QQ")
_NAME = re.compile(r"(\d{20})\.checkpoint")


class Checkpoint(NamedTuple):
    """The state the ingest had when it had taken in all entries below `position`."""

    position: int
    state: bytes


class Checkpoints:
    """The checkpoints in one directory, which is made if it is missing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged: list[str] = []
        """What `newest` passed over, and why: one sentence a file."""
        try:
            disk.make_directory(directory)
            for path in self._files().values():
                make_way(path)  # or `save` could not replace it, and would end the process
        except OSError as error:
            raise StoreError(f"{directory}: {error.strerror}") from error

    @property
    def oldest_position(self) -> int | None:
        """Up to here the log may be released; None, and nothing may, while there are fewer than two."""
        files = self._files()
        return min(files) if len(files) >= KEPT else None

    def save(self, position: int, state: bytes) -> None:
        """Save durably, then delete all but the newest two.

        To be called once the table holds all rows from below `position`: a start needs a checkpoint
        that is not beyond the commit. Raise FullError or SyncError; those saved before stay.
        """
        covered = _COVERED.pack(position, len(state))
        header = _HEADER.pack(MAGIC, position, len(state), crc32(state, crc32(covered)))
        disk.replace(self.directory / f"{position:020}.checkpoint", header + state)
        files = self._files()
        for at in sorted(files)[:-KEPT]:
            with disk.writing(files[at]):
                files[at].unlink()
        disk.sync_directory(self.directory)

    def newest(self, not_beyond: int) -> Checkpoint | None:
        """Return the newest sound one whose position is at most this, or None."""
        files = self._files()
        for position in sorted(files, reverse=True):
            if position <= not_beyond:
                try:
                    return Checkpoint(position, _read(files[position], position))
                except (OSError, ValueError) as error:
                    self.damaged.append(f"{files[position]}: {error}")
        return None

    def _files(self) -> dict[int, Path]:
        found = ((_NAME.fullmatch(path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in found if match}


def _read(path: Path, position: int) -> bytes:
    """Return the state; raise ValueError when it is not what was saved."""
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise ValueError("is shorter than its header")
    magic, at, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"format {magic!r} is not {MAGIC!r}, the only one this version reads")
    state = data[_HEADER.size :]
    if at != position or length != len(state):
        raise ValueError(f"holds {len(state)} bytes at {at} and should hold {length} at {position}")
    if crc32(state, crc32(_COVERED.pack(at, length))) != checksum:
        raise ValueError("its checksum is wrong")
    return state
