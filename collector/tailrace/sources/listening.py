"""Sockets that may outlive the source that reads them, and the process.

The next reader continues with what is queued at the socket, and no peer finds the address closed
meanwhile.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.service_manager.descriptors import NOWHERE, Slot
from tailrace.sources.address import bound, has

BACKLOG = 4096
_SO_RCVBUFFORCE = 33
_SO_RXQ_OVFL = 40


class Listening:
    """One address, which is ours from `open` until `close`. `make` returns the socket or raises
    OSError. `slot` keeps the socket while no process has it; `fits` says whether a kept socket is the
    right one."""

    def __init__(
        self,
        make: Callable[[], socket.socket],
        slot: Slot = NOWHERE,
        fits: Callable[[socket.socket], bool] = lambda _: False,
    ) -> None:
        self.kept = False
        """Whether the address stays ours when its reader ends."""
        self.inherited = False
        """Whether an earlier process had the socket."""
        self.held_since: int | None = None
        """When the address became ours, if that was before its first reader came (Unix ns)."""
        self.drops_told = 0
        """The datagrams ever dropped here, as counted when a reader last reported them."""
        self._make = make
        self._slot = slot
        self._fits = fits
        self._sock: socket.socket | None = None

    def open(self) -> socket.socket:
        """Return the socket, which does not block. Raise OSError."""
        if self._sock is None:
            self._sock = self._inherit() or self._new()
        return self._sock

    def close(self) -> None:
        """Close the socket. If somebody keeps it, what is queued there waits for the next process."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def give_up(self) -> None:
        """Close the socket for good, so that no later process gets it."""
        self._slot.forget()
        self.close()

    @contextmanager
    def reading(self) -> Iterator[socket.socket]:
        """Yield the socket to its reader. Raise OSError."""
        try:
            yield self.open()
        finally:
            if not self.kept:
                self.close()

    def _inherit(self) -> socket.socket | None:
        sock = self._slot.take(self._fits)
        self.inherited = sock is not None
        return sock

    def _new(self) -> socket.socket:
        try:
            sock = self._make()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._slot.make_way():
                raise
            sock = self._make()
        self._slot.keep(sock)
        return sock


def of_datagrams(
    listen: str, slot: Slot = NOWHERE, *, buffer: int = 0, shared: bool = False
) -> Listening:
    """Return an address for datagrams, which other processes may have as well if it is `shared`. A `buffer` is the size of the receive buffer to ask for, as
    soon as there is a socket."""
    kind = socket.SOCK_DGRAM

    def make() -> socket.socket:
        sock = bound(listen, kind, shared=shared)
        count_drops(sock)
        if buffer:
            size_buffer(sock, buffer)
        return sock

    return Listening(make, slot, lambda sock: has(sock, listen, kind))


def count_drops(sock: socket.socket) -> None:
    """Make the kernel attach to each datagram that it queues from now on the number of datagrams that it has dropped
    at the socket so far."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)


def drops_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the count of `count_drops` that came with a datagram; 0 if none came."""
    counts = [
        data
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL)
    ]
    return int.from_bytes(counts[0], sys.byteorder) if counts else 0


def size_buffer(sock: socket.socket, asked: int, *, force: bool = True) -> int:
    """Ask for a receive buffer of so many bytes; return how many the kernel granted.

    With `force`, and the privilege for it, net.core.rmem_max is no limit."""
    # The kernel doubles the size that it is given and reports the doubled size. It counts in an int.
    given = min(asked // 2, 2**30 - 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if force else socket.SO_RCVBUF, given)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, given)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def of_connections(listen: str, slot: Slot = NOWHERE, *, shared: bool = False) -> Listening:
    kind = socket.SOCK_STREAM
    return Listening(
        lambda: _accepting(listen, shared=shared),
        slot,
        lambda sock: has(sock, listen, kind) and accepts(sock),
    )


def accepts(sock: socket.socket) -> bool:
    """Make a socket listen; return whether it accepts connections."""
    try:
        sock.listen(BACKLOG)
    except OSError:
        return False
    return True


def _accepting(listen: str, *, shared: bool) -> socket.socket:
    sock = bound(listen, socket.SOCK_STREAM, shared=shared)
    try:
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
