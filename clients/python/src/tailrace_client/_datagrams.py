"""The transport over UDP. A datagram holds many packets, and may be lost or reordered."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from tailrace_client._descriptors import Address, SocketTransport, addresses, connect, is_this_host

DATAGRAM_BYTES = 1432
"""Bytes of a datagram to another host: what an Ethernet frame carries over IPv6, less 20 bytes for a
tunnel. A longer packet travels alone, in fragments."""

LOCAL_DATAGRAM_BYTES = 16 * 1024
"""Bytes of a datagram to this host, where there are no frames."""

_DATAGRAM_MAX = 65_507  # over IPv4
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


class Udp(SocketTransport):
    """A UDP socket. `send` takes nothing while the send buffer is full. It does not notice datagrams
    that the network or the peer's kernel drops.

    If a host has several addresses, as `localhost` has ::1 and 127.0.0.1, a refusal makes the client try the next
    one, until a collector has answered. For an address on this host, the kernel reports the refusal of the first
    datagram at once, and `send` repeats the datagram at the next address.
    """

    packet_max = _DATAGRAM_MAX
    datagrams = True

    def __init__(self, host: bytes, port: int) -> None:
        super().__init__()
        self._host, self._port = host, port
        self._addresses: list[Address] = []
        """The addresses to try; only the collector's own once it has answered."""
        self._fresh = True
        """Whether nothing was sent on this socket."""
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
                return self._failed(error)
            fresh, self._fresh = self._fresh, False
            several = len(self._addresses) > 1
            if not (
                fresh and several and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            ):
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

    def _failed(self, error: OSError) -> int:
        """Return 0 if there was no room for a datagram, else raise."""
        if error.errno in _NO_ROOM:
            return 0
        if error.errno == errno.ECONNREFUSED:
            self._turn()
        elif error.errno != errno.EMSGSIZE:
            self.close()
        raise error

    def _turn(self) -> None:
        """Turn to the host's next address, since nobody listens at this one."""
        if self._kept is not None and len(self._addresses) > 1:
            behind = self._addresses.index(self._kept.address) + 1
            self.close()
            self._connect([*self._addresses[behind:], *self._addresses[:behind]])

    def _connect(self, candidates: list[Address]) -> None:
        self._kept, self._fresh = connect(candidates), True
