"""Listen for TCP and unix connections. A TCP peer is identified by its address, a unix peer by its user id.

A killed process leaves the file of its unix socket behind. The next start replaces this file. It does not replace a
file of another type, or the file of a socket at which another process listens. If the file is removed while the source
runs, the source creates a new socket and file."""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import stat
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tailrace.config.schema import TcpConfig
from tailrace.security.guard import OPEN, Guard
from tailrace.service_manager.descriptors import NOWHERE, Slot
from tailrace.sources.listening import (
    BACKLOG,
    Listening,
    accepts,
    is_trusted,
    join,
    named,
    of_connections,
    owner,
)
from tailrace.sources.source import Refusal

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class ConnectedPeer(NamedTuple):
    """The peer of a connection: its name, the key under which its connections are counted, and its user id or None."""

    name: str
    whose: str
    user: int | None = None


class Listener(ABC):
    """The operations of a listening socket in which TCP and unix sockets differ."""

    transport: str
    crowd: Refusal
    """The cause to count when a connection is refused because its peer has too many connections."""
    guard = OPEN
    greeting_timeout = math.inf
    """Maximum time (seconds) for TLS handshake and token together."""
    enough: int
    """If a poll finds this many bytes at one socket, the next pause is shorter (see `AdaptiveRest`).

    The number must be less than the size of a socket's buffer, because a writer blocks when the buffer is full."""
    look_seconds = math.inf
    """Interval (seconds) between two checks whether clients can reach the listening socket, while none connects."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    @contextmanager
    def listening(self) -> Iterator[tuple[socket.socket, str]]:
        """Yield a listening socket and its address as text. Raise OSError if the address is not available."""
        with self._listening.reading() as sock:
            yield sock, named(sock)

    def renewed(self) -> socket.socket:
        """Return the listening socket, or a new one if its file was removed. Raise OSError if none can be made."""
        return self._listening.open()

    @abstractmethod
    def greet(self, sock: socket.socket, address: Any) -> ConnectedPeer:  # noqa: ANN401 - what `accept` gave
        """Configure an accepted connection and return its peer. Raise OSError if the peer has disconnected."""

    def refusal(self, peer: ConnectedPeer) -> Refusal | None:  # noqa: ARG002 - the mode of a unix socket's file decides
        """Return the cause for which a peer is rejected before TLS and token; None if it is not rejected."""
        return None

    def demands(self, peer: ConnectedPeer) -> Guard:  # noqa: ARG002 - the same of all
        """Return the requirements that a peer must meet before its connection gets a session: TLS, a certificate or a
        token."""
        return self.guard


class TcpListener(Listener):
    transport = "tcp"
    crowd = Refusal.CONNECTIONS_OF_ADDRESS
    enough = 32 * 1024
    """Number of bytes found by a poll that shorten the next pause: half of the 64 KiB that a client on Linux can send
    over a new TCP connection before the source reads."""

    def __init__(
        self, config: TcpConfig, guard: Guard = OPEN, listening: Listening | None = None
    ) -> None:
        super().__init__(listening or of_connections(config.listen))
        self.guard = guard
        self.greeting_timeout = float(config.greeting_timeout)
        self._same_user = config.same_user

    def greet(
        self, sock: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]
    ) -> ConnectedPeer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        user = None
        if self._same_user:
            user = owner(socket.SOCK_STREAM, address, sock.getsockname())
        return ConnectedPeer(join(address), address[0], user)

    def refusal(self, peer: ConnectedPeer) -> Refusal | None:
        if not self.guard.networks.allows(peer.whose):
            return Refusal.ADDRESS
        if not self._same_user or is_trusted(peer.user):
            return None
        if peer.user is not None:
            return Refusal.USER
        return Refusal.USER_UNKNOWN if self.guard.tokens is None else None

    def demands(self, peer: ConnectedPeer) -> Guard:
        known = self._same_user and is_trusted(peer.user)
        return self.guard._replace(tokens=None) if known else self.guard


logger = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("=iII")
"""Layout of the kernel's answer about the peer of a unix socket: process id, user id and group id."""


class UnixListening(Listening):
    """A listening unix socket and its file; closing the socket removes the file."""

    def __init__(self, path: Path, mode: int, slot: Slot = NOWHERE) -> None:
        super().__init__(partial(_accepting, path, mode), slot, self._is_there)
        self._path = path
        self._mode = mode
        self._made: os.stat_result | None = None
        self._former: socket.socket | None = None
        """The socket whose file was removed. It stays open as long as a task may wait for it."""

    def open(self) -> socket.socket:
        if self._sock is not None and self._made and not _is(self._path, self._made):
            self._replace(_accepting(self._path, self._mode))
        sock = super().open()
        self._made = self._made or self._path.lstat()
        return sock

    def close(self) -> None:
        if self._made is not None and not self._slot.kept:
            _remove(self._path, self._made)
        self._made = None
        if self._former is not None:
            self._former.close()
            self._former = None
        super().close()

    def _replace(self, sock: socket.socket) -> None:
        if self._former is not None:
            self._former.close()
        self._former, self._sock, self._made = self._sock, sock, self._path.lstat()
        self._slot.keep(sock)
        logger.warning("%s was removed or replaced; it is made again", self._path)

    def _is_there(self, sock: socket.socket) -> bool:
        """Return whether the path still leads to a socket that was kept across a restart."""
        if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
            return False
        try:
            is_socket = stat.S_ISSOCK(self._path.lstat().st_mode)
            if not is_socket or sock.getsockname() != str(self._path):
                return False
            self._path.chmod(self._mode)
        except OSError:
            return False
        return accepts(sock)


class UnixListener(Listener):
    transport = "unix"
    crowd = Refusal.CONNECTIONS_OF_USER
    enough = 8 * 1024
    """Number of bytes found by a poll that shorten the next pause: a third of the 24 KB that a client on Linux can send
    in writes of 86 bytes before it blocks."""
    look_seconds = 1.0

    def __init__(self, path: Path, mode: int, listening: Listening | None = None) -> None:
        super().__init__(listening or UnixListening(path, mode))
        self._path = path
        self._mode = mode

    @contextmanager
    def listening(self) -> Iterator[tuple[socket.socket, str]]:
        with self._listening.reading() as sock:
            self._path.chmod(self._mode)
            yield sock, url(self._path)

    def greet(self, sock: socket.socket, address: str) -> ConnectedPeer:  # noqa: ARG002 - a client's socket has none
        pid, uid, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return ConnectedPeer(f"unix:uid={uid},pid={pid}", str(uid))


def url(path: Path) -> str:
    return f"unix://{quote(str(path))}"


def _accepting(path: Path, mode: int) -> socket.socket:
    """Create a unix socket at a path with the given mode, and let it listen. Raise OSError if the path is in use."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel creates the file with the socket's mode, so the file never has more permissions than `mode`.
        os.fchmod(sock.fileno(), mode)
        try:
            # Replace the socket file that a killed process has left.
            if not in_use(path):
                path.unlink(missing_ok=True)
            sock.bind(str(path))
        except OSError as error:
            error.filename = str(path)
            raise
        made = path.lstat()
        try:
            path.chmod(mode)
            sock.settimeout(0)
            sock.listen(BACKLOG)
        except OSError:
            _remove(path, made)
            raise
    except OSError:
        sock.close()
        raise
    return sock


def in_use(path: Path) -> bool:
    """Return whether a process listens on the unix socket at a path. Raise OSError if this cannot be determined, or if
    the file is not a socket."""
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
            # The backlog is full, so a process listens at the socket.
            return True
    return True


def _remove(path: Path, made: os.stat_result) -> None:
    """Remove the file of a unix socket, unless another file is at its path by now."""
    with suppress(OSError):
        if _is(path, made):
            path.unlink()


def _is(path: Path, made: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), made)
    except OSError:
        return False
