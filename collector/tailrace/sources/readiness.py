"""Waits for many sockets in one task.

A task for each socket would cost some 45 µs for each receipt: it asks the kernel anew, is woken, and takes its turn.
Here the kernel is asked once for each socket, and tells of all that have something at once (docs/decisions/speed.md, D142).
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Readiness(Generic[T]):
    """The sockets of which somebody wants to know when they can be read, each with what it belongs to."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._owners: dict[int, T] = {}
        """By descriptor."""

    def close(self) -> None:
        self._epoll.close()

    def add(self, sock: socket.socket, owner: T) -> None:
        self._epoll.register(sock, select.EPOLLIN)
        self._owners[sock.fileno()] = owner

    def remove(self, sock: socket.socket) -> None:
        """Forget a socket, which is still open; do nothing if it is not known."""
        if self._owners.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock)

    async def wait(self) -> None:
        """Return once some socket can be read."""
        await trio.lowlevel.wait_readable(self._epoll)

    def found(self) -> Iterator[T]:
        """Yield the owners of the sockets that can be read now. Those that wait longest are among them."""
        for descriptor, _ in self._epoll.poll(0):
            if (owner := self._owners.get(descriptor)) is not None:
                yield owner
