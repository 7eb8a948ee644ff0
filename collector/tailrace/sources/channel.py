"""How bytes cross a connection: as they are, or as TLS. Nothing here waits."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from tailrace.sources.refusal import Refusal
from tailrace.sources.source import CHUNK_MAX

EOF = "eof"
CUT = "eof without close_notify"
"""Somebody may have cut it, and not the peer."""


class Channel(Protocol):
    def receive(self) -> tuple[bytes, str | None]:
        """What has come, at most about CHUNK_MAX bytes, and why nothing more will, if that is so."""
        ...

    def seal(self, data: bytes) -> bytes:
        """What to send so that the peer gets `data`. Raise OSError: it gets nothing any more."""
        ...

    def take_outgoing(self) -> bytes:
        """What is to be sent for the channel's own sake."""
        ...

    def farewell(self) -> bytes:
        """What is to be sent last."""
        ...


class PlainChannel:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> tuple[bytes, str | None]:
        try:
            data = self._sock.recv(CHUNK_MAX)
        except BlockingIOError:
            return b"", None
        except OSError as error:
            return b"", f"reset: {errno.errorcode.get(error.errno or 0, 'unknown')}"
        return data, None if data else EOF

    def seal(self, data: bytes) -> bytes:
        return data

    def take_outgoing(self) -> bytes:
        return b""

    def farewell(self) -> bytes:
        return b""


class TlsChannel:
    """The server's end, between the socket and two buffers in memory."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain = PlainChannel(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self) -> bool:
        """Go on with the handshake with what has come; whether it is through. What `take_outgoing` gives is to
        be sent in any case. Raise ssl.SSLError or, if the peer has gone, OSError."""
        data, ended = self._plain.receive()
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if ended is not None:
                raise ConnectionResetError(ended) from None
            return False
        return True

    def peer(self) -> str:
        """Whom the peer's certificate names, empty if it showed none."""
        return named(self._tls.getpeercert() or {})

    def receive(self) -> tuple[bytes, str | None]:
        data, ended = self._plain.receive()
        self._incoming.write(data)
        opened, over = self._open()
        return opened, over or (CUT if ended == EOF else ended)

    def seal(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        return self._outgoing.read()

    def farewell(self) -> bytes:
        with suppress(ssl.SSLError):  # it waits for the peer's
            self._tls.unwrap()
        return self._outgoing.read()

    def _open(self) -> tuple[bytes, str | None]:
        opened = []
        try:
            while data := self._tls.read(CHUNK_MAX):
                opened.append(data)
        except ssl.SSLWantReadError:
            return b"".join(opened), None
        except ssl.SSLError:
            return b"".join(opened), Refusal.TLS
        return b"".join(opened), EOF


_NAME_MAX = 64


def named(certificate: Mapping[str, Any]) -> str:
    """The common name of a certificate as `getpeercert` gives it, or else its first other name; on
    one line, of ASCII, and not long."""
    subject, others = certificate.get("subject", ()), certificate.get("subjectAltName", ())
    common = [value for part in subject for key, value in part if key == "commonName"]
    names = [*common, *(str(value) for _, value in others)]
    return ascii(names[0])[1:-1][:_NAME_MAX] if names else ""
