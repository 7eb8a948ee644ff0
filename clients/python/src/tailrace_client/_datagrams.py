"""The transport over UDP. A datagram holds many packets, and may be lost or reordered."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from tailrace_client._descriptors import SocketTransport, addresses, connect

DATAGRAM_BYTES = 1432
"""Bytes of a datagram to another host: what an Ethernet frame carries over IPv6, less 20 bytes for a
tunnel. A longer packet travels alone, in fragments."""

LOCAL_DATAGRAM_BYTES = 16 * 1024
"""Bytes of a datagram to this host, where there are no frames."""

_DATAGRAM_MAX = 65_507  # over IPv4
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


class Udp(SocketTransport):
    """A UDP socket. `send` takes nothing while the send buffer is full. It does not notice datagrams
    that the network or the peer's kernel drops."""

    packet_max = _DATAGRAM_MAX
    datagrams = True

    def __init__(self, host: bytes, port: int) -> None:
        super().__init__()
        self._host, self._port = host, port
        self.chunk_bytes = LOCAL_DATAGRAM_BYTES if _is_this_host(host) else DATAGRAM_BYTES

    def open(self) -> None:
        self._kept = connect(addresses(self._host, self._port, socket.SOCK_DGRAM))

    def send(self, pieces: Sequence[bytes], /) -> int:
        connection = self._own()
        if connection is None or not pieces:
            return 0
        try:
            return connection.send(b"".join(pieces))
        except OSError as error:
            if error.errno in _NO_ROOM:
                return 0
            if error.errno not in {errno.ECONNREFUSED, errno.EMSGSIZE}:
                self.close()
            raise

    def receive(self) -> bytes:
        connection = self._own()
        if connection is None:
            return b""
        try:
            return connection.recv(65_536)
        except BlockingIOError:
            return b""

    def finish(self, seconds: float, /) -> None:  # noqa: ARG002 - datagrams have no end
        self.close()

    def forked(self) -> Udp:
        self.close()
        return Udp(self._host, self._port)


def _is_this_host(host: bytes) -> bool:
    """Return whether an address is one of this machine. A name is not resolved: that may take long."""
    if host == b"localhost":
        return True
    family = socket.AF_INET6 if b":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host.decode())
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing, but chooses the address to send from
            own: str = probe.getsockname()[0]
            other: str = probe.getpeername()[0]
    except OSError:
        return False
    return own == other or other.startswith("127.")
