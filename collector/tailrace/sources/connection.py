"""Handle one accepted connection: receive its bytes, send replies, and close the connection.

No task may wait for a peer that does not read its replies. If the kernel cannot accept more bytes, a connection buffers
up to `UNSENT_MAX` bytes, and drops further replies as a whole.

`Readiness` waits for many sockets in one task, because a task for each socket would cost about 45 µs for each receive
(docs/decisions/speed.md, D142). `AdaptiveRest` determines the pause between two polls of a source's sockets. A poll
costs about 0.1 ms, even if little data is found (docs/decisions/speed.md, D101)."""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import trio

from tailrace.security.guard import Guard, explain
from tailrace.sources.source import CHUNK_MAX, UNSENT_MAX, Outcome, Refusal
from tailrace.spool.payloads import EOF

CUT = "eof without close_notify"
"""Reason recorded if a TLS connection ends without `close_notify`: an attacker may have cut off the last bytes."""


class Channel:
    """Receives and sends the bytes of a connection without TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> tuple[bytes, str | None]:
        """Return the received bytes (at most about CHUNK_MAX), and the reason why no more bytes will follow, or None."""
        try:
            data = self._sock.recv(CHUNK_MAX)
        except BlockingIOError:
            return b"", None
        except OSError as error:
            return b"", f"reset: {errno.errorcode.get(error.errno or 0, 'unknown')}"
        return data, None if data else EOF

    def seal(self, data: bytes) -> bytes:
        """Return the bytes to send for `data`. Raise OSError if the peer has disconnected."""
        return data

    def take_outgoing(self) -> bytes:
        """Return and remove the bytes that the TLS protocol itself has to send, such as handshake messages."""
        return b""

    def farewell(self) -> bytes:
        """Return the last bytes to send before the connection is closed: the TLS alert `close_notify`."""
        return b""


class TlsChannel(Channel):
    """The server side of a TLS connection. Bytes pass through memory buffers, so that no call blocks."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self) -> bool:
        """Continue the handshake with the received bytes; return whether it is complete. Raise ssl.SSLError, or OSError
        if the peer has disconnected. In each case, the caller must then send the bytes of `take_outgoing`."""
        data, ended = super().receive()
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if ended is not None:
                raise ConnectionResetError(ended) from None
            return False
        return True

    def peer(self) -> str:
        """Return the common name of the peer's certificate, or its first alternative name, as ASCII on one line."""
        certificate: Mapping[str, Any] = self._tls.getpeercert() or {}
        subject, others = certificate.get("subject", ()), certificate.get("subjectAltName", ())
        common = [value for part in subject for key, value in part if key == "commonName"]
        names = [*common, *(str(value) for _, value in others)]
        return ascii(names[0])[1:-1][:_NAME_MAX] if names else ""

    def receive(self) -> tuple[bytes, str | None]:
        data, ended = super().receive()
        self._incoming.write(data)
        opened = []
        try:
            while data := self._tls.read(CHUNK_MAX):
                opened.append(data)
        except ssl.SSLWantReadError:
            ended = CUT if ended == EOF else ended
        except ssl.SSLError:
            ended = Refusal.TLS
        else:
            ended = EOF
        return b"".join(opened), ended

    def seal(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        return self._outgoing.read()

    def farewell(self) -> bytes:
        # Do not wait for the peer's alert `close_notify`.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()


_NAME_MAX = 64

SEND_BUFFER = 16 * 2**10
"""Size (bytes) of the send buffer requested from the kernel, which by default buffers megabytes for a peer."""

TOKEN = b"tailrace-token "
LINE_MAX = 512
"""Maximum length (bytes) of a token line, including the newline."""


class TokenLine(NamedTuple):
    """The token in a connection's first line, or None without such a line, and the bytes after the line."""

    token: bytes | None
    rest: bytes


def first_line(data: bytes) -> TokenLine | None:
    """Parse the token line at the start of a connection's first bytes. Return None if it is not complete yet."""
    if data.startswith(TOKEN[: len(data)]):
        end = data.find(b"\n", 0, LINE_MAX)
        if end >= 0:
            return TokenLine(data[len(TOKEN) : end], data[end + 1 :])
        if len(data) < LINE_MAX:
            return None
    return TokenLine(None, data)


class Connection:
    """One accepted connection. `name` identifies the peer. All connections of the same peer have the same key `whose`,
    by which they are counted."""

    def __init__(self, sock: socket.socket, name: str, whose: str) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.name = name
        self.whose = whose
        self.number: int | None = None
        """The number of the connection's session; None before the first byte arrives."""
        self.active_at = 0.0
        """Time (seconds of trio's clock) at which data was last received."""
        self.reason = "stop"
        self.ready = False
        """Whether `put_back` has stored bytes for the next `receive`."""
        self.opening: bytes | None = b""
        """The first bytes of the connection while its token line may be incomplete; None afterwards."""
        self._back: tuple[bytes, str | None] = (b"", None)
        self._channel = Channel(sock)
        self._unsent = b""
        self._later: Callable[[], None] | None = None

    async def secure(self, context: ssl.SSLContext) -> None:
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
        # Bytes may have arrived together with the end of the handshake
        self.put_back(*channel.receive())

    def receive(self) -> tuple[bytes, str | None]:
        """Return the received bytes without blocking, and the reason why no more bytes will follow, or None."""
        if self.ready:
            self.ready = False
            data, ended = self._back
        else:
            data, ended = self._channel.receive()
            if outgoing := self._channel.take_outgoing():
                if len(self._unsent) + len(outgoing) <= UNSENT_MAX:
                    self._push(outgoing)
                else:
                    # The peer makes TLS send messages, such as answers to key updates, but does not read them.
                    ended = ended or Refusal.TLS
        # A source that requires no tokens also removes a token line, so that clients may send tokens before the source
        # requires them.
        if self.opening is not None:
            data = self.opening + data
            line = first_line(data)
            # If the connection has ended, the bytes of an incomplete line count as data.
            if line is None and ended is None:
                self.opening = data
                return b"", None
            self.opening = None
            data = data if line is None else line.rest
        return data, ended

    async def next(self) -> tuple[bytes, str | None]:
        if not self.ready:
            await trio.lowlevel.wait_readable(self.sock)
        return self.receive()

    def put_back(self, data: bytes, ended: str | None) -> None:
        """Store received bytes for the next call of `receive`, and the reason if the connection has ended."""
        self.ready = True
        self._back = (data, ended)

    def answer(self, later: Callable[[], None]) -> None:
        """From now on, replies can be sent on this connection. `later` is called if the kernel has not accepted all
        bytes of a reply, so that the caller sends the rest later."""
        self._later = later

    @property
    def can_reply(self) -> bool:
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
        """From now on, no reply can be sent on this connection. If no bytes wait to be sent, send the TLS alert
        `close_notify`."""
        self._later = None
        if not self._unsent:
            with suppress(OSError):
                self.sock.send(self._channel.farewell(), socket.MSG_NOSIGNAL)
        self._unsent = b""

    def _push(self, data: bytes) -> bool:
        """Send what the kernel accepts now, and buffer the remaining bytes. Return whether the peer is connected."""
        alone = not self._unsent
        self._unsent += data
        if alone and not self._send():
            return False
        if alone and self._unsent and self._later is not None:
            self._later()
        return True

    async def send_rest(self) -> None:
        # Another task may close the connection meanwhile.
        with suppress(trio.ClosedResourceError):
            while self._unsent:
                await trio.lowlevel.wait_writable(self.sock)
                self._send()

    def send_more(self) -> bool:
        """Send what the kernel accepts now. Return whether bytes are left."""
        self._send()
        return bool(self._unsent)

    def _send(self) -> bool:
        """Send what the kernel accepts now. Return whether the peer is connected."""
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""
            return False
        return True


class GreetingRefusedError(Exception):
    """Raised when a connection is rejected before it has a session. The text explains the cause to users."""

    def __init__(self, cause: Refusal, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause = cause


async def greet(connection: Connection, guard: Guard, patience: float) -> None:
    """Perform the TLS handshake and check the token, as far as `guard` requires them. Raise GreetingRefusedError if the
    handshake or the check fails, or if both together take longer than `patience` seconds."""
    with trio.move_on_after(patience) as waiting:
        if guard.certificates is not None:
            try:
                await connection.secure(guard.certificates.context())
            except ssl.SSLError as error:
                raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, explain(error)) from error
            except OSError as error:
                raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, "the peer has gone") from error
        if guard.tokens is not None:
            connection.opening = None
            data, ended = b"", None
            while (line := first_line(data)) is None and ended is None:
                more, ended = await connection.next()
                data += more
            if line is None or line.token is None:
                raise GreetingRefusedError(Refusal.NO_TOKEN)
            if not guard.tokens.accepts(line.token):
                raise GreetingRefusedError(Refusal.WRONG_TOKEN)
            connection.put_back(line.rest, ended)
    if waiting.cancelled_caught:
        raise GreetingRefusedError(Refusal.GREETING)


class Readiness:
    """A set of connections. One kernel call finds all those that can be read."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        self._epoll.close()

    def add(self, connection: Connection) -> None:
        self._epoll.register(connection.sock, select.EPOLLIN)
        self._connections[connection.sock.fileno()] = connection

    def remove(self, connection: Connection) -> None:
        if self._connections.pop(connection.sock.fileno(), None) is not None:
            self._epoll.unregister(connection.sock)

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._epoll)

    def found(self) -> list[Connection]:
        """Return all connections that can be read now. Those that have waited longest come first."""
        # Without this maximum, `poll` would return at most 1023 connections.
        ready = self._epoll.poll(0, max(1, len(self._connections)))
        return [self._connections[fd] for fd, _ in ready if fd in self._connections]


REST_MAX = 0.02
"""Maximum pause (seconds) between two polls, short compared with the 50 ms between two syncs of the spool."""

REST_MIN = 0.001
"""Minimum pause (seconds) between two polls. The event loop cannot wait for less."""


class AdaptiveRest:
    """Computes the pause between two polls of a source's sockets. During the pause, small writes collect in the kernel.

    A poll that found at least `enough` bytes at one socket halves the pause, and any other poll doubles it."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._seconds = REST_MIN

    def after(self, size: int) -> float:
        """Return the pause (seconds) before the next poll. `size` is the largest number of bytes found at one socket."""
        if size >= self._enough:
            self._seconds = self._seconds / 2 if self._seconds > REST_MIN else 0.0
        else:
            self._seconds = min(max(2 * self._seconds, REST_MIN), REST_MAX)
        return self._seconds
