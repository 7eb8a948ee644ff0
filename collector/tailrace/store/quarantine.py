"""Keep bytes that could not be decoded, so that users can inspect them.

Each session has a file of frames (`model.quarantine`) of at most `session_size`. Before all files together exceed
`max_size`, the least recently written file is removed. If its session continues, its new file begins with a hole: a
frame without a reason, in place of the removed bytes. If another program has cut off a part of a file, a hole takes its
place, too. File sizes are rounded up to whole blocks, which also limits the number of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

from tailrace import owned
from tailrace.config.schema import QuarantineConfig
from tailrace.filesystem import make_way, move_away
from tailrace.model.quarantine import frame, whole_size
from tailrace.owned import fsync
from tailrace.store.refusal import refusing, syncing

SUFFIX = ".frames"

_BLOCK = 4096
_SMALLEST = len(frame(0, "", b""))
_NAME_MAX = 200
_UNSAFE = re.compile(rb"[^A-Za-z0-9_:@+-]")


class Quarantine:
    """The quarantine files in one directory, which is created if it is missing. Only one thread at a time may use it."""

    def __init__(self, directory: Path, config: QuarantineConfig) -> None:
        self.directory = directory
        self.config = config
        # Size (bytes) of each file by name, the least recently written file first.
        self._sizes: dict[str, int] = {}
        self._unsynced: set[str] = set()
        with refusing(directory, "open the quarantine"):
            _make(directory)
            found = []
            for path in sorted(directory.glob(f"*{SUFFIX}")):
                make_way(path)
                if path.exists():
                    found.append((path.stat(), path.name))
        for status, name in sorted(found, key=lambda item: item[0].st_mtime_ns):
            self._sizes[name] = status.st_size
        self.size = sum(map(_charge, self._sizes.values()))
        """Sum of the sizes of all files in bytes, each rounded up to blocks."""

    def write(self, session: str, at: int, data: bytes) -> bool:
        """Write the bytes of a frame at offset `at` of the session's file. Return False if a limit would be exceeded.

        The offset `at` includes the session's earlier frames that were not written, so a replay writes the same bytes
        to the same offsets. Raise FullError or StoreError if the write fails; the call may be repeated."""
        name = file_name(session)
        size = max(at + len(data), self._sizes.get(name, 0))
        if size > self.config.session_size or _charge(size) > self.config.max_size:
            return False
        more = _charge(size) - _charge(self._sizes.get(name, 0))
        self._make_room(name, more)
        with refusing(self.directory, "quarantine bytes"):
            self._write(self.directory / name, at, data)
        self._sizes.pop(name, None)
        self._sizes[name] = size
        self.size += more
        self._unsynced.add(name)
        return True

    def keep(self, pieces: Iterable[tuple[str, int, bytes]]) -> None:
        """Write frames of unreadable bytes, each given by session, offset and bytes (see `write`), and sync the written
        files. Raise FullError or StoreError if a file cannot be written or opened: the call may be repeated then. Raise
        SyncError if a sync fails."""
        for session, at, data in pieces:
            self.write(session, at, data)
        with syncing(f"{self.directory}:"):
            for name in self._unsynced & self._sizes.keys():
                with suppress(FileNotFoundError):  # another program has removed the file
                    fsync(self.directory / name)
            fsync(self.directory)
        self._unsynced.clear()

    def _make_room(self, name: str, more: int) -> None:
        """Remove the least recently written files, but not the file `name`, until `more` bytes fit."""
        while self.size + more > self.config.max_size:
            oldest = next(other for other in self._sizes if other != name)
            with refusing(self.directory, "remove quarantined bytes"):
                (self.directory / oldest).unlink(missing_ok=True)
            self.size -= _charge(self._sizes.pop(oldest))

    def _write(self, path: Path, at: int, data: bytes) -> None:
        make_way(path)
        try:
            fd = owned.open_file(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            _make(self.directory)  # Create the directory again if another program has removed it
            fd = owned.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            end = os.fstat(fd).st_size
            # If another program has cut off a part of the file, overwrite the frame that is incomplete now: the hole
            # begins there.
            begin = whole_size(os.pread(fd, end, 0)) if end < at else at
            hole = at - begin
            if 0 < hole < _SMALLEST:
                raise ValueError(f"{path}: no frame can end {hole} bytes after the last one")
            with owned.whole_or_nothing(fd, end):
                if hole > 0:
                    owned.write_at(fd, frame(0, "", bytes(hole - _SMALLEST))[:_SMALLEST], begin)
                owned.write_at(fd, data, at)
        finally:
            os.close(fd)


def _make(directory: Path) -> None:
    if os.path.lexists(directory) and not directory.is_dir():
        move_away(directory)
    directory.mkdir(0o700, parents=True, exist_ok=True)


def file_name(session: str) -> str:
    """Return the name of a session's quarantine file, which is safe in a file system and unique for the session."""
    name = _UNSAFE.sub(
        lambda match: b"%%%02X" % match[0][0], session.encode(errors="surrogatepass")
    )
    if len(name) > _NAME_MAX:
        digest = blake2s(name, digest_size=16).hexdigest().encode()
        name = name[: _NAME_MAX - len(digest)] + digest
    return (name.decode() or "%") + SUFFIX


def _charge(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
