"""One connection: its bytes, its replies, and how it is ended from outside.

Constraint: nobody waits for a peer that does not read. A connection keeps up to `UNSENT_MAX` bytes for which the
kernel has no room, and drops further packets, each as a whole. A peer that never reads thus costs these bytes and the
kernel's small buffer.

Bytes cross a connection plain or through TLS (`Channel`); no call waits. Before a connection has a session, `greet`
performs the TLS handshake and checks the token.

`Readiness` waits for many sockets in one task. A task for each socket would cost some 45 µs for each receipt: it asks
the kernel anew, is woken, and takes its turn. Here the kernel is asked once for each socket, and returns all that are
readable at once (docs/decisions/speed.md, D142).

`AdaptiveRest` decides how long a source rests between two looks at its sockets, so that one look finds many small
writes. Each look costs the event loop, the spool and the decoder some 0.1 ms, however little it finds
(docs/decisions/speed.md, D101).
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from tailrace.security.certificates import Certificates, explain
from tailrace.security.guard import Guard
from tailrace.security.tokens import Tokens
from tailrace.sources.source import CHUNK_MAX, Outcome, Refusal
from tailrace.spool.payloads import EOF

CUT = "eof without close_notify"
"""The stream ended without TLS's goodbye: somebody other than the peer may have cut it."""


class Channel(Protocol):
    def receive(self) -> tuple[bytes, str | None]:
        """Return what was received, at most about CHUNK_MAX bytes, and why no more will follow, None
        if more may."""
        ...

    def seal(self, data: bytes) -> bytes:
        """Return the bytes to send so that the peer gets `data`. Raise OSError if the peer can get no
        more."""
        ...

    def take_outgoing(self) -> bytes:
        """Return and forget what the channel itself has to send."""
        ...

    def farewell(self) -> bytes:
        """Return the last bytes to send."""
        ...


class PlainChannel:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> tuple[bytes, str | None]:
        try:
            data = self._sock.recv(CHUNK_MAX)
        except BlockingIOError:
            return b"", None
        except OSError as error:
            return b"", f"reset: {errno.errorcode.get(error.errno or 0, 'unknown')}"
        return data, None if data else EOF

    def seal(self, data: bytes) -> bytes:
        return data

    def take_outgoing(self) -> bytes:
        return b""

    def farewell(self) -> bytes:
        return b""


class TlsChannel:
    """The server's end of TLS, between the socket and two buffers in memory."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain = PlainChannel(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self) -> bool:
        """Continue the handshake with what was received; return whether it is complete. Send what
        `take_outgoing` returns in any case. Raise ssl.SSLError or, if the peer has gone, OSError."""
        data, ended = self._plain.receive()
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if ended is not None:
                raise ConnectionResetError(ended) from None
            return False
        return True

    def peer(self) -> str:
        """Return the name in the peer's certificate, empty if the peer showed none."""
        return named(self._tls.getpeercert() or {})

    def receive(self) -> tuple[bytes, str | None]:
        data, ended = self._plain.receive()
        self._incoming.write(data)
        opened, over = self._open()
        return opened, over or (CUT if ended == EOF else ended)

    def seal(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        return self._outgoing.read()

    def farewell(self) -> bytes:
        with suppress(ssl.SSLError):  # the peer's goodbye has not come
            self._tls.unwrap()
        return self._outgoing.read()

    def _open(self) -> tuple[bytes, str | None]:
        opened = []
        try:
            while data := self._tls.read(CHUNK_MAX):
                opened.append(data)
        except ssl.SSLWantReadError:
            return b"".join(opened), None
        except ssl.SSLError:
            return b"".join(opened), Refusal.TLS
        return b"".join(opened), EOF


_NAME_MAX = 64


def named(certificate: Mapping[str, Any]) -> str:
    """Return the common name of a certificate from `getpeercert`, or else its first other name: in
    ASCII, on one line, and cut to `_NAME_MAX`."""
    subject, others = certificate.get("subject", ()), certificate.get("subjectAltName", ())
    common = [value for part in subject for key, value in part if key == "commonName"]
    names = [*common, *(str(value) for _, value in others)]
    return ascii(names[0])[1:-1][:_NAME_MAX] if names else ""


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
        self.active_at = 0.0
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
    def can_reply(self) -> bool:
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


class GreetingRefusedError(Exception):
    """A connection gets no session. The text is for people."""

    def __init__(self, cause: Refusal, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause = cause


def greets(guard: Guard) -> bool:
    """Return whether anything is demanded of a connection before it has a session."""
    return guard.certificates is not None or guard.tokens is not None


async def greet(connection: Connection, guard: Guard, patience: float) -> None:
    """Perform the handshake and check the token, as far as they are demanded. Raise
    GreetingRefusedError, also when this takes longer than `patience` seconds."""
    with trio.move_on_after(patience) as waiting:
        if guard.certificates is not None:
            await _shake_hands(connection, guard.certificates)
        if guard.tokens is not None:
            await _check_token(connection, guard.tokens)
    if waiting.cancelled_caught:
        raise GreetingRefusedError(Refusal.GREETING)


async def _shake_hands(connection: Connection, certificates: Certificates) -> None:
    try:
        await connection.secure(certificates.context())
    except ssl.SSLError as error:
        raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, explain(error)) from error
    except OSError as error:
        raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, "the peer has gone") from error


async def _check_token(connection: Connection, tokens: Tokens) -> None:
    """Take in the token's line, and check the token. Raise GreetingRefusedError."""
    connection.opening = None
    data, ended = b"", None
    while (line := first_line(data)) is None and ended is None:
        more, ended = await connection.next()
        data += more
    if line is None or line.token is None:
        raise GreetingRefusedError(Refusal.NO_TOKEN)
    if not tokens.accepts(line.token):
        raise GreetingRefusedError(Refusal.WRONG_TOKEN)
    connection.put_back(line.rest, ended)


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


REST_MAX = 0.02
"""Seconds of the longest rest: short beside the 50 ms after which received bytes are synced by default."""

REST_MIN = 0.001
"""Seconds of the shortest rest: the event loop waits for whole milliseconds."""


class AdaptiveRest:
    """Halve the rest after a look that found `enough` bytes at one socket, double it after any other look.

    A socket must hold more than `enough` bytes, or its writer waits."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._seconds = REST_MIN

    def after(self, size: int) -> float:
        """Return the seconds to rest. `size` is the most bytes that the last look found at one socket."""
        if size >= self._enough:
            self._seconds = self._seconds / 2 if self._seconds > REST_MIN else 0.0
        else:
            self._seconds = min(max(2 * self._seconds, REST_MIN), REST_MAX)
        return self._seconds
