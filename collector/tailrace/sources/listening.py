"""A socket that may outlive the source that reads it: its successor goes on with what is queued there,
and no peer meets a closed door meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.sources.address import bound

BACKLOG = 512


class Listening:
    """An address; it is ours from `open` until `close`. `make` gives the socket or raises OSError."""

    def __init__(self, make: Callable[[], socket.socket]) -> None:
        self.kept = False
        """Whether it stays ours when its reader ends."""
        self.drops_told = 0
        """Of the datagrams that the kernel ever dropped here, those that a reader has told of."""
        self._make = make
        self._sock: socket.socket | None = None

    def open(self) -> socket.socket:
        """The socket, non-blocking. Raise OSError."""
        if self._sock is None:
            self._sock = self._make()
        return self._sock

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    @contextmanager
    def reading(self) -> Iterator[socket.socket]:
        """The socket, for its reader. Raise OSError."""
        try:
            yield self.open()
        finally:
            if not self.kept:
                self.close()


def of_datagrams(listen: str) -> Listening:
    return Listening(lambda: bound(listen, socket.SOCK_DGRAM))


def of_connections(listen: str) -> Listening:
    return Listening(lambda: _accepting(listen))


def _accepting(listen: str) -> socket.socket:
    sock = bound(listen, socket.SOCK_STREAM)
    try:
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
