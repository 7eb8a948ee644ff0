"""Find out, from directories on this host, which collectors run on a store, and whether the others finished."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace import owned
from tailrace.away import is_file
from tailrace.config.load import COLLECTORS
from tailrace.config.schema import MAIN
from tailrace.store.lock import NAME

UNFINISHED = "unfinished"
"""Name of a file that exists while a collector may have received something that the table lacks."""

IMPORT = b"import"
"""Content of that file while an import has read files in part. A collector's file is empty."""

PORTS = "ports.json"
"""Name of a file that says where a collector listens, for people who configured port 0."""


class RunningCollector(NamedTuple):
    """A collector that runs on a store."""

    pid: int
    addresses: dict[str, str]
    """The addresses of its sources, by name, and of `admin`; empty when the collector does not say."""
    name: str = MAIN


def directories(shared: Path) -> dict[str, Path]:
    """Return the directory of each collector below a directory that they share, by name; `main` has `shared` itself.

    Raise OSError where this process may not look."""
    found = {MAIN: shared}
    with suppress(FileNotFoundError, NotADirectoryError):
        parts = sorted((shared / COLLECTORS).iterdir())
        found |= {path.name: path for path in parts if path.is_dir()}
    return found


def quarantines(shared: Path) -> list[Path]:
    """Return the directories of unreadable bytes of all collectors. Raise OSError where this process may not look."""
    return [directory / "quarantine" for directory in directories(shared).values()]


def find(
    data: Path, directories: Iterable[Path], root: Path = Path("/"), name: str = MAIN
) -> RunningCollector | None:
    """Return the collector of this name, which holds the lock of one of these directories; None if none does.

    `data` is the directory of its `ports.json`; `root` contains the /proc to read. A collector in another
    container or on another host is not seen; `is_finished` tells whether it finished."""
    held = (_holder(directory / NAME, root) for directory in directories)
    pid = next((pid for pid in held if pid is not None), None)
    return None if pid is None else RunningCollector(pid, _addresses(data / PORTS, pid), name)


def begin(data: Path, work: bytes = b"") -> None:
    """Note in a collector's directory that the collector, or an import, has begun. A full disk must not stop it."""
    with suppress(OSError):
        owned.write_file(data / UNFINISHED, work)


class RunningMarks:
    """The files by which others find a collector that runs, and learn that its table lacks something: `ports.json` and
    `unfinished`, in the collector's directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ports = b""
        self._begun = False
        self._work = b""
        self._turn = threading.Lock()
        """Held while files are written, checked or removed: any thread checks, and two that write one file at once spoil it."""

    def begin(self, work: bytes = b"") -> None:
        """Note that the collector, or an import, has begun."""
        with self._turn:
            begin(self._data, work)
            self._begun, self._work = True, work

    def finish(self) -> None:
        """Note that everything received is in the table."""
        with self._turn, suppress(OSError):
            self._begun = False
            (self._data / UNFINISHED).unlink(missing_ok=True)

    def write_ports(self, ports: dict[str, object]) -> None:
        """Write where the collector listens. Raise OSError."""
        with self._turn:
            self._ports = json.dumps(ports).encode()
            owned.write_file(self._data / PORTS, self._ports)

    def check(self) -> None:
        """Make the files again if somebody removed them. A full disk must not stop the collector."""
        with self._turn:
            if self._begun and not is_file(self._data / UNFINISHED):
                begin(self._data, self._work)
            if self._ports and not is_file(self._data / PORTS):
                with suppress(OSError):
                    owned.write_file(self._data / PORTS, self._ports)

    def close(self) -> None:
        """Remove `ports.json`, since the collector no longer listens. Keep the file of another collector, which a replaced
        directory may contain."""
        path = self._data / PORTS
        with self._turn, suppress(OSError):
            ports, self._ports = self._ports, b""
            if ports and path.read_bytes() == ports:
                path.unlink()


def is_finished(data: Path) -> bool:
    """Return whether the last collector here finished, or none ever began; false where this process may
    not look."""
    try:
        return not (data / UNFINISHED).exists()
    except PermissionError:
        return False


def is_import(data: Path) -> bool:
    """Return whether an import did not finish here."""
    with suppress(OSError):
        return (data / UNFINISHED).read_bytes() == IMPORT
    return False


def _holder(lock: Path, root: Path) -> int | None:
    """Return the process that holds a lock, read from the kernel's list of locks.

    Trying the lock would keep out, for a moment, a daemon that is about to start."""
    try:
        inode = str(lock.stat().st_ino)
        pid = int(lock.read_text())
        locks = (root / "proc/locks").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END. The device is not compared: on some
    # file systems the list has another device than `stat`.
    for line in locks.splitlines():
        fields = line.split()
        held = fields[1:2] == ["FLOCK"] and fields[5].rpartition(":")[2] == inode
        if held and fields[4] == str(pid):
            return pid
    return None


def _addresses(path: Path, pid: int) -> dict[str, str]:
    try:
        ports = json.loads(path.read_text())
        if ports["pid"] != pid:
            return {}  # left by an earlier collector: the present one is still starting
        return {**ports["sources"], "admin": ports["admin"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
