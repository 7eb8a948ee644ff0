"""One connection: its bytes, its replies, and how it is ended from outside.

Nobody waits for a peer that does not read. A connection keeps up to `UNSENT_MAX` bytes for which the
kernel has no room, and drops further packets, each as a whole. A peer that never reads thus costs
these bytes and the kernel's small buffer.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from tailrace.sources.channel import Channel, PlainChannel, TlsChannel
from tailrace.sources.refusal import Refusal
from tailrace.sources.source import Outcome

SEND_BUFFER = 16 * 2**10
"""Bytes asked of the kernel, which would otherwise keep megabytes for a peer that does not read."""

UNSENT_MAX = 24 * 2**10
"""Bytes: somewhat more than one client is told at a time."""

TOKEN = b"tailrace-token "
LINE_MAX = 512
"""Bytes of a token's line, with its end."""


class TokenLine(NamedTuple):
    """A connection's first bytes: the token in their first line, None if there is none, and the bytes
    behind it. A source that demands no token accepts and drops such a line, so that clients can be
    given theirs first."""

    token: bytes | None
    rest: bytes


def first_line(data: bytes) -> TokenLine | None:
    """Return the first line, None while more bytes are needed to tell."""
    if data.startswith(TOKEN[: len(data)]):
        end = data.find(b"\n", 0, LINE_MAX)
        if end >= 0:
            return TokenLine(data[len(TOKEN) : end], data[end + 1 :])
        if len(data) < LINE_MAX:
            return None
    return TokenLine(None, data)


class Connection:
    """One accepted connection. `name` identifies its peer in logs and sessions; `whose` is the key
    under which the limit for each peer counts it."""

    def __init__(self, sock: socket.socket, name: str, whose: str) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.name = name
        self.whose = whose
        self.number: int | None = None
        """The number of its session; None before its first byte."""
        self.heard = 0.0
        """When something came last (seconds of trio's clock)."""
        self.reason = "stop"
        """Why the connection ended."""
        self.ready = False
        """Whether something was put back, which `receive` returns without waiting."""
        self.opening: bytes | None = b""
        """The first bytes, while they may be a token's line, which is dropped. None if no such line
        is expected."""
        self._back: tuple[bytes, str | None] = (b"", None)
        self._channel: Channel = PlainChannel(sock)
        self._unsent = b""
        self._later: Callable[[], None] | None = None
        """Arranges that `send_rest` is called soon; None while no replies are sent."""

    async def secure(self, context: ssl.SSLContext) -> None:
        """Switch to TLS. Raise OSError if the handshake fails; ssl.SSLError is one."""
        channel = TlsChannel(self.sock, context)
        through = False
        while not through:
            await trio.lowlevel.wait_readable(self.sock)
            try:
                through = channel.shake_hands()
            finally:
                self._push(channel.take_outgoing())
        if peer := channel.peer():
            self.name = f"{self.name},certificate={peer}"
        self._channel = channel
        self.put_back(*channel.receive())  # bytes that came with the end of the handshake

    def receive(self) -> tuple[bytes, str | None]:
        """Return without waiting what was received, and why no more will follow, None if more may."""
        if self.ready:
            self.ready = False
            data, ended = self._back
        else:
            data, ended = self._channel.receive()
            if outgoing := self._channel.take_outgoing():
                if len(self._unsent) + len(outgoing) > UNSENT_MAX:
                    return data, ended or Refusal.TLS  # it provokes answers and reads none
                self._push(outgoing)
        if self.opening is not None:
            data = self._open(self.opening + data, ended)
        return data, ended

    async def next(self) -> tuple[bytes, str | None]:
        """Wait until something may have come, then receive it."""
        if not self.ready:
            await trio.lowlevel.wait_readable(self.sock)
        return self.receive()

    def put_back(self, data: bytes, ended: str | None) -> None:
        """Let the next `receive` return this."""
        self.ready = True
        self._back = (data, ended)

    def answer(self, later: Callable[[], None]) -> None:
        """Send replies from now on. `later` is called when a part is left to send (see `send_more`)."""
        self._later = later

    @property
    def hears(self) -> bool:
        """Return whether replies are sent, and the kernel has taken all of them."""
        return self._later is not None and not self._unsent

    def reply(self, data: bytes) -> Outcome:
        if self._later is None:
            return Outcome.GONE
        if len(self._unsent) + len(data) > UNSENT_MAX:
            return Outcome.UNREAD
        try:
            sealed = self._channel.seal(data)
        except OSError:
            return Outcome.GONE
        return Outcome.SENT if self._push(sealed) else Outcome.GONE

    def close(self) -> None:
        """Send no more replies. Send TLS's goodbye, so that the end does not look like a cut, unless earlier
        bytes are unsent."""
        self._later = None
        if not self._unsent:
            with suppress(OSError):
                self.sock.send(self._channel.farewell(), socket.MSG_NOSIGNAL)
        self._unsent = b""

    def _open(self, data: bytes, ended: str | None) -> bytes:
        """Return the first bytes once they are known to be no token's line."""
        line = first_line(data)
        if line is None and ended is None:
            self.opening = data
            return b""
        self.opening = None
        return data if line is None else line.rest

    def _push(self, data: bytes) -> bool:
        """Send bytes, now or as soon as there is room; return whether the peer is still there."""
        alone = not self._unsent
        self._unsent += data
        if alone and not self._send():
            return False
        if alone and self._unsent and self._later is not None:
            self._later()
        return True

    async def send_rest(self) -> None:
        """Send the unsent bytes as soon as the kernel has room."""
        while self._unsent:
            await trio.lowlevel.wait_writable(self.sock)
            self.send_more()

    def send_more(self) -> bool:
        """Send what the kernel has room for; return whether bytes are left."""
        self._send()
        return bool(self._unsent)

    def _send(self) -> bool:
        """Send what the kernel has room for; return whether the peer is still there. The receiver
        acts on a peer that is gone."""
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""
            return False
        return True
