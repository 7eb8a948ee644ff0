"""Connections over a unix socket; a peer is a user, whom the kernel names.

The file of a socket stays when its process is killed. Such a one is replaced; one that somebody
listens on is not, nor is a file of any other kind.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tailrace.sources.connections import BACKLOG, Peer

_CREDENTIALS = struct.Struct("=iII")
"""Process, user and group."""


class UnixListener:
    transport = "unix"
    each = "user"

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode

    @contextmanager
    def listening(self) -> Iterator[tuple[socket.socket, str]]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            # The file is made with the socket's own mode less the umask: at no time is it wider.
            os.fchmod(sock.fileno(), self._mode)
            _bind(sock, self._path)
            made = self._path.lstat()
            try:
                self._path.chmod(self._mode)
                sock.settimeout(0)
                sock.listen(BACKLOG)
                yield sock, url(self._path)
            finally:
                _remove(self._path, made)

    def greet(self, sock: socket.socket, address: str) -> Peer:  # noqa: ARG002 - a client's has no name
        pid, uid, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return Peer(f"unix:uid={uid},pid={pid}", str(uid))


def url(path: Path) -> str:
    return f"unix://{quote(str(path))}"


def _bind(sock: socket.socket, path: Path) -> None:
    """In place of the file that a killed process left, if there is one. Raise OSError."""
    try:
        if not in_use(path):
            path.unlink(missing_ok=True)
        sock.bind(str(path))
    except OSError as error:
        error.filename = str(path)
        raise


def in_use(path: Path) -> bool:
    """Whether somebody listens on a socket there. Raise OSError when that cannot be told, or
    something else is there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "there is something that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True  # more than it can accept
    return True


def _remove(path: Path, made: os.stat_result) -> None:
    """Remove our file, unless somebody has put another one in its place. What stays, if it cannot
    be, the next start replaces."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), made):
            path.unlink()
