"""Where packets go: `udp://host:port`, `tcp://host:port` or `file:///path`.

A transport is driven by one caller at a time (`_channel` sees to that) and knows no format but one
thing: its `preamble` (for Heph the epoch, for JETS the header) comes first on every new connection
or file.

- `send` of a socket returns at once, whatever the network does; of a file it may wait for the disk.
- `open` may wait: for a name to be resolved, and for a peer to accept (`CONNECT_SECONDS`).
- `send` raises OSError when the connection broke; the transport is closed then and can be opened
  again. No whole packet is sent twice; one whose first part went into the old connection is sent
  anew. What the kernel had taken and the peer had not read is missing, as the packets' counters tell.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from typing import Protocol
from urllib.parse import unquote, urlsplit

CONNECT_SECONDS = 2.0

DATAGRAM_BYTES = 1432
"""Packets are packed into datagrams of at most this much: what an Ethernet frame carries over IPv6
with 20 bytes to spare for a tunnel. A longer packet travels alone, in fragments."""

_DATAGRAM_MAX = 65_507 - 64  # UDP over IPv4, less the preamble
_STREAM_PACKET_MAX = 2**20  # what a collector takes at most unless configured otherwise
_PIECES = 512  # buffers in one system call; Linux takes 1024
_STREAM_BATCH = 64 * 1024

_ANNOUNCE_SECONDS = 10.0
"""Datagrams get lost and collectors restart: the preamble is said again after this long."""


class Transport(Protocol):
    """A way out for packets; see the module's promises."""

    preamble: bytes
    """What comes first; set before the first `open`."""
    packet_max: int
    """Bytes of the longest packet that it carries."""
    batch: int
    """Bytes that are worth a system call."""
    prompt: bool
    """Whether `send` returns at once, so that any thread may call it."""
    connections: int
    """How often `open` has succeeded."""
    lost: int
    """Packets that the kernel refused to send."""

    @property
    def is_open(self) -> bool:
        """Whether packets can be sent without `open`."""
        ...

    def open(self) -> None:
        """Make it ready to send."""
        ...

    def send(self, packets: deque[bytes], /) -> int:
        """Take packets off the left and hand them to the kernel, in one system call; give the bytes
        of those that are through. 0: no room in the kernel now. What was taken off and is not
        through yet goes first next time."""
        ...

    def wait(self, seconds: float, /) -> None:
        """Until there is room in the kernel, at most so long."""
        ...

    def close(self) -> None:
        """Let go of the connection or file; packets on the way are kept."""
        ...

    def unsent(self) -> int:
        """Packets taken off and not through."""
        ...

    def fork(self) -> None:
        """In a forked child: forget the parent's connection and packets."""
        ...


class Udp:
    """Many packets a datagram. A full send buffer is waited for; what the network or the peer's
    kernel throws away is not noticed here."""

    packet_max = _DATAGRAM_MAX
    batch = DATAGRAM_BYTES
    prompt = True

    def __init__(self, host: bytes, port: int) -> None:
        self.preamble = b""
        self.connections = self.lost = 0
        self._host, self._port = host, port
        self._socket: socket.socket | None = None
        self._held: list[bytes] = []
        self._announced = 0.0

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> None:
        self._socket = _connect(self._host, self._port, socket.SOCK_DGRAM)
        self._announced = -_ANNOUNCE_SECONDS
        self.connections += 1

    def send(self, packets: deque[bytes], /) -> int:
        connection = self._socket
        if connection is None:
            return 0
        now = time.monotonic()
        preamble = self.preamble if now - self._announced >= _ANNOUNCE_SECONDS else b""
        held = self._held
        size = len(preamble) + sum(map(len, held))
        while packets and (not held or size + len(packets[0]) <= DATAGRAM_BYTES):
            held.append(packets.popleft())
            size += len(held[-1])
        if not held:
            return 0
        try:
            self._emit(connection, preamble + b"".join(held))
        except BlockingIOError:
            return 0
        except OSError:  # no route, no permission, too long: waiting would not help
            self.lost += len(held)
        else:
            self._announced = now if preamble else self._announced
        held.clear()
        return size - len(preamble)

    def _emit(self, connection: socket.socket, datagram: bytes) -> None:
        try:
            connection.send(datagram)
        except ConnectionRefusedError:  # nobody received an *earlier* one; this one is not out yet
            self._announced = -_ANNOUNCE_SECONDS
            connection.send(datagram)

    def wait(self, seconds: float, /) -> None:
        _wait_writable(self._socket, seconds)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def unsent(self) -> int:
        return len(self._held)

    def fork(self) -> None:
        self.close()
        self._held = []
        self.connections = self.lost = 0


class _Stream:
    """What a TCP connection and a file have in common: packets one after the other, of which the
    kernel may take a part."""

    packet_max = _STREAM_PACKET_MAX
    batch = _STREAM_BATCH

    def __init__(self) -> None:
        self.preamble = b""
        self._forget()

    def _forget(self) -> None:
        self.connections = self.lost = 0
        self._first = b""
        """What is left of the preamble."""
        self._held: deque[bytes] = deque()
        self._done = 0
        """Bytes of the first held packet that are through."""

    def _begin(self) -> None:
        self._first, self._done = self.preamble, 0
        self.connections += 1

    def _pieces(self, packets: deque[bytes]) -> list[bytes]:
        held = self._held
        while packets and len(held) < _PIECES:
            held.append(packets.popleft())
        pieces = [self._first] if self._first else []
        pieces += held
        if self._done:
            pieces[-len(held)] = held[0][self._done :]
        return pieces

    def _through(self, size: int) -> int:
        """The kernel took `size` bytes: of which packets were they the last?"""
        part = min(size, len(self._first))
        self._first = self._first[part:]
        held = self._held
        through = 0
        self._done += size - part
        while held and self._done >= len(held[0]):
            done = len(held.popleft())
            self._done -= done
            through += done
        return through

    def unsent(self) -> int:
        return len(self._held)


class Tcp(_Stream):
    """One connection, made anew when it breaks."""

    prompt = True

    def __init__(self, host: bytes, port: int) -> None:
        super().__init__()
        self._host, self._port = host, port
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> None:
        self._socket = _connect(self._host, self._port, socket.SOCK_STREAM)
        self._begin()

    def send(self, packets: deque[bytes], /) -> int:
        connection = self._socket
        if connection is None:
            return 0
        try:
            if self._peer_has_closed(connection):
                raise ConnectionResetError("the collector closed the connection")
            pieces = self._pieces(packets)
            return self._through(connection.sendmsg(pieces)) if pieces else 0
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            raise

    @staticmethod
    def _peer_has_closed(connection: socket.socket) -> bool:
        """The kernel would still take one more write, and lose it. A collector never sends."""
        try:
            return connection.recv(4096) == b""
        except BlockingIOError:
            return False

    def wait(self, seconds: float, /) -> None:
        _wait_writable(self._socket, seconds)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fork(self) -> None:
        self.close()
        self._forget()


class File(_Stream):
    """A file for a collector to follow. `append` goes on behind what is there; else an old file is
    emptied, as JETS wants it. A forked child writes to `path.PID`: two processes in one file would
    be one producer to its reader."""

    prompt = False

    def __init__(self, path: str, *, append: bool) -> None:
        super().__init__()
        self._path = path
        self._append = append
        self._descriptor = -1

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def open(self) -> None:
        fresh = 0 if self._append or self.connections else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | fresh
        self._descriptor = os.open(self._path, flags, 0o666)
        self._begin()

    def send(self, packets: deque[bytes], /) -> int:
        pieces = self._pieces(packets)
        try:
            return self._through(os.writev(self._descriptor, pieces)) if pieces else 0
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                return 0
            self.close()
            raise

    def wait(self, seconds: float, /) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def fork(self) -> None:
        self.close()
        self._path = f"{self._path}.{os.getpid()}"
        self._forget()


def parse(address: str, *, append: bool = True) -> Udp | Tcp | File:
    """The transport for an address. Raise ValueError, naming the forms allowed, for another one."""
    try:
        parts = urlsplit(address)
        if parts.scheme == "file" and parts.netloc in {"", "localhost"} and len(parts.path) > 1:
            return File(unquote(parts.path), append=append)
        if parts.hostname and parts.port and parts.path in {"", "/"}:
            # Encoded here: given a str, `getaddrinfo` would import a codec in the channel's thread,
            # and a process that forks meanwhile leaves the import's lock taken in its child.
            host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
            if parts.scheme == "udp":
                return Udp(host, parts.port)
            if parts.scheme == "tcp":
                return Tcp(host, parts.port)
    except ValueError:  # a port that is no number, a host that is no name
        pass
    raise ValueError(
        f"{address!r} is not an address: udp://host:port, tcp://host:port or file:///path"
    )


def _connect(host: bytes, port: int, kind: socket.SocketKind) -> socket.socket:
    """A connected, non-blocking socket to the first address of `host` that takes it."""
    failure = OSError(f"{host.decode()} has no address")
    for family, type_, protocol, _, address in socket.getaddrinfo(host, port, type=kind):
        connection = socket.socket(family, type_, protocol)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(address)
            if connection.getsockname() == connection.getpeername():
                # A port of the ephemeral range that nobody listens on may be given to us ourselves.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
        except OSError as error:
            connection.close()
            failure = error
        else:
            connection.settimeout(0)
            return connection
    raise failure


def _wait_writable(connection: socket.socket | None, seconds: float) -> None:
    if connection is not None:
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        poll.poll(seconds * 1000)
