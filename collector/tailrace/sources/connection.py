"""One connection: what comes on it, what is handed back on it, how it is ended from outside.

Nobody waits for a peer that does not read. What the kernel has no room for is kept until it has, up
to `UNSENT_MAX` bytes; packets beyond that are passed over, each as a whole. So a peer that never reads
costs that much and the kernel's small buffer.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

from tailrace.sources.channel import Channel, PlainChannel, TlsChannel
from tailrace.sources.refusal import Refusal
from tailrace.sources.source import Outcome
from tailrace.sources.token_line import first_line

SEND_BUFFER = 16 * 2**10
"""Asked of the kernel, which would else keep megabytes for a peer that does not read."""

UNSENT_MAX = 24 * 2**10
"""What there is to tell a client at a time, and some."""


class Connection:
    """`name` is how its peer is called, `whose` whom the limit for each peer counts it to."""

    def __init__(self, sock: socket.socket, name: str, whose: str) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.name = name
        self.whose = whose
        self.scope = trio.CancelScope()
        self.number: int | None = None
        """Of its session, from when it has one."""
        self.reason = "stop"
        """Why it ended."""
        self.ready = False
        """Whether something was put back: it is received without waiting."""
        self.opening: bytes | None = b""
        """Its first bytes, while it cannot be told whether they are a token's line, which is dropped;
        None: no such line is looked for."""
        self._back: tuple[bytes, str | None] = (b"", None)
        self._channel: Channel = PlainChannel(sock)
        self._unsent = b""
        self._later: Callable[[], None] | None = None
        """Sees to it that `send_rest` is called soon; None while replies are not sent."""

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.scope.cancel()

    async def secure(self, context: ssl.SSLContext) -> None:
        """Be TLS from now on. Raise OSError, of which those of TLS are: the handshake failed."""
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
        self.put_back(*channel.receive())  # what came with the last of the handshake

    def receive(self) -> tuple[bytes, str | None]:
        """What has come, and why nothing more will, if that is so. Does not wait."""
        if self.ready:
            self.ready = False
            data, ended = self._back
        else:
            data, ended = self._channel.receive()
            if said := self._channel.take_outgoing():
                if len(self._unsent) + len(said) > UNSENT_MAX:
                    return data, ended or Refusal.TLS  # it asks for answers and does not read them
                self._push(said)
        if self.opening is not None:
            data = self._open(self.opening + data, ended)
        return data, ended

    async def readable(self) -> None:
        """Return as soon as something may have come."""
        if not self.ready:
            await trio.lowlevel.wait_readable(self.sock)

    async def next(self) -> tuple[bytes, str | None]:
        """Do the same as `receive`, as soon as something may have come."""
        await self.readable()
        return self.receive()

    def put_back(self, data: bytes, ended: str | None) -> None:
        """What is received next."""
        self.ready = True
        self._back = (data, ended)

    @contextmanager
    def answering(self, later: Callable[[], None]) -> Iterator[None]:
        """Send replies meanwhile; `later` is called when a part is left to be sent (see `send_more`)."""
        self._later = later
        try:
            yield
        finally:
            self._later = None

    @property
    def hears(self) -> bool:
        """Whether all that was handed back is with the kernel."""
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
        """Say that this is the end and not a cut, if that is to be said and there is room for it."""
        if not self._unsent:
            with suppress(OSError):
                self.sock.send(self._channel.farewell(), socket.MSG_NOSIGNAL)

    def _open(self, data: bytes, ended: str | None) -> bytes:
        """What of the first bytes is known to be no token's line."""
        line = first_line(data)
        if line is None and ended is None:
            self.opening = data
            return b""
        self.opening = None
        return data if line is None else line.rest

    def _push(self, data: bytes) -> bool:
        """Send, now or as soon as there is room; whether there is somebody to send to."""
        alone = not self._unsent
        self._unsent += data
        if alone and not self._send():
            return False
        if alone and self._unsent and self._later is not None:
            self._later()
        return True

    async def send_rest(self) -> None:
        """Send what is left as soon as the kernel has room."""
        while self._unsent:
            await trio.lowlevel.wait_writable(self.sock)
            self.send_more()

    def send_more(self) -> bool:
        """Send what the kernel has room for; return whether more is left."""
        self._send()
        return bool(self._unsent)

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
