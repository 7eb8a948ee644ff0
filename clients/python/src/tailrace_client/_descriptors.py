"""Open sockets and files, and detect later whether their descriptor numbers still refer to them.

A program may close every descriptor that it did not open itself (`os.closerange`, to become a daemon), and the kernel
then gives the number to the program's next file. So a transport uses or closes a number only while its `Mark` (the
identity of the opened file or socket) holds.
The client never uses the descriptors 0 to 2, which the program may have closed, too.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, F_GETFL, fcntl
from typing import Any, NamedTuple

CONNECT_SECONDS = 2.0
"""Maximum time (seconds) for which the client waits until a peer accepts a connection."""

Address = tuple[int, int, int, Any]
"""Family, type and protocol of a socket, and the address to which it must connect."""


class TakenError(ConnectionError):
    """Raised if the program has closed one of the client's descriptors."""

    def __init__(self) -> None:
        super().__init__(errno.EBADF, "the program closed the client's descriptor")


class Found(NamedTuple):
    """The identity of the file or socket to which a descriptor refers."""

    device: int
    inode: int
    kind: int
    flags: int
    """The file's status flags (0 for a socket). They are compared, too, because the kernel may have reused the inode
    number of a removed file for another file."""

    @classmethod
    def behind(cls, number: int) -> Found:
        facts = os.fstat(number)
        kind = stat.S_IFMT(facts.st_mode)
        flags = 0 if kind == stat.S_IFSOCK else fcntl(number, F_GETFL)
        return cls(facts.st_dev, facts.st_ino, kind, flags)


class Mark(NamedTuple):
    number: int
    found: Found

    @classmethod
    def of(cls, number: int) -> Mark:
        return cls(number, Found.behind(number))

    def holds(self) -> bool:
        """Return whether the number still refers to the same file or socket."""
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
        """Close the socket, unless the descriptor number now refers to a file or socket of the program."""
        if self.mark.holds():
            self.socket.close()
        else:
            self.socket.detach()


class NoSignals:
    """A context manager within which a failed write raises an error but causes no signal. Otherwise the kernel also
    sends SIGPIPE if no process reads any more, and SIGXFSZ if a file reaches the limit of its size. Python ignores
    both, but the program may have set their default, which ends the process, or a handler of its own. Each thread needs
    its own object."""

    __slots__ = ("_blocked", "_earlier")

    def __enter__(self) -> None:
        sent = (signal.SIGPIPE, signal.SIGXFSZ)
        self._blocked = {each for each in sent if signal.getsignal(each) != signal.SIG_IGN}
        if self._blocked:
            self._blocked -= signal.pthread_sigmask(signal.SIG_BLOCK, self._blocked)
            self._earlier = signal.sigpending()

    def __exit__(self, *_: object) -> None:
        if self._blocked:
            for number in self._blocked & signal.sigpending() - self._earlier:
                signal.sigwait({number})
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._blocked)


NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag with which a send to a socket without a reader sends no SIGPIPE."""


class SocketTransport:
    """A transport over a socket, which is used only while its descriptor still refers to it."""

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
        """Return the socket for one use, or None if the transport is closed. Raise TakenError if the descriptor number
        no longer refers to it."""
        kept = self._kept
        if kept is None:
            return None
        if not kept.mark.holds():
            self.close()
            raise TakenError
        return kept.socket


def above_standard(number: int) -> int:
    """Return a descriptor above 2 for the same file or socket: 0 to 2 are standard input, output and error."""
    if number > 2:
        return number
    try:
        return fcntl(number, F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(number)


def addresses(host: bytes, port: int, kind: socket.SocketKind) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=kind)
    return [(family, type_, protocol, where) for family, type_, protocol, _, where in found]


def connect(candidates: Iterable[Address]) -> Kept:
    """Return a non-blocking socket that is connected to the first address that accepts a connection."""
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
                # The address connects to itself: if the port is ephemeral and no process listens on it, the kernel may
                # choose it for the client's own end.
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
    # Replace the socket only in this case: a socket of the library eventlet does not survive a call of `detach`.
    if number <= 2:
        number = above_standard(made.detach())
        made = socket.socket(family, kind, protocol, fileno=number)
    return Kept(made, Mark.of(number), address)


def wait(connection: socket.socket, seconds: float, *, to_send: bool) -> None:
    """Wait until bytes have arrived, at most `seconds`. With `to_send`, also stop when the send buffer has room."""
    with suppress(ValueError):  # another thread may have closed the socket
        if not hasattr(select, "poll"):  # The library eventlet removes this function.
            select.select([connection], [connection] if to_send else [], [], max(0.0, seconds))
            return
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if to_send else 0))
        poll.poll(max(0.0, seconds) * 1000)


def is_this_host(host: bytes) -> bool:
    """Return whether an address belongs to this host, without resolving names, which may take long."""
    if host == b"localhost":
        return True
    family = socket.AF_INET6 if b":" in host else socket.AF_INET
    address = host.decode()  # Convert to str, because sockets of gevent accept no bytes here.
    try:
        socket.inet_pton(family, address)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # For a datagram socket, this sends nothing, but selects the local address.
            probe.connect((address, 9))
            own: str = probe.getsockname()[0]
            other: str = probe.getpeername()[0]
    except OSError:
        return False
    return own == other or other.startswith("127.")
