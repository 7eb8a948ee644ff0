"""The collectors on a store: the locks that they hold, who is alone, which run, and who each of them is.

Constraint: a repair takes versions out of the table's log and puts others back, so nobody may write meanwhile. Each
lock ends with its process, however that ends.

`DirectoryLock` lets one process at a time into a directory. It is a kernel lock (flock) on a file in the directory. The
file stays. If somebody removes it, the holder notices (`DirectoryLock.check`) and makes it again; meanwhile a
lock on a whole directory, where there is one that has no other use, keeps other processes out.

`Entrance` finds out whether a collector is alone in a local store and may repair its table, by two kernel locks in the
store's directory:

- `writers.lock` is held by every collector from its start to its end, shared with the others. A start that
  gets it alone knows that no collector writes. The directory itself is locked in the same way, so that this holds
  after somebody has removed the file.
- `start.lock` is held by one start at a time, until its table is whole. So a start that finds others in the
  store knows that one of them began alone, and repaired what it found.

A start that is not alone repairs nothing, and need not: a killed process leaves a table whole. A power cut does not,
but it ends all collectors, and the first of the next ones is alone. Damage by the disk is left to upkeep, which
sets files aside beside collectors that write.

`RunningMarks` show processes on this host which collectors run on a store, and whether the others finished.

By an `Introduction` a collector's directory says which spool it has. The table knows collectors by the identities of
their spools. A start that repairs the table must find the spool that has another collector's rows (see `recovery`).
"""

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
from tailrace.store.refusal import refusal

NAME = "lock"

logger = logging.getLogger(__name__)


def is_held(directory: Path, name: str = NAME) -> bool:
    """Return whether a process holds a directory's lock; true when that cannot be told."""
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


def locked(path: Path, operation: int) -> int:
    """Return a descriptor of a lock's file, which is made if it is missing, once it is locked. Raise StoreError, and
    BlockingIOError if another process keeps the lock."""
    try:
        return owned.lock_file(path, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        advice = ": it is not a file; remove it" if is_obstacle(path) else ""
        raise StoreError(
            f"{path}: cannot be locked: {refusal_text(error.errno, path)}{advice}"
        ) from error


def locked_again(path: Path, operation: int) -> int:
    """Make and lock the file again, for a lock that this process holds and whose file was removed or replaced. Raise
    LostError if the directory is gone; raise StoreError if the file cannot be made, or another process has it: often
    a start that will be refused, as the spool is locked too."""
    try:
        make_way(path)
        fd = owned.lock_file(path, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(f"{path} was removed, and another process has it by now") from error
    except OSError as error:
        text = f"{path} was removed and cannot be made again: {refusal_text(error.errno, path)}"
        raise (LostError if error.errno in owned.GONE else StoreError)(text) from error
    logger.warning("%s was removed or replaced; it is made again", path)
    return fd


class DirectoryLock:
    """A context manager; entering raises LockedError when another process holds the lock.

    With `wait`, entering waits for the lock: only for locks that are held for seconds. `whole` is a directory to lock
    as well, which nobody locks for another purpose.
    """

    def __init__(
        self, directory: Path, *, name: str = NAME, wait: bool = False, whole: Path | None = None
    ) -> None:
        self.path = directory / name
        self._operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        self._whole = whole
        self._whole_fd = -1
        self._fd = -1

    def __enter__(self) -> Self:
        owned.refuse_foreign(self.path.parent)
        try:
            if self._whole is not None:
                self._whole_fd = owned.lock_directory(self._whole, self._operation)
            self._fd = locked(self.path, self._operation)
        except BlockingIOError as error:
            self.__exit__()
            raise LockedError(
                f"{self.path.parent} is in use by process {self._holder()}, which holds {self.path}"
            ) from error
        except OSError as error:
            self.__exit__()
            raise StoreError(f"{self._whole}: cannot be locked: {error.strerror}") from error
        self._write_pid()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for fd in (self._fd, self._whole_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._whole_fd = -1

    def check(self) -> None:
        """Make the file again if it was removed or replaced. Raise LostError or StoreError as `locked_again` does."""
        if owned.found(self.path) != owned.identity(self._fd):
            before, self._fd = self._fd, locked_again(self.path, fcntl.LOCK_EX)
            os.close(before)
            self._write_pid()

    def _holder(self) -> str:
        try:
            return self.path.read_text(errors="replace").strip() or "(unknown)"
        except OSError:
            return "(unknown)"

    def _write_pid(self) -> None:
        """Write our pid for the error message of other processes; a full disk must not stop us."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            return


WRITERS = "writers.lock"
START = "start.lock"


class Entrance:
    """A context manager, entered before anything of the store is read and left when the collector ends.

    Entering waits for another start to end, and raises StoreError where a lock cannot be had."""

    def __init__(self, store: Path) -> None:
        self.alone = False
        """Whether no other collector is in the store, nor enters it before `admit`."""
        self._store = store
        self._path = store / WRITERS
        self._start = DirectoryLock(store, name=START, wait=True)
        self._starting = False
        self._fds: list[int] = []
        """The descriptors of the directory and of the file."""

    def __enter__(self) -> Self:
        self._start.__enter__()
        self._starting = True
        try:
            self.alone = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.alone:
                self._lock(fcntl.LOCK_SH)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()
        self._end_start()

    def check(self) -> None:
        """Make the file again if it was removed or replaced. Raise LostError or StoreError as `locked_again` does."""
        if owned.found(self._path) != owned.identity(self._fds[1]):
            before, self._fds[1] = self._fds[1], locked_again(self._path, fcntl.LOCK_SH)
            os.close(before)

    def admit(self) -> None:
        """Let other collectors in: the table is whole."""
        if self.alone:
            # Nobody else can take the locks in between: that needs the start's lock.
            for fd in self._fds:
                with suppress(OSError):  # a directory where directories are not locked
                    owned.lock(fd, fcntl.LOCK_SH)
            self.alone = False
        self._end_start()

    def _lock(self, operation: int) -> bool:
        """Return whether we have both locks now. Raise StoreError where there are no locks."""
        try:
            # Lock the directory first: another collector may be making a removed file again, and without the directory
            # a start could lock the new file alone although it is not alone in the store.
            self._fds.append(owned.lock_directory(self._store, operation))
            self._fds.append(locked(self._path, operation))
        except BlockingIOError:
            self._close()
            return False
        except OSError as error:
            raise StoreError(f"{self._store}: cannot be locked: {error.strerror}") from error
        return True

    def _close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _end_start(self) -> None:
        if self._starting:
            self._starting = False
            self._start.__exit__()


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


INTRODUCTION = "collector.json"


class Introduction(msgspec.Struct):
    """`identity` is that of the spool in the directory `spool`."""

    identity: str
    spool: str


def introduce(directory: Path, who: Introduction) -> None:
    """Write it into the collector's directory, unless it is there. Raise StoreError or FullError."""
    path = directory / INTRODUCTION
    if introduction_of(directory) == who:
        return
    try:
        owned.write_file(path, msgspec.json.encode(who), durable=True)
    except OSError as error:
        raise refusal(error, str(path), "write who this collector is") from error


def introduction_of(directory: Path) -> Introduction | None:
    """Return what the collector of a directory wrote; None if it wrote nothing that can be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / INTRODUCTION).read_bytes(), type=Introduction)
    return None
