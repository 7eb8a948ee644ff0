"""Open sockets and files, and notice later when their descriptor numbers lead elsewhere.

A program may close every descriptor that it did not open itself (`os.closerange`, to become a daemon).
Its next file or connection gets the number. So a transport keeps a `Mark` of what it opened, and uses
or closes the number only while the mark holds. Otherwise it forgets the number and opens anew.

Descriptors up to 2 are left to standard input, output and error, which the program may have closed.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, F_GETFL, fcntl
from typing import Any, NamedTuple

CONNECT_SECONDS = 2.0
"""How long a peer may take to accept."""

Address = tuple[int, int, int, Any]
"""Family, kind and protocol of a socket, and where it connects to."""


class TakenError(ConnectionError):
    """The program has closed a descriptor of the client's, and may have given the number away."""

    def __init__(self) -> None:
        super().__init__(errno.EBADF, "the program closed the client's descriptor")


class Found(NamedTuple):
    """The identity of what a descriptor has open."""

    device: int
    inode: int
    kind: int
    flags: int
    """The kernel may give the inode of a removed file to another file, which the program is unlikely to open with the
    same flags."""

    @classmethod
    def behind(cls, number: int) -> Found:
        facts = os.fstat(number)
        kind = stat.S_IFMT(facts.st_mode)
        flags = 0 if kind == stat.S_IFSOCK else fcntl(number, F_GETFL)
        return cls(facts.st_dev, facts.st_ino, kind, flags)


class Mark(NamedTuple):
    """A number, and where it led when it was opened here."""

    number: int
    found: Found

    @classmethod
    def of(cls, number: int) -> Mark:
        return cls(number, Found.behind(number))

    def holds(self) -> bool:
        """Return whether the number still leads there."""
        try:
            return Found.behind(self.number) == self.found
        except OSError:
            return False


class Kept(NamedTuple):
    """A socket, its mark, and the address to which it is connected."""

    socket: socket.socket
    mark: Mark
    address: Address

    def close(self) -> None:
        """Close the socket, but no descriptor of the program's."""
        if self.mark.holds():
            self.socket.close()
        else:
            self.socket.detach()


class SocketTransport:
    """The socket of a transport, used only while its number is ours."""

    prompt = True
    is_near = False
    answers = True
    refusal = ""

    def __init__(self) -> None:
        self._kept: Kept | None = None

    @property
    def is_open(self) -> bool:
        return self._kept is not None

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        if kept := self._kept:
            wait(kept.socket, seconds, to_send=to_send)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _own(self) -> socket.socket | None:
        """Return the socket, for one use; None if it is closed. If its number is no longer ours, forget it
        and raise TakenError."""
        kept = self._kept
        if kept is None:
            return None
        if not kept.mark.holds():
            self.close()
            raise TakenError
        return kept.socket


def above_standard(number: int) -> int:
    """Return a descriptor in place of `number` that is none of standard input, output and error."""
    if number > 2:
        return number
    try:
        return fcntl(number, F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(number)


def addresses(host: bytes, port: int, kind: socket.SocketKind) -> list[Address]:
    """Return the addresses of a host. Raise OSError if there are none."""
    found = socket.getaddrinfo(host, port, type=kind)
    return [(family, type_, protocol, where) for family, type_, protocol, _, where in found]


def connect(candidates: Iterable[Address]) -> Kept:
    """Return a connected, non-blocking socket to the first of these addresses that accepts it."""
    failure = OSError("the host has no address")
    for address in candidates:
        kept = None
        try:
            kept = _made(address)
            kept.socket.settimeout(CONNECT_SECONDS)
            kept.socket.connect(address[3])
            if not kept.mark.holds():
                raise TakenError
            if kept.socket.getsockname() == kept.socket.getpeername():
                # The kernel may give our end the very port, if that is ephemeral and nobody listens.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
            kept.socket.settimeout(0)
        except OSError as error:
            if kept is not None:
                kept.close()
            failure = error
        else:
            return kept
    raise failure


def _made(address: Address) -> Kept:
    family, kind, protocol, _ = address
    made = socket.socket(family, kind, protocol)
    number = made.fileno()
    if number <= 2:  # eventlet's sockets do not outlive a `detach`
        number = above_standard(made.detach())
        made = socket.socket(family, kind, protocol, fileno=number)
    return Kept(made, Mark.of(number), address)


def wait(connection: socket.socket, seconds: float, *, to_send: bool) -> None:
    """Wait at most `seconds` until bytes have come or, with `to_send`, there is room to send."""
    with suppress(ValueError):  # closed by another thread just now
        if not hasattr(select, "poll"):  # eventlet removes it
            select.select([connection], [connection] if to_send else [], [], max(0.0, seconds))
            return
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if to_send else 0))
        poll.poll(max(0.0, seconds) * 1000)


def is_this_host(host: bytes) -> bool:
    """Return whether an address belongs to this machine. A name is not resolved, since that may take long."""
    if host == b"localhost":
        return True
    family = socket.AF_INET6 if b":" in host else socket.AF_INET
    address = host.decode()  # gevent's sockets take no bytes
    try:
        socket.inet_pton(family, address)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing, but chooses the address to send from
            own: str = probe.getsockname()[0]
            other: str = probe.getpeername()[0]
    except OSError:
        return False
    return own == other or other.startswith("127.")
