"""Transports, by address: `unix:///path`, `tcp://host:port`, `tls://host:port`, `udp://host:port` or
`file:///path`.

A transport moves bytes and knows no format. One caller at a time uses it (`_sender` ensures that),
and decides what to send after each opening.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tailrace_client._credentials import Credentials
from tailrace_client._datagrams import Udp
from tailrace_client._file import File
from tailrace_client._streams import Tcp, Unix


class Transport(Protocol):
    """A connection to a peer, or a file.

    On a socket `send` returns at once, whatever the network does. On a file it may wait for the
    disk. `open` may wait for a name to be resolved and for a peer to accept. Both raise OSError on
    failure. The transport is closed then, and may be opened again.
    """

    packet_max: int
    """Bytes of the longest packet that the transport carries."""
    chunk_bytes: int
    """Bytes that are worth one system call and fit into it."""
    datagrams: bool
    """Whether the bytes of one call arrive together or not at all."""
    prompt: bool
    """Whether `send` returns at once, so that any thread may call it."""
    is_near: bool
    """Whether `open` returns at once, because the peer's socket is on this host."""
    answers: bool
    """Whether a collector at the other end can answer."""
    refusal: str
    """A question for people about a peer that ends a connection without an answer."""

    @property
    def is_open(self) -> bool:
        """Whether `send` may be called."""
        ...

    def open(self) -> None:
        """Connect, or open the file."""
        ...

    def send(self, pieces: Sequence[bytes], /) -> int:
        """Hand pieces to the kernel in one system call. Return how many of their bytes it took.

        0 means that there is no room now; the next call begins with the same bytes. Raise
        ConnectionRefusedError, and stay open, if an *earlier* datagram found nobody.
        """
        ...

    def receive(self) -> bytes:
        """Return bytes that have come back, from datagrams one datagram; empty if there are none. Raise
        ConnectionError if the peer is gone."""
        ...

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        """Wait at most `seconds` until something comes back or, with `to_send`, there is room to send."""
        ...

    def finish(self, seconds: float, /) -> None:
        """Close once the peer has read everything, or after `seconds`."""
        ...

    def close(self) -> None:
        """Close the connection or file."""
        ...

    def forked(self) -> Transport:
        """Close this transport in a forked child, and return the child's own for the same address."""
        ...


def parse(
    address: str, credentials: Credentials | None = None, *, append: bool = True
) -> Transport:
    """Return the transport for an address.

    `credentials`, for TCP and TLS, are by default those of the environment. `append`: whether a file
    keeps its content. Raise ValueError, which names the allowed forms, for an invalid address, and
    ImportError for `tls` if Python was built without it.
    """
    try:
        parts = urlsplit(address)
        path = unquote(parts.path)
        if parts.netloc in {"", "localhost"} and len(path) > 1 and "\0" not in path:
            if parts.scheme == "file":
                return File(path, append=append)
            if parts.scheme == "unix" and len(path.encode()) <= Unix.PATH_MAX:
                return Unix(path)
        if parts.hostname and parts.port and path in {"", "/"}:
            # With a str, `getaddrinfo` would import a codec in the sender's thread. If the process
            # forked meanwhile, the import's lock would stay taken in the child.
            host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
            if parts.scheme == "udp":
                return Udp(host, parts.port)
            if parts.scheme in {"tcp", "tls"}:
                credentials = credentials or Credentials.of_environment()
                kind = Tcp if parts.scheme == "tcp" else _tls()
                return kind(host, parts.port, credentials)
    except ValueError:  # an invalid port or host name
        pass
    raise ValueError(
        f"{address!r} is not an address: "
        "unix:///path, tcp://host:port, tls://host:port, udp://host:port or file:///path"
    )


def _tls() -> type[Tcp]:
    from tailrace_client._tls import Tls  # noqa: PLC0415 - only `tls` pays for the import of `ssl`

    return Tls
