"""The messages between a rank and its node's collector: JSON lines over a unix socket.

A rank sends `Hello` and receives `Welcome`, or `Taken` if another program of the same rank is connected. When its
program has ended, it sends `Bye` and receives `Released`: at once if other ranks are connected; the last rank waits
for the certificate.
"""

from __future__ import annotations

import msgspec

LINE_MAX = 1 << 20
"""Bytes of a message; a program's arguments are the longest."""


class Hello(msgspec.Struct, kw_only=True):
    rank: int
    job: str | None
    size: int | None
    pid: int
    arguments: list[str]
    files: list[str]
    """FORMAT=PATH to follow, with absolute paths."""
    own: dict[str, str]
    """The directories, by format, of tracers that write elsewhere than we would tell them."""


class Taken(msgspec.Struct, tag="taken"):
    """Another program of this rank is connected, so no launcher started both. This program starts a collector of its
    own."""


class Welcome(msgspec.Struct, kw_only=True, tag="welcome"):
    addresses: dict[str, str]
    """host:port by source."""
    token: str
    """The token that the listeners demand."""
    traces: str
    """The directory of this rank's tracers."""
    store: str
    """Path or URL of the node's table."""


class Bye(msgspec.Struct, kw_only=True):
    exit_status: int


class Released(msgspec.Struct, kw_only=True):
    """The rank may end. With `others`, other ranks run on; or else `certificate` is the path of the node's, if it could
    be written."""

    others: bool
    certificate: str | None = None
    failures: list[str] = []
    refused: dict[str, int] = {}
    """Connections and datagrams of other users, by cause."""


def packed(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class NodeSpec(msgspec.Struct, kw_only=True):
    """A node's collector. `store` is its table's; `directory` has its certificate, log and traces."""

    config: str | None
    store: str
    directory: str
    node: str
    job: str | None
    size: int | None
    local_size: int | None
    max_loss: int
    certificate: str
    sign: str | None
    meeting: str = ""
