"""Accept connections to the admin endpoint, and limit the time that the daemon spends on them.

The server pauses after each accepted connection. After each response, it pauses for longer than it worked on the
response. Requests for /healthz and /readyz do not wait for other responses. If half of all allowed connections wait for
other pages, further requests for such pages are refused. With too many connections, or few free descriptors, the oldest
connection that waits for its client is closed, so that silent clients do not lock out new ones. During a flood of
connections, a client has 0.16 s (with 64 allowed connections) to send its request, and as long again to read the
response.
"""

from __future__ import annotations

import errno
import logging
import resource
import ssl
from collections.abc import Callable

import trio

from tailrace.figures import AdminFigures, AdminRefusal
from tailrace.serving.http import (
    Conversation,
    EndedError,
    HttpAnswer,
    Request,
    Response,
    plain,
    within,
)
from tailrace.serving.pages import HEALTH
from tailrace.sources.source import RESERVE

ACCEPT_SECONDS = 0.005
"""Pause (seconds) after each accepted connection, because a TLS handshake takes up to 2 ms of the daemon's time."""

REST = 3
"""Pause after a response, as a multiple of the time that the server worked on it. Responses therefore take at most a
quarter of the daemon's time. Health pages and refusals have a pause of their own, and take at most another quarter."""

HANDSHAKE_SECONDS = 10.0

BACKLOG = 128
_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class Server:
    def __init__(
        self,
        pages: HttpAnswer,
        figures: AdminFigures,
        *,
        connections_max: int,
        allows: Callable[[str], bool],
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """Create a server for the given pages. `allows` returns whether a client's address may connect, and
        `context` the TLS context for a new connection (None without TLS)."""
        self._pages = pages
        self._figures = figures
        self._connections_max = connections_max
        self._allows = allows
        self._context = context
        self._open: dict[trio.CancelScope, Conversation] = {}
        """Open connections, oldest first, by the cancel scope that ends them."""
        self._scarce: set[trio.CancelScope] = set()
        """Open connections that use one of the last free file descriptors. While there is such a connection, an older
        connection is closed for each new one."""
        self._short, self._long = _Turn(), _Turn()

    async def serve(
        self,
        listener: trio.socket.SocketType,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer requests on a bound socket until cancelled. Call `task_status.started()` when the socket listens."""
        listener.listen(BACKLOG)
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                try:
                    sock, address = await listener.accept()
                except OSError as error:
                    if error.errno in _OUT_OF_DESCRIPTORS:
                        self._figures.refuse(AdminRefusal.DESCRIPTORS)
                        await trio.sleep(0.1)
                    continue
                if self._admit(sock, address, nursery):
                    await trio.sleep(ACCEPT_SECONDS)

    def _admit(
        self,
        sock: trio.socket.SocketType,
        address: tuple[str, int] | tuple[str, int, int, int],
        nursery: trio.Nursery,
    ) -> bool:
        if not self._allows(address[0]):
            self._figures.refuse(AdminRefusal.ADDRESS)
            sock.close()
            return False
        scope = trio.CancelScope()
        if _is_scarce(sock.fileno()):
            self._scarce.add(scope)
        if len(self._open) >= self._connections_max or (self._open and self._scarce):
            self._make_room()
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]
        stream = plain_stream = trio.SocketStream(sock)
        if context := self._context():
            # Accept that a client ends the connection without a TLS message. HTTP states the length of each message, so
            # a message that was cut off is noticed anyway.
            stream = trio.SSLStream(plain_stream, context, server_side=True, https_compatible=True)
        self._open[scope] = conversation = Conversation(stream, self.answer)
        nursery.start_soon(self._converse, stream, scope, conversation)
        return True

    def _make_room(self) -> None:
        """Close the oldest connection that waits for its client or, if there is none, the oldest of all."""
        waiting = (scope for scope, each in self._open.items() if each.waiting)
        scope = next(waiting, None) or next(iter(self._open))
        del self._open[scope]
        self._scarce.discard(scope)
        scope.cancel()
        self._figures.refuse(AdminRefusal.CROWDED)

    async def _converse(
        self,
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
        scope: trio.CancelScope,
        conversation: Conversation,
    ) -> None:
        try:
            with scope:
                try:
                    if isinstance(stream, trio.SSLStream):
                        await _shake_hands(stream)
                    await conversation.run()
                except EndedError as ended:
                    if ended.cause:
                        self._figures.refuse(ended.cause)
                await conversation.linger()
        finally:
            self._open.pop(scope, None)
            self._scarce.discard(scope)
            await trio.aclose_forcefully(stream)

    async def answer(self, request: Request) -> Response:
        """Answer a request, after the pause that follows the previous response of the same kind."""
        about_health = request.path in HEALTH
        most = max(1, self._connections_max // 2)
        lock = self._long.lock
        crowded = lock.statistics().tasks_waiting + lock.locked() >= most
        turn = self._short if about_health or crowded else self._long
        async with turn.lock:
            await trio.sleep_until(turn.rested)
            began = trio.current_time()
            try:
                if crowded and not about_health:
                    response = plain(503, "too many requests wait for an answer: ask again later")
                else:
                    response = await self._pages(request)
            except Exception:
                logger.exception("no answer to a request for %s", request.path)
                response = plain(500, "failed; the log says why")
            now = trio.current_time()
            turn.rested = now + REST * (now - began)
        self._figures.answered(response.status)
        return response


class _Turn:
    """Lock and pause for one kind of response, so that responses of this kind are built one at a time."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.rested = 0.0
        """Time on trio's clock at which the pause after the last response ends."""


def _is_scarce(descriptor: int) -> bool:
    """Return whether a connection uses one of the last file descriptors, which the library that writes the table needs
    (`sources.source.RESERVE`).

    The endpoint may use half of these descriptors, because it must answer while sources use all other descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptor >= limit - RESERVE // 2


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> None:
    with within(HANDSHAKE_SECONDS, AdminRefusal.HANDSHAKE):
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as problem:
            raise EndedError(AdminRefusal.HANDSHAKE) from problem
