"""One connection: how it is ended from outside, and what is handed back on it.

Nobody waits for a peer that does not read. What the kernel has no room for is kept until it has, up
to `UNSENT_MAX` bytes; packets beyond that are passed over, each as a whole. So a peer that never reads
costs that much and the kernel's small buffer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tailrace.sources.source import Outcome

SEND_BUFFER = 16 * 2**10
"""Asked of the kernel, which would else keep megabytes for a peer that does not read."""

UNSENT_MAX = 24 * 2**10
"""What there is to tell a client at a time, and some."""


class Connection:
    """`whose` is whom the limit for each peer counts it to."""

    def __init__(self, sock: socket.socket, whose: str) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.whose = whose
        self.scope = trio.CancelScope()
        self.reason = "stop"
        """Why it was cut."""
        self._unsent = b""
        self._nursery: trio.Nursery | None = None

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.scope.cancel()

    @contextmanager
    def answering(self, nursery: trio.Nursery) -> Iterator[None]:
        """Meanwhile, replies are sent, and what is left of one is in the nursery's care."""
        self._nursery = nursery
        try:
            yield
        finally:
            self._nursery = None

    @property
    def hears(self) -> bool:
        """Whether all that was handed back is with the kernel."""
        return self._nursery is not None and not self._unsent

    def reply(self, data: bytes) -> Outcome:
        if self._nursery is None:
            return Outcome.GONE
        if len(self._unsent) + len(data) > UNSENT_MAX:
            return Outcome.UNREAD
        alone = not self._unsent
        self._unsent += data
        if alone and not self._send():
            return Outcome.GONE
        if alone and self._unsent:
            self._nursery.start_soon(self._send_rest)
        return Outcome.SENT

    async def _send_rest(self) -> None:
        while self._unsent:
            await trio.lowlevel.wait_writable(self.sock)
            self._send()

    def _send(self) -> bool:
        """Whether there is somebody to send to; that there is not is for the receiver to act on."""
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""
            return False
        return True
