"""Define the transports over sockets: connections over TCP and unix sockets, and datagrams over UDP."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from tailrace_client._credentials import Credentials
from tailrace_client._descriptors import (
    NO_SIGNAL,
    Address,
    Kept,
    SocketTransport,
    TakenError,
    addresses,
    connect,
    is_this_host,
)

STREAM_PACKET_MAX = 2**20
"""Maximum size (bytes) of a packet that a collector accepts by default."""

STREAM_CHUNK_BYTES = 64 * 1024


class _Connection(SocketTransport):
    packet_max = STREAM_PACKET_MAX
    chunk_bytes = STREAM_CHUNK_BYTES
    datagrams = False
    _no_room: tuple[type[OSError], ...] = (BlockingIOError,)

    def send(self, pieces: Sequence[bytes], /) -> int:
        connection = self._own()
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
        return connection.sendmsg(pieces, (), NO_SIGNAL)

    def _worded(self, error: OSError) -> OSError:
        """Return the error to raise in place of `error`, with a message that users understand."""
        return error

    def receive(self) -> bytes:
        connection = self._own()
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

    def finish(self, seconds: float, /) -> None:
        # Read the answers before closing. If the client closed with an unread answer, the kernel would reset the
        # connection, and the peer would lose bytes that it has not read yet.
        deadline = time.monotonic() + seconds
        with suppress(OSError):
            if connection := self._own():
                connection.shutdown(socket.SHUT_WR)
            while self.is_open and time.monotonic() < deadline:
                if not self.receive():
                    self.wait(deadline - time.monotonic(), to_send=False)
        self.close()


class Tcp(_Connection):
    """A connection to a TCP port. The client sends the token first, if there is one."""

    def __init__(self, host: bytes, port: int, credentials: Credentials) -> None:
        super().__init__()
        self._host, self._port = host, port
        self._credentials = credentials
        # Call a host near only if its name needs no resolver: resolving needs locks, and another thread may have held
        # such a lock at a fork.
        self.is_near = host != b"localhost" and is_this_host(host)
        self.refusal = (
            "does it know the token?" if credentials.has_token else "does it want a token?"
        )

    def open(self) -> None:
        try:
            first = self._credentials.first_line()
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        kept = connect(addresses(self._host, self._port, socket.SOCK_STREAM))
        try:
            # The sender collects packets itself, so the kernel need not delay small writes.
            kept.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = self._secured(kept)
            if not kept.mark.holds():
                raise TakenError
            self._show(kept.socket, first)
        except OSError:
            kept.close()
            raise
        self._kept = kept

    def _show(self, connection: socket.socket, first: bytes) -> None:
        # The send buffer of a new connection has room for this.
        connection.sendall(first, NO_SIGNAL)

    def _secured(self, kept: Kept) -> Kept:
        """Return the connection to use for sending: the given connection, or an encrypted one over it."""
        return kept

    def forked(self) -> Tcp:
        self.close()
        return type(self)(self._host, self._port, self._credentials)


class Unix(_Connection):
    """A connection to a socket in the file system."""

    is_near = True
    PATH_MAX = 103
    """Maximum size (bytes) of the path of a socket. macOS accepts 103, Linux 107."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = os.fsencode(path)

    def open(self) -> None:
        self._kept = connect([(socket.AF_UNIX, socket.SOCK_STREAM, 0, self._path)])

    def forked(self) -> Unix:
        self.close()
        return Unix(os.fsdecode(self._path))


DATAGRAM_BYTES = 1432
"""Maximum size (bytes) of a datagram to another host: the payload of an Ethernet frame over IPv6, less 20 bytes for a
tunnel. A longer packet gets a datagram of its own, which the network divides."""

LOCAL_DATAGRAM_BYTES = 16 * 1024
"""Maximum size (bytes) of a datagram to this host, where no Ethernet frame limits the size."""

_DATAGRAM_MAX = 65_507  # Maximum size (bytes) of a datagram over IPv4.
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


class Udp(SocketTransport):
    """Sends datagrams through a UDP socket. While the send buffer is full, `send` accepts no bytes. If a host has
    several addresses, as `localhost` has ::1 and 127.0.0.1, the client tries the next one after each refusal, until a
    collector has answered."""

    packet_max = _DATAGRAM_MAX
    datagrams = True

    def __init__(self, host: bytes, port: int) -> None:
        super().__init__()
        self._host, self._port = host, port
        self._addresses: list[Address] = []
        """The addresses to try. After the first answer, the list holds only the collector's address."""
        self._fresh = True
        """Whether no datagram was sent on this socket yet."""
        is_local = is_this_host(host)
        self.is_near = is_local and host != b"localhost"
        self.chunk_bytes = LOCAL_DATAGRAM_BYTES if is_local else DATAGRAM_BYTES

    def open(self) -> None:
        self._addresses = addresses(self._host, self._port, socket.SOCK_DGRAM)
        self._connect(self._addresses)

    def send(self, pieces: Sequence[bytes], /) -> int:
        data = b"".join(pieces)
        for _ in range(len(self._addresses)):
            connection = self._own()
            if connection is None or not data:
                return 0
            try:
                taken = connection.send(data)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    return 0
                if error.errno == errno.ECONNREFUSED:
                    self._turn()
                elif error.errno != errno.EMSGSIZE:
                    self.close()
                raise
            fresh, self._fresh = self._fresh, False
            probe = fresh and len(self._addresses) > 1
            if not probe or not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return taken
            self._turn()
        raise ConnectionRefusedError(
            errno.ECONNREFUSED, "nobody listens at any address of the host"
        )

    def receive(self) -> bytes:
        connection = self._own()
        if connection is None:
            return b""
        try:
            answer = connection.recv(65_536)
        except BlockingIOError:
            return b""
        except ConnectionRefusedError:
            self._turn()
            raise
        if self._kept is not None:
            self._addresses = [self._kept.address]
        return answer

    def finish(self, seconds: float, /) -> None:  # noqa: ARG002 - datagrams have no end
        self.close()

    def forked(self) -> Udp:
        self.close()
        return Udp(self._host, self._port)

    def _turn(self) -> None:
        """Switch to the host's next address, because no process listens at the current one."""
        if self._kept is not None and len(self._addresses) > 1:
            behind = self._addresses.index(self._kept.address) + 1
            self.close()
            self._connect([*self._addresses[behind:], *self._addresses[:behind]])

    def _connect(self, candidates: list[Address]) -> None:
        self._kept, self._fresh = connect(candidates), True
