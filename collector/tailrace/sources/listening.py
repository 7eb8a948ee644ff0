"""A socket that may outlive the source that reads it, and the process: its successor goes on with what
is queued there, and no peer meets a closed door meanwhile."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.service_manager.descriptors import NOWHERE, Slot
from tailrace.sources.address import bound, has

BACKLOG = 512
_SO_RCVBUFFORCE = 33


class Listening:
    """An address; it is ours from `open` until `close`. `make` gives the socket or raises OSError;
    `slot` is where it is kept while no process has it, `fits` whether one that was is such a one."""

    def __init__(
        self,
        make: Callable[[], socket.socket],
        slot: Slot = NOWHERE,
        fits: Callable[[socket.socket], bool] = lambda _: False,
    ) -> None:
        self.kept = False
        """Whether it stays ours when its reader ends."""
        self.inherited = False
        """Whether an earlier process had it."""
        self.held_since: int | None = None
        """Since when it was ours without a reader (Unix ns), before its first reader came."""
        self.drops_told = 0
        """Of the datagrams that the kernel ever dropped here, those that a reader has told of."""
        self._make = make
        self._slot = slot
        self._fits = fits
        self._sock: socket.socket | None = None

    def open(self) -> socket.socket:
        """The socket, non-blocking. Raise OSError."""
        if self._sock is None:
            self._sock = self._inherit() or self._new()
        return self._sock

    def close(self) -> None:
        """Let go of it. What is queued there waits for the next process, if somebody keeps it."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def give_up(self) -> None:
        """Nobody will go on with it."""
        self._slot.forget()
        self.close()

    @contextmanager
    def reading(self) -> Iterator[socket.socket]:
        """The socket, for its reader. Raise OSError."""
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


def of_datagrams(listen: str, slot: Slot = NOWHERE, *, buffer: int = 0) -> Listening:
    """With a `buffer`, a receive buffer of so many bytes is asked for as soon as there is a socket."""
    kind = socket.SOCK_DGRAM

    def make() -> socket.socket:
        sock = bound(listen, kind)
        if buffer:
            size_buffer(sock, buffer)
        return sock

    return Listening(make, slot, lambda sock: has(sock, listen, kind))


def size_buffer(sock: socket.socket, asked: int, *, force: bool = True) -> int:
    """Ask for a receive buffer of so many bytes; how many the kernel granted.

    With `force`, and the privilege for it, beyond net.core.rmem_max."""
    # The kernel doubles what it is given and reports the doubled size; it counts in an int.
    given = min(asked // 2, 2**30 - 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if force else socket.SO_RCVBUF, given)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, given)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def of_connections(listen: str, slot: Slot = NOWHERE) -> Listening:
    kind = socket.SOCK_STREAM
    return Listening(
        lambda: _accepting(listen),
        slot,
        lambda sock: has(sock, listen, kind) and accepts(sock),
    )


def accepts(sock: socket.socket) -> bool:
    """Whether it accepts connections, from now on at least."""
    try:
        sock.listen(BACKLOG)
    except OSError:
        return False
    return True


def _accepting(listen: str) -> socket.socket:
    sock = bound(listen, socket.SOCK_STREAM)
    try:
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
