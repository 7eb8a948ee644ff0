"""Where packets go: `unix:///path`, `tcp://host:port`, `tls://host:port`, `udp://host:port` or
`file:///path`.

A transport moves bytes and knows no format. It is driven by one caller at a time (`_sender` sees to
that), who decides what is sent when it was opened anew.
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
    """A way out.

    `send` of a socket returns at once, whatever the network does; of a file it may wait for the
    disk. `open` may wait: for a name to be resolved, and for a peer to accept. Both raise OSError
    where that fails; what is open is closed then, and may be opened again.
    """

    packet_max: int
    """Bytes of the longest packet that it carries."""
    chunk_bytes: int
    """Bytes that are worth a system call, and fit into one."""
    datagrams: bool
    """Whether what is sent in one call arrives as one, or not at all."""
    prompt: bool
    """Whether `send` returns at once, so that any thread may call it."""
    answers: bool
    """Whether a collector at the other end can answer."""
    refusal: str
    """What to ask where a peer ends a connection before it has said anything."""

    @property
    def is_open(self) -> bool:
        """Whether `send` may be called."""
        ...

    def open(self) -> None:
        """Make it ready to send."""
        ...

    def send(self, pieces: Sequence[bytes], /) -> int:
        """Hand pieces to the kernel in one system call; how many of their bytes it took. 0: there
        is no room now, and the same bytes come first in the next call. Raise ConnectionRefusedError, and stay open, where a datagram sent *before*
        found nobody."""
        ...

    def receive(self) -> bytes:
        """What has come back, of a datagram transport one datagram; empty if nothing has. Raise
        ConnectionError when the peer is gone."""
        ...

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        """Until something came back, or there is room to send if that is asked; at most so long."""
        ...

    def finish(self, seconds: float, /) -> None:
        """Close once the peer has read all, where it says so within `seconds`."""
        ...

    def close(self) -> None:
        """Let go of the connection or file."""
        ...

    def forked(self) -> Transport:
        """One of a forked child's own, for the same address; this one is closed in the child."""
        ...


def parse(
    address: str, credentials: Credentials | None = None, *, append: bool = True
) -> Transport:
    """The transport for an address. Raise ValueError, naming the forms allowed, for another one;
    ImportError for `tls` where Python was built without it.

    `credentials`, for TCP and TLS, are those of the environment unless given. `append`: whether a
    file is gone on with, or emptied first.
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
            # Encoded here: given a str, `getaddrinfo` would import a codec in the sender's thread,
            # and a process that forks meanwhile leaves the import's lock taken in its child.
            host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
            if parts.scheme == "udp":
                return Udp(host, parts.port)
            if parts.scheme in {"tcp", "tls"}:
                credentials = credentials or Credentials.of_environment()
                kind = Tcp if parts.scheme == "tcp" else _tls()
                return kind(host, parts.port, credentials)
    except ValueError:  # a port that is no number, a host that is no name
        pass
    raise ValueError(
        f"{address!r} is not an address: "
        "unix:///path, tcp://host:port, tls://host:port, udp://host:port or file:///path"
    )


def _tls() -> type[Tcp]:
    from tailrace_client._tls import Tls  # noqa: PLC0415 - others do not pay for `ssl`

    return Tls
