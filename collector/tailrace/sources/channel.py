"""How bytes cross a connection: plain, or through TLS. No call waits."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from tailrace.ingest.payloads import EOF
from tailrace.sources.refusal import Refusal
from tailrace.sources.source import CHUNK_MAX

CUT = "eof without close_notify"
"""The stream ended without TLS's goodbye: somebody other than the peer may have cut it."""


class Channel(Protocol):
    def receive(self) -> tuple[bytes, str | None]:
        """Return what was received, at most about CHUNK_MAX bytes, and why no more will follow, None
        if more may."""
        ...

    def seal(self, data: bytes) -> bytes:
        """Return the bytes to send so that the peer gets `data`. Raise OSError if the peer can get no
        more."""
        ...

    def take_outgoing(self) -> bytes:
        """Return and forget what the channel itself has to send."""
        ...

    def farewell(self) -> bytes:
        """Return the last bytes to send."""
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
    """The server's end of TLS, between the socket and two buffers in memory."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain = PlainChannel(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self) -> bool:
        """Continue the handshake with what was received; return whether it is complete. Send what
        `take_outgoing` returns in any case. Raise ssl.SSLError or, if the peer has gone, OSError."""
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
        """Return the name in the peer's certificate, empty if the peer showed none."""
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
        with suppress(ssl.SSLError):  # the peer's goodbye has not come
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
    """Return the common name of a certificate from `getpeercert`, or else its first other name: in
    ASCII, on one line, and cut to `_NAME_MAX`."""
    subject, others = certificate.get("subject", ()), certificate.get("subjectAltName", ())
    common = [value for part in subject for key, value in part if key == "commonName"]
    names = [*common, *(str(value) for _, value in others)]
    return ascii(names[0])[1:-1][:_NAME_MAX] if names else ""
