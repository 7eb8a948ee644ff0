"""The place where the ranks of one node meet, and their messages: a directory of this user's, with a lock and a socket.

The node's collector holds the lock for as long as it lives, and listens on the socket while ranks may join it. The
kernel gives the lock back, whoever is killed. So a rank that finds no socket and gets the lock starts the collector.

The messages are JSON lines. A rank sends `Hello` and receives `Welcome`, or `Taken` if another program of the same
rank is connected. When its program has ended, it sends `Bye` and receives `Released`: at once if other ranks are
connected; the last rank waits for the certificate.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tailrace import owned
from tailrace.errors import TailraceError
from tailrace.run.launcher import LaunchedRank

LINE_MAX = 1 << 20
"""Bytes of a message; a program's arguments are the longest."""


class Hello(msgspec.Struct, kw_only=True):
    rank: int
    job: str | None
    size: int | None
    pid: int
    arguments: list[str]
    files: list[str]
    """FORMAT=PATH to follow, with absolute paths."""
    own: dict[str, str]
    """The directories, by format, of tracers that write elsewhere than we would tell them."""


class Taken(msgspec.Struct, tag="taken"):
    """Another program of this rank is connected, so no launcher started both. This program starts a collector of its
    own."""


class Welcome(msgspec.Struct, kw_only=True, tag="welcome"):
    addresses: dict[str, str]
    """host:port by source."""
    token: str
    """The token that the listeners demand."""
    traces: str
    """The directory of this rank's tracers."""
    store: str
    """Path or URL of the node's table."""


class Bye(msgspec.Struct, kw_only=True):
    exit_status: int


class Released(msgspec.Struct, kw_only=True):
    """The rank may end. With `others`, other ranks run on; or else `certificate` is the path of the node's, if it could
    be written."""

    others: bool
    certificate: str | None = None
    failures: list[str] = []
    refused: dict[str, int] = {}
    """Connections and datagrams of other users, by cause."""


def packed(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class NodeSpec(msgspec.Struct, kw_only=True):
    """A node's collector. `store` is its table's; `directory` has its certificate, log and traces."""

    config: str | None
    store: str
    directory: str
    node: str
    job: str | None
    size: int | None
    local_size: int | None
    max_loss: int
    certificate: str
    sign: str | None
    meeting: str = ""


FAILURE_SECONDS = 30
"""For so long, no other rank starts a collector after one that did not start."""

_SOCKET_MAX = 100
"""Bytes of a socket's path; the kernel takes 107."""


class Meeting:
    """The meeting place of one job's ranks on this node that write into one store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "socket"
        self._lock = directory / "lock"
        self._failure = directory / "failure"

    @classmethod
    def of(cls, rank: LaunchedRank, store: str | None) -> Self:
        """Make the place, if it is not there. Raise TailraceError if another user could have made it."""
        place = os.path.abspath(store or os.curdir)  # noqa: PTH100 - a URL may stand there
        words = [rank.job or _launch(), rank.node, place]
        if rank.alone:
            words.append(f"process {os.getpid()}")
        key = hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
        root = _root()
        ours = root / f"tailrace-{os.getuid()}"
        for directory in (ours, ours / key):
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            found = directory.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise TailraceError(f"{directory}: is not a directory of this user's")
        return cls(ours / key)

    def connect(self) -> socket.socket | None:
        """Return a connection to the node's collector, or None if none takes ranks now."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.socket))
        except OSError:
            connection.close()
            return None
        return connection

    def lock(self) -> int | None:
        """Return a descriptor that holds the lock, or None if a collector or another rank holds it."""
        self.directory.mkdir(mode=0o700, exist_ok=True)  # the last collector removes it
        descriptor = owned.open_file(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == self._lock.stat().st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None

    def failed(self, message: str) -> None:
        """Tell the other ranks that the collector does not start, so that not each of them tries it."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._failure.write_text(message, errors="surrogateescape")

    @property
    def failure(self) -> str | None:
        """Return why a collector did not start, shortly ago."""
        try:
            age = time.time() - self._failure.stat().st_mtime  # noqa: TID251 - the file system's time
            return self._failure.read_text() if age < FAILURE_SECONDS else None
        except OSError:
            return None

    def listener(self) -> socket.socket:
        """Return the collector's listening socket; whoever holds the lock may make it."""
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen(4096)
        return listener

    def remove(self) -> None:
        """Remove the place; whoever holds the lock may do so."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _root() -> Path:
    """Return the directory for this user's meeting places: that of the user's session, or one for all users."""
    session = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    with suppress(OSError):
        if session.is_absolute() and session.stat().st_uid == os.getuid() and _fits(session):
            return session
    shared = Path(tempfile.gettempdir())
    return shared if _fits(shared) else Path("/tmp")  # noqa: S108 - a directory below it is ours alone


def _fits(root: Path) -> bool:
    return len(str(root)) <= _SOCKET_MAX - 60


def _launch() -> str:
    """Name the launch by the process that started the ranks' session, where the launcher gives no name.

    Hydra, MPICH's launcher, gives each rank a session of its own; the others leave all ranks in theirs. Processes
    between the leader of the session and a rank do not count: they may end while other ranks still come."""
    session = os.getsid(0)
    leader = _process(session)
    if leader is None:  # it has ended, or is outside this container
        return f"session {session}"
    starter = _process(leader.parent)
    return f"started by {leader.parent} of {starter.started if starter else 'unknown'}"


class _Process(NamedTuple):
    parent: int
    started: str


def _process(pid: int) -> _Process | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
        return _Process(int(words[1]), words[19])
    except (OSError, ValueError, IndexError):
        return None
