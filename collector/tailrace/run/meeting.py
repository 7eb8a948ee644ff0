"""Connect the ranks of one node with the node's collector, through a private directory with a lock and a socket.

The node's collector holds the lock during its lifetime, and listens on the socket while ranks may join. If the
collector is killed, the kernel releases the lock. A rank that finds no socket and gets the lock starts a collector.
The messages are JSON lines: a rank sends `Hello` and receives `Welcome` or `Taken`. When its program has ended, it
sends `Bye` and receives `Released`: at once if other ranks are connected, otherwise as soon as another rank joins or
the node's certificate is written.
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
"""Maximum size (bytes) of a message between a rank and the collector, most of which is a program's arguments."""


class Hello(msgspec.Struct, kw_only=True):
    rank: int
    job: str | None
    size: int | None
    pid: int
    arguments: list[str]
    files: list[str]
    """Trace files that the collector must follow for this rank, as FORMAT=PATH with absolute paths."""
    own: dict[str, str]


class Taken(msgspec.Struct, tag="taken"):
    """The reply to `Hello` if another program of the same rank is connected. A launcher never starts two programs with
    one rank, so the new program belongs to another launch, and starts a collector of its own."""


class Welcome(msgspec.Struct, kw_only=True, tag="welcome"):
    addresses: dict[str, str]
    """Addresses on which the collector listens, as host:port, by source."""
    token: str
    """The token that clients must send to the listeners."""
    traces: str
    """The directory into which the tracers of this rank must write."""
    store: str
    """Path or URL of the store to which the node's collector writes."""


class Bye(msgspec.Struct, kw_only=True):
    exit_status: int


class Released(msgspec.Struct, kw_only=True):
    """Reply to `Bye`, after which the rank may end. `others` states whether other ranks of the node still run. If
    not, `certificate` is the path of the node's certificate, or None if it could not be written."""

    others: bool
    certificate: str | None = None
    failures: list[str] = []
    refused: dict[str, int] = {}
    """Number of connections and datagrams of other users that the collector refused, by cause."""


def packed(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class NodeSpec(msgspec.Struct, kw_only=True):
    """Settings of a node's collector, from the rank that starts it. `store` is the path or URL of its store;
    `directory` holds its certificate, log and traces."""

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
"""Time (seconds) after a failed start of a node's collector, during which no other rank of the node starts one."""

_SOCKET_MAX = 100
"""Maximum size (bytes) of the path of the collector's socket. The kernel accepts up to 107."""


class Meeting:
    """The private directory through which the ranks of one job on this node find and join a collector."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "socket"
        self._lock = directory / "lock"
        self._failure = directory / "failure"

    @classmethod
    def of(cls, rank: LaunchedRank, store: str | None) -> Self:
        """Return the private directory that all ranks with the same job, node and store share; make it if needed. Raise
        TailraceError if it belongs to another user."""
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
        """Return a connection to the node's collector; None if no collector runs or accepts further ranks."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.socket))
        except OSError:
            connection.close()
            return None
        return connection

    def lock(self) -> int | None:
        """Lock the private directory. Return a descriptor that holds the lock, or None if another process holds the
        lock."""
        # Make the private directory again, because a previous collector of the node has removed it at its end
        self.directory.mkdir(mode=0o700, exist_ok=True)
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
        """Record why the collector cannot be started. For `FAILURE_SECONDS`, other ranks do not try to start one."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._failure.write_text(message, errors="surrogateescape")

    @property
    def failure(self) -> str | None:
        """Return why a collector failed to start within the last `FAILURE_SECONDS`; None if none failed."""
        try:
            age = time.time() - self._failure.stat().st_mtime  # noqa: TID251 - the file system's time
            return self._failure.read_text() if age < FAILURE_SECONDS else None
        except OSError:
            return None

    def listener(self) -> socket.socket:
        """Return the listening socket at which ranks join. The caller must hold the directory's lock."""
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen(4096)
        return listener

    def remove(self) -> None:
        """Remove the private directory. The caller must hold the directory's lock."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _root() -> Path:
    """Return the parent of private directories: the runtime directory of the user's login session, or else the
    directory for temporary files. Its path must be short, because the paths of sockets are limited."""
    session = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    with suppress(OSError):
        if session.is_absolute() and session.stat().st_uid == os.getuid() and _fits(session):
            return session
    shared = Path(tempfile.gettempdir())
    return shared if _fits(shared) else Path("/tmp")  # noqa: S108 - a directory below it is ours alone


def _fits(root: Path) -> bool:
    return len(str(root)) <= _SOCKET_MAX - 60


def _launch() -> str:
    """Return a name that all ranks of this launch have in common, for a launcher that sets no job id.

    The name identifies the process that started the leader of the rank's session (setsid). All ranks share this
    process: Hydra, MPICH's launcher, starts each rank in its own session, and other launchers run all ranks in one
    session. A process between the session leader and a rank would not do, because it may end while further ranks start.
    """
    session = os.getsid(0)
    leader = _process(session)
    if leader is None:  # the leader of the session has ended, or is outside this container
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
