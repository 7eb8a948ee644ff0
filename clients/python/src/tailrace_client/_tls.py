"""Connections within TLS. This module is imported for a `tls://` address only: `ssl` takes time."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace_client import _connecting
from tailrace_client._credentials import Credentials
from tailrace_client._streams import Tcp


class Tls(Tcp):
    """The collector's certificate, and that it is for this host, are always checked."""

    _no_room = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def __init__(self, host: bytes, port: int, credentials: Credentials) -> None:
        super().__init__(host, port, credentials)
        self._has_more = False
        """Whether something came that polling the socket does not show any more."""

    def _secured(self, connection: socket.socket) -> socket.socket:
        context = _context(self._credentials)
        try:
            # The name as bytes: for a str a codec is imported, see `_transport.parse`.
            secured = context.wrap_socket(
                connection, server_hostname=self._host, do_handshake_on_connect=False
            )
            self._socket = secured
            secured.settimeout(_connecting.CONNECT_SECONDS)
            secured.do_handshake()
            secured.settimeout(0)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, "the collector does not answer in TLS") from None
        except OSError as error:
            raise self._worded(error) from None
        return secured

    def _hand_over(self, connection: socket.socket, pieces: Sequence[bytes]) -> int:
        try:
            return connection.send(b"".join(pieces))
        except self._no_room:
            raise
        except OSError:
            self.receive()  # raises the reason that the peer gave, if it did
            raise

    def receive(self) -> bytes:
        connection = self._socket
        data = super().receive()
        self._has_more = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        return data

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        super().wait(0 if self._has_more else seconds, to_send=to_send)

    def finish(self, seconds: float, /) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ValueError):  # we say the end; the peer's is waited for below
                self._socket.unwrap()
        super().finish(seconds)

    def _worded(self, error: OSError) -> OSError:
        if isinstance(error, ssl.SSLCertVerificationError):
            words = f"the collector's certificate is not accepted: {error.verify_message}"
        elif isinstance(error, ssl.SSLError):
            words = f"TLS: {_reason(error)}"
        else:
            return error
        return ConnectionError(errno.EPROTO, words)


def _context(credentials: Credentials) -> ssl.SSLContext:
    """Raise OSError, naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
    context.options |= ssl.OP_NO_RENEGOTIATION
    authority, certificate, key = (
        credentials.tls_authority,
        credentials.tls_certificate,
        credentials.tls_key,
    )
    if authority:
        _use(authority, lambda: context.load_verify_locations(authority))
    else:
        context.load_default_certs()
    if certificate:
        files = f"{certificate} and {key}" if key else certificate
        _use(files, lambda: context.load_cert_chain(certificate, key, password=_no_passphrase))
    return context


def _use(files: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, ssl.SSLError) else error
        raise OSError(errno.EINVAL, f"{files}: {reason}") from None


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase; nobody can be asked for it here")


def _reason(error: ssl.SSLError) -> str:
    return error.reason.lower().replace("_", " ") if error.reason else str(error)
