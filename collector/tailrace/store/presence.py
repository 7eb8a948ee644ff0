"""Show by locks and marker files which collectors run on a store, and where their spools are.

A repair removes and restores versions in the table's log, so no other process may write meanwhile. The kernel releases
each lock (flock) when the process ends, for any reason. `Entrance` detects by two locks whether a collector is alone in
a local store, and may repair the table:

- `writers.lock`: every collector holds this lock, shared, from start to end. A starting collector that can lock it
  exclusively is alone. The directory itself is locked in the same way, because the file may be removed.
- `start.lock`: one starting collector at a time holds this lock until the table is repaired.

A starting collector that is not alone need not repair the table, because a power cut ends all collectors."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tailrace import owned
from tailrace.config.load import COLLECTORS
from tailrace.config.schema import MAIN
from tailrace.errors import LockedError, LostError, StoreError
from tailrace.filesystem import is_file, is_obstacle, make_way, refusal_text
from tailrace.store.refusal import refusing

NAME = "lock"

logger = logging.getLogger(__name__)


def is_held(directory: Path, name: str = NAME) -> bool:
    """Return whether a process holds the lock of a directory. Return True if this cannot be determined."""
    try:
        fd = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class _Locks:
    """The lock of a file and, if `whole` is given, the lock of this directory. If the file was removed, the lock of the
    directory still shows other processes that a process holds both locks."""

    def __init__(self, path: Path, whole: Path | None) -> None:
        self.path = path
        self.fds: list[int] = []
        """Descriptors of the locked directory, if it is given, and of the locked file."""
        self._whole = whole

    def take(self, operation: int) -> None:
        """Lock the directory, if it is given, and the file, with the flags `operation`. Raise BlockingIOError if
        another process holds a conflicting lock, and StoreError if a lock cannot be taken."""
        place, advice = self._whole or self.path.parent, ""
        try:
            owned.refuse_foreign(self.path.parent)
            if self._whole is not None:
                self.fds.append(owned.lock_directory(self._whole, operation))
            place, advice = (
                self.path,
                ": it is not a file; remove it" if is_obstacle(self.path) else "",
            )
            self.fds.append(owned.lock_file(self.path, operation))
        except BlockingIOError:
            self.close()
            raise
        except OSError as error:
            self.close()
            why = refusal_text(error.errno, place)
            raise StoreError(f"{place}: cannot be locked: {why}{advice}") from error

    def check(self, operation: int) -> bool:
        """If the file was removed or replaced, create and lock it again, and return True.

        Raise LostError if the file's directory is gone. Raise StoreError if the file cannot be created, or if another
        process, such as a starting collector, has locked it first."""
        if owned.found(self.path) == owned.identity(self.fds[-1]):
            return False
        try:
            make_way(self.path)
            fd = owned.lock_file(self.path, operation | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"{self.path} was removed, and another process has it by now"
            ) from error
        except OSError as error:
            why = refusal_text(error.errno, self.path)
            text = f"{self.path} was removed and cannot be made again: {why}"
            raise (LostError if error.errno in owned.GONE else StoreError)(text) from error
        logger.warning("%s was removed or replaced; it is made again", self.path)
        os.close(self.fds[-1])
        self.fds[-1] = fd
        return True

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


class DirectoryLock:
    """A context manager that locks a file in `directory`, and the directory `whole` if it is given. If another process
    holds the lock, entering raises LockedError, or with `wait` waits until the lock is free."""

    def __init__(
        self, directory: Path, *, name: str = NAME, wait: bool = False, whole: Path | None = None
    ) -> None:
        self.path = directory / name
        self._locks = _Locks(self.path, whole)
        self._wait = wait

    def __enter__(self) -> Self:
        try:
            self._locks.take(fcntl.LOCK_EX if self._wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = ""
            with suppress(OSError):
                holder = self.path.read_text(errors="replace").strip()
            raise LockedError(
                f"{self.path.parent} is in use by process {holder or '(unknown)'}, which holds {self.path}"
            ) from error
        self._write_pid()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._locks.close()

    def check(self) -> None:
        """Create the lock file again if it was removed or replaced. Raise LostError or StoreError if that fails."""
        if self._locks.check(fcntl.LOCK_EX):
            self._write_pid()

    def _write_pid(self) -> None:
        """Write the id of this process into the lock file, for error messages. Ignore a full disk."""
        with suppress(OSError):
            os.ftruncate(self._locks.fds[-1], 0)
            os.pwrite(self._locks.fds[-1], f"{os.getpid()}\n".encode(), 0)


WRITERS = "writers.lock"
START = "start.lock"


class Entrance:
    """A context manager for the lifetime of a collector on a local store, entered before any file of the store is read.
    Entering it waits until no other collector is starting, and raises StoreError if a lock cannot be taken."""

    def __init__(self, store: Path) -> None:
        self.alone = False
        """Whether no other collector uses the store. If so, none can start before `admit` is called."""
        self._start = DirectoryLock(store, name=START, wait=True)
        self._locks = _Locks(store / WRITERS, store)

    def __enter__(self) -> Self:
        self._start.__enter__()
        try:
            with suppress(BlockingIOError):
                self._locks.take(fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.alone = True
            if not self.alone:
                self._locks.take(fcntl.LOCK_SH)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._locks.close()
        self._start.__exit__()

    def check(self) -> None:
        """Create `writers.lock` again if it was removed or replaced. Raise LostError or StoreError if that fails."""
        self._locks.check(fcntl.LOCK_SH)

    def admit(self) -> None:
        """Let other collectors start on the store, because the repair of the table is finished."""
        if self.alone:
            # Converting the lock releases it for a moment. Meanwhile, no starting collector can take the lock, because
            # it would need `start.lock` first.
            for fd in self._locks.fds:
                # Ignore the error of file systems that cannot lock directories.
                with suppress(OSError):
                    owned.lock(fd, fcntl.LOCK_SH)
            self.alone = False
        self._start.__exit__()


UNFINISHED = "unfinished"
"""Name of a file that exists as long as data that a collector has received may be missing from the table."""

IMPORT = b"import"
"""Content of the file `unfinished` while an import has read its files only partly. A collector leaves the file
empty."""

PORTS = "ports.json"
"""Name of the file with the addresses on which a collector listens. Users who configured port 0 need it."""


class RunningCollector(NamedTuple):
    """A running collector of a store, as other processes see it."""

    pid: int
    addresses: dict[str, str]
    """Addresses of the sources, by source name, and of the admin endpoint `admin`; empty if not written yet."""
    name: str = MAIN


def directories(shared: Path) -> dict[str, Path]:
    """Return the directory of each collector by name: `shared` itself for `main`, and directories below it for others."""
    found = {MAIN: shared}
    with suppress(FileNotFoundError, NotADirectoryError):
        parts = sorted((shared / COLLECTORS).iterdir())
        found |= {path.name: path for path in parts if path.is_dir()}
    return found


def quarantines(shared: Path) -> list[Path]:
    """Return the quarantine directories of all collectors. Raise OSError if a directory is not readable."""
    return [directory / "quarantine" for directory in directories(shared).values()]


def find(
    data: Path, directories: Iterable[Path], root: Path = Path("/"), name: str = MAIN
) -> RunningCollector | None:
    """Return the running collector `name`, or None if no process in this container holds the lock of one of
    `directories`. `data` is the directory of the file `ports.json`, and `root` the directory whose /proc is read."""
    held = (_holder(directory / NAME, root) for directory in directories)
    pid = next((pid for pid in held if pid is not None), None)
    return None if pid is None else RunningCollector(pid, _addresses(data / PORTS, pid), name)


def begin(data: Path, work: bytes = b"") -> None:
    """Create the file `unfinished` with the content `work` in a collector's directory. Ignore a full disk."""
    with suppress(OSError):
        owned.write_file(data / UNFINISHED, work)


class RunningMarks:
    """The files `ports.json` and `unfinished`, by which other processes find out the addresses of a running collector,
    and whether data is not in the table yet."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ports = b""
        self._work: bytes | None = None
        """Content of the file `unfinished`, or None if the file should not exist."""
        self._turn = threading.Lock()
        """Lock against concurrent writes, which would corrupt a file."""

    def begin(self, work: bytes = b"") -> None:
        """Create the file `unfinished`. Its content `work` is empty for a collector and `IMPORT` for an import."""
        with self._turn:
            begin(self._data, work)
            self._work = work

    def finish(self) -> None:
        """Remove the file `unfinished`, because all received data is in the table."""
        with self._turn, suppress(OSError):
            self._work = None
            (self._data / UNFINISHED).unlink(missing_ok=True)

    def write_ports(self, ports: dict[str, object]) -> None:
        """Write the addresses of the listeners to `ports.json`. Raise OSError if that fails."""
        with self._turn:
            self._ports = json.dumps(ports).encode()
            owned.write_file(self._data / PORTS, self._ports)

    def check(self) -> None:
        """Create `ports.json` and `unfinished` again if another program has removed them. Ignore a full disk."""
        with self._turn:
            if self._work is not None and not is_file(self._data / UNFINISHED):
                begin(self._data, self._work)
            if self._ports and not is_file(self._data / PORTS):
                with suppress(OSError):
                    owned.write_file(self._data / PORTS, self._ports)

    def close(self) -> None:
        """Remove `ports.json`, unless it belongs to another collector by now."""
        path = self._data / PORTS
        with self._turn, suppress(OSError):
            ports, self._ports = self._ports, b""
            if ports and path.read_bytes() == ports:
                path.unlink()


def is_finished(data: Path) -> bool:
    """Return whether all data that the collector with the directory `data` has received is in the table. Return False
    if this user may not read the directory."""
    try:
        return not (data / UNFINISHED).exists()
    except PermissionError:
        return False


def is_import(data: Path) -> bool:
    """Return whether an import in a collector's directory has not finished."""
    with suppress(OSError):
        return (data / UNFINISHED).read_bytes() == IMPORT
    return False


def _holder(lock: Path, root: Path) -> int | None:
    """Return the id of the process that holds the lock file `lock`, or None."""
    # An attempt to take the lock would briefly block the start of a daemon, so read the kernel's list of locks.
    try:
        inode = str(lock.stat().st_ino)
        pid = int(lock.read_text())
        locks = (root / "proc/locks").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # Fields: NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END. Compare only the inode: on some file
    # systems, the device in the list is not the device in `stat`.
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
            # A killed collector has left this `ports.json`, and the running collector has not written a new one yet.
            return {}
        return {**ports["sources"], "admin": ports["admin"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


INTRODUCTION = "collector.json"


class Introduction(msgspec.Struct):
    """The identity of the spool that a collector uses, and the path of the spool's directory."""

    identity: str
    spool: str


def introduce(directory: Path, who: Introduction) -> None:
    """Write the identity of a collector's spool into the collector's directory. Raise StoreError or FullError."""
    path = directory / INTRODUCTION
    if introduction_of(directory) != who:
        with refusing(path, "write who this collector is"):
            owned.write_file(path, msgspec.json.encode(who), durable=True)


def introduction_of(directory: Path) -> Introduction | None:
    """Return the identity and path of the spool from a collector's directory, or None if these cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / INTRODUCTION).read_bytes(), type=Introduction)
    return None
