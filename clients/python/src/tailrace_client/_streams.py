"""Transports over a byte stream: TCP and unix sockets."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from tailrace_client import _connecting
from tailrace_client._credentials import Credentials

STREAM_PACKET_MAX = 2**20
"""The longest packet that a collector takes by default."""

STREAM_CHUNK_BYTES = 64 * 1024


class _Connection:
    packet_max = STREAM_PACKET_MAX
    chunk_bytes = STREAM_CHUNK_BYTES
    datagrams = False
    prompt = True
    answers = True
    refusal = ""
    _no_room: tuple[type[OSError], ...] = (BlockingIOError,)

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def send(self, pieces: Sequence[bytes], /) -> int:
        connection = self._socket
        if connection is None or not pieces:
            return 0
        try:
            return self._hand_over(connection, pieces)
        except self._no_room:
            return 0
        except OSError as error:
            self.close()
            raise self._worded(error) from None

    def _hand_over(self, connection: socket.socket, pieces: Sequence[bytes]) -> int:
        return connection.sendmsg(pieces)

    def _worded(self, error: OSError) -> OSError:
        """Return an error whose words people understand."""
        return error

    def receive(self) -> bytes:
        connection = self._socket
        if connection is None:
            return b""
        try:
            data = connection.recv(65_536)
        except self._no_room:
            return b""
        except OSError as error:
            self.close()
            raise self._worded(error) from None
        if not data:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, "the collector closed the connection")
        return data

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        _connecting.wait(self._socket, seconds, to_send=to_send)

    def finish(self, seconds: float, /) -> None:
        # If we closed with an answer unread, the kernel would reset the connection, and the peer
        # would lose what it has not read yet.
        deadline = time.monotonic() + seconds
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_WR)
            while self.is_open and time.monotonic() < deadline:
                if not self.receive():
                    self.wait(deadline - time.monotonic(), to_send=False)
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Tcp(_Connection):
    """A connection to a port. The token, if there is one, is sent before all else."""

    def __init__(self, host: bytes, port: int, credentials: Credentials) -> None:
        super().__init__()
        self._host, self._port = host, port
        self._credentials = credentials
        self.refusal = (
            "does it know the token?" if credentials.has_token else "does it want a token?"
        )

    def open(self) -> None:
        try:
            first = self._credentials.first_line()
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        connection = _connecting.connect(self._host, self._port, socket.SOCK_STREAM)
        # The sender gathers packets itself, so the kernel need not wait for more.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection = self._secured(connection)
            self._show(connection, first)
        except OSError:
            connection.close()
            raise
        self._socket = connection

    def _show(self, connection: socket.socket, first: bytes) -> None:
        connection.sendall(first)  # there is room for it in a new connection

    def _secured(self, connection: socket.socket) -> socket.socket:
        """Return the connection to send on: this one, or one that protects it."""
        return connection

    def forked(self) -> Tcp:
        self.close()
        return type(self)(self._host, self._port, self._credentials)


class Unix(_Connection):
    """A connection to a socket in the file system."""

    PATH_MAX = 103
    """Bytes. macOS has room for 103, Linux for 107."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = os.fsencode(path)

    def open(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_connecting.CONNECT_SECONDS)
            connection.connect(self._path)
        except OSError:
            connection.close()
            raise
        connection.settimeout(0)
        self._socket = connection

    def forked(self) -> Unix:
        self.close()
        return Unix(os.fsdecode(self._path))
