"""Provide transports over TLS. Only a `tls://` address imports this module, since importing
`ssl` takes time."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace_client import _descriptors
from tailrace_client._credentials import Credentials
from tailrace_client._descriptors import Kept, NoSignals, TakenError, wait
from tailrace_client._sockets import STREAM_CHUNK_BYTES, Tcp

_FORK_SECONDS = 0.5
_VISITORS_MAX = 64

_inside = threading.Lock()
"""Lock that a thread holds while it runs code of OpenSSL. A fork waits for it, because OpenSSL's own locks could stay
taken in the child."""

_visitors: dict[int, None] = {}
"""Native ids of the last `_VISITORS_MAX` threads that ran code of OpenSSL. At the end of such a thread, OpenSSL takes
its locks once more, after `threading` has already removed the thread."""


class _Inside(NoSignals):
    """A context manager within which a thread may run code of OpenSSL. If another thread runs such code, wait for its
    end, or raise BlockingIOError."""

    def __init__(self, *, wait: bool = False) -> None:
        self._lock = _inside
        self._wait = wait

    def __enter__(self) -> None:
        super().__enter__()
        taken = False
        try:
            taken = self._lock.acquire(blocking=self._wait)
        finally:
            if not taken:
                super().__exit__()
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "another thread is within OpenSSL")
        _visitors[threading.get_native_id()] = None
        if len(_visitors) > _VISITORS_MAX:
            del _visitors[next(iter(_visitors))]

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        super().__exit__()


class Tls(Tcp):
    """A TCP connection encrypted with TLS. The client always verifies the collector's
    certificate and host name."""

    _no_room = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)

    def __init__(self, host: bytes, port: int, credentials: Credentials) -> None:
        super().__init__(host, port, credentials)
        self._has_more = False
        """Whether OpenSSL has received bytes in its own buffer, which polling the socket does not show."""

    def forked(self) -> Tcp:
        _in_child()  # Call `_in_child` here, too, because a server may fork without calling Python's fork functions.
        return super().forked()

    def _secured(self, kept: Kept) -> Kept:
        with _Inside(wait=True):
            context = _context(self._credentials)
            # Pass the host name as bytes: for a str, Python would import a codec (see `_transport.parse`).
            connection = context.wrap_socket(
                kept.socket, server_hostname=self._host, do_handshake_on_connect=False
            )
        secured = kept._replace(socket=connection)
        deadline = time.monotonic() + _descriptors.CONNECT_SECONDS
        try:
            while not self._go_on(connection):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(errno.ETIMEDOUT, "the collector does not answer in TLS")
                # Wait only for received bytes: the send buffer always has room for the client's part of the handshake.
                wait(connection, left, to_send=False)
                if not kept.mark.holds():
                    raise TakenError
        except OSError:
            secured.close()
            raise
        return secured

    def _go_on(self, connection: ssl.SSLSocket) -> bool:
        """Continue the handshake with the received bytes. Return whether it is complete."""
        try:
            with _Inside(wait=True):
                connection.do_handshake()
        except self._no_room:
            return False
        except OSError as error:
            raise self._worded(error) from None
        return True

    def _show(self, connection: socket.socket, first: bytes) -> None:
        with _Inside(wait=True):
            connection.sendall(first)  # over TLS, a send takes no flags

    def _hand_over(self, connection: socket.socket, pieces: Sequence[bytes]) -> int:
        size, some = 0, []
        for piece in pieces:
            some.append(piece)
            size += len(piece)
            if size >= STREAM_CHUNK_BYTES:
                break  # Encrypt the rest later: a thread that emits may need the lock to encrypt its data.
        try:
            with _Inside():
                return connection.send(b"".join(some))
        except self._no_room:
            raise
        except OSError:
            self.receive()  # If the peer has sent the reason of the error, this call raises it.
            raise

    def receive(self) -> bytes:
        connection = self._kept and self._kept.socket
        try:
            with _Inside():
                data = super().receive()
                self._has_more = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        except BlockingIOError:
            return b""
        return data

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        super().wait(0 if self._has_more else seconds, to_send=to_send)

    def finish(self, seconds: float, /) -> None:
        with suppress(OSError, ValueError), _Inside(wait=True):
            if isinstance(connection := self._own(), ssl.SSLSocket):
                connection.unwrap()  # This sends the end of the TLS connection; `super` then waits for the peer's end.
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
    """Return a TLS context that verifies the collector's certificate and host name. If a file cannot be used, raise an
    OSError with the file's name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    authority, certificate = credentials.tls_authority, credentials.tls_certificate
    key = credentials.tls_key
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
    raise ValueError("the key has a passphrase; use a key without")


def _reason(error: ssl.SSLError) -> str:
    return error.reason.lower().replace("_", " ") if error.reason else str(error)


def _before_fork() -> None:
    """Wait for the thread within OpenSSL. Then wait until the operating system has also ended the threads that ran code
    of OpenSSL and that `threading` has removed. Only Linux lists a process's threads."""
    global _forking  # noqa: PLW0603 - one OpenSSL a process
    # Limit the wait: a signal handler that forks may have interrupted the thread that holds the lock.
    _forking = _inside.acquire(timeout=_FORK_SECONDS)
    deadline = time.monotonic() + _FORK_SECONDS
    alive = {thread.native_id for thread in threading.enumerate()}
    for visitor in _visitors.keys() - alive:
        task = Path(f"/proc/self/task/{visitor}")
        while task.exists() and time.monotonic() < deadline:
            time.sleep(0.0001)
        _visitors.pop(visitor, None)


def _after_fork() -> None:
    if _forking:
        _inside.release()


def _in_child() -> None:
    global _inside  # noqa: PLW0603 - it may be held by a thread that is not here
    _inside = threading.Lock()
    _visitors.clear()


_forking = False
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
