"""Create the transport for an address: `unix:///path`, `tcp://host:port`, `tls://host:port`, `udp://host:port` or
`file:///path`.

A transport sends bytes without knowledge of their format, for one caller at a time.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tailrace_client._credentials import Credentials
from tailrace_client._descriptors import Mark, NoSignals, TakenError, above_standard
from tailrace_client._sockets import STREAM_CHUNK_BYTES, STREAM_PACKET_MAX, Tcp, Udp, Unix

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN}
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Flags with which a file is opened. With `O_NONBLOCK`, opening a pipe without a reader is an error, and a write to
a full pipe does not wait. `O_NOFOLLOW` refuses a link, because a link that another user made could lead to any file."""


class File:
    """Writes to a file. With `append` the file keeps its content; otherwise it is emptied first, as JETS requires. A
    forked child writes to `path.PID`, because a reader would take two processes in one file for one producer."""

    packet_max = STREAM_PACKET_MAX
    chunk_bytes = STREAM_CHUNK_BYTES
    datagrams = False
    prompt = False
    is_near = False
    answers = False
    refusal = ""

    def __init__(self, path: str, *, append: bool) -> None:
        self._path = path
        self._append = append
        self._fresh = True
        self._mark: Mark | None = None

    @property
    def is_open(self) -> bool:
        return self._mark is not None

    def open(self) -> None:
        emptied = os.O_TRUNC if self._fresh and not self._append else 0
        self._mark = self._opened(os.O_CREAT | emptied)
        self._fresh = False

    def send(self, pieces: Sequence[bytes], /) -> int:
        if not pieces:
            return 0
        try:
            with NoSignals():
                return os.writev(self._own(), pieces)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return 0
            self.close()
            raise

    def receive(self) -> bytes:
        return b""

    def wait(self, seconds: float, /, *, to_send: bool) -> None:  # noqa: ARG002 - a disk does not notify
        time.sleep(max(0.0, min(seconds, 0.05)))

    def finish(self, seconds: float, /) -> None:  # noqa: ARG002 - the kernel has all bytes
        self.close()

    def close(self) -> None:
        if self._mark is not None and self._mark.holds():
            os.close(self._mark.number)
        self._mark = None

    def forked(self) -> File:
        self.close()
        return File(f"{self._path}.{os.getpid()}", append=self._append)

    def _opened(self, more: int) -> Mark:
        return Mark.of(above_standard(os.open(self._path, _FLAGS | more, 0o600)))

    def _own(self) -> int:
        """Return the descriptor for one use. If the program has closed it, open the same file again and continue at its
        end. Raise TakenError if the path now leads to another file or a pipe."""
        mark = self._mark
        if mark is None or not mark.holds():
            again = self._mark = self._opened(0)
            if mark is None or again.found != mark.found or not stat.S_ISREG(again.found.kind):
                raise TakenError
            return again.number
        return mark.number


class Transport(Protocol):
    """A connection to a peer, or a file. On a socket, `send` returns at once; on a file, it may wait for the disk.
    `open` may wait until a name is resolved and a peer accepts the connection. Both raise OSError on failure. The
    transport is then closed, and may be opened again."""

    packet_max: int
    """Maximum size (bytes) of a packet that can be sent."""
    chunk_bytes: int
    """Number of bytes that are passed to one system call: enough to be worth the call, and no more than it accepts."""
    datagrams: bool
    """Whether the bytes of one call of `send` arrive either together or not at all."""
    prompt: bool
    """Whether `send` always returns at once, so that any thread may call it."""
    is_near: bool
    """Whether `open` returns at once, because the peer is on this host."""
    answers: bool
    """Whether the collector can answer over this transport."""
    refusal: str
    """A question to the user that is added to the error message if a peer closes a connection without an answer."""

    @property
    def is_open(self) -> bool: ...

    def open(self) -> None: ...

    def send(self, pieces: Sequence[bytes], /) -> int:
        """Pass buffers to the kernel in one system call. Return the number of accepted bytes; 0 if the send buffer is
        full. The next call must begin with the first byte that was not accepted. Raise ConnectionRefusedError, and stay
        open, if an *earlier* datagram reached no process."""
        ...

    def receive(self) -> bytes:
        """Return received bytes, from a UDP socket one datagram; no bytes if there are none. Raise ConnectionError if
        the peer has closed the connection."""
        ...

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        """Wait until bytes arrive, at most `seconds`. With `to_send`, also stop when the send buffer has room."""
        ...

    def finish(self, seconds: float, /) -> None:
        """Close once the peer has read all bytes, but after `seconds` at the latest."""
        ...

    def close(self) -> None: ...

    def forked(self) -> Transport:
        """Close the parent's transport in a forked child. Return a new transport of the child for the same address."""
        ...


def parse(
    address: str, credentials: Credentials | None = None, *, append: bool = True
) -> Transport:
    """Return the transport for an address.

    `credentials` apply to TCP and TLS; the default is the credentials in the environment. `append` states whether a
    file keeps its content. Raise ValueError, which names the allowed forms, for an invalid address. Raise ImportError
    for `tls` if Python was built without it."""
    try:
        parts = urlsplit(address)
        path = unquote(parts.path)
        if parts.netloc in {"", "localhost"} and len(path) > 1 and "\0" not in path:
            if parts.scheme == "file":
                return File(path, append=append)
            if parts.scheme == "unix" and len(path.encode()) <= Unix.PATH_MAX:
                return Unix(path)
        if parts.hostname and parts.port and path in {"", "/"}:
            # A host name of type str would make `getaddrinfo` import a codec in the sender's thread. If the process
            # forked meanwhile, the lock of the import would stay taken in the child.
            host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
            if parts.scheme == "udp":
                return Udp(host, parts.port)
            if parts.scheme == "tcp":
                return Tcp(host, parts.port, credentials or Credentials.of_environment())
            if parts.scheme == "tls":
                from tailrace_client._tls import Tls  # noqa: PLC0415 - only `tls` pays for the import of `ssl`

                return Tls(host, parts.port, credentials or Credentials.of_environment())
    except ValueError:  # The port or the host name is invalid.
        pass
    raise ValueError(
        f"{address!r} is not an address: "
        "unix:///path, tcp://host:port, tls://host:port, udp://host:port or file:///path"
    )
