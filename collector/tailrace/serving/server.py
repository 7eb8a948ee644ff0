"""The admin endpoint's connections: who may connect, how many at a time, and how much they may cost.

No client can keep the daemon from its work. Connections are accepted one at a time with a pause after
each. Each answer is followed by a pause longer than the time it took to make.

/healthz and /readyz do not wait for other answers. When half of the connections wait for these, further requests are refused.
When there are too many connections, the oldest that waits for its client is closed, so that whoever asks at once is not locked
out by silent connections or by clients that do not read. A flood of connections thus leaves each client the time of half of the
connections (0.16 s for 64) to ask, and as much to read: it cuts off a health check that asks later, and answers to slow scrapers.
"""

from __future__ import annotations

import errno
import logging
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

ACCEPT_SECONDS = 0.005
"""The pause after a connection. A TLS handshake takes up to 2 ms."""

REST = 3
"""The pause after an answer, as a multiple of the time it took to make, so that answers take at most a
quarter of the daemon's time, and those about health and refusals as much."""

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
        """Serve `pages`. `allows` checks a client's address. `context` returns the TLS context for a new connection, or
        None without TLS."""
        self._pages = pages
        self._figures = figures
        self._connections_max = connections_max
        self._allows = allows
        self._context = context
        self._open: dict[trio.CancelScope, Conversation] = {}
        """Ordered from the oldest to the newest."""
        self._short, self._long = _Turn(), _Turn()

    async def serve(
        self,
        listener: trio.socket.SocketType,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """HttpAnswer on a bound socket until cancelled. Call `started` once it listens."""
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
        if len(self._open) >= self._connections_max:
            self._make_room()
        socket, context = trio.SocketStream(sock), self._context()
        stream = socket if context is None else _secured(socket, context)
        scope = trio.CancelScope()
        self._open[scope] = conversation = Conversation(stream, self.answer)
        nursery.start_soon(self._converse, stream, scope, conversation)
        return True

    def _make_room(self) -> None:
        """Close the oldest connection that waits for its client, or else the oldest."""
        waiting = (scope for scope, each in self._open.items() if each.waiting)
        scope = next(waiting, None) or next(iter(self._open))
        del self._open[scope]
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
            await trio.aclose_forcefully(stream)

    async def answer(self, request: Request) -> Response:
        """HttpAnswer a request when its turn has come and the pause after the previous answer is over."""
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
    """The order of answers of one kind."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.rested = 0.0
        """The time at which the next answer may be made."""


def _secured(
    stream: trio.SocketStream, context: ssl.SSLContext
) -> trio.SSLStream[trio.SocketStream]:
    # The end of the stream needs no proof, because every HTTP message states its length.
    return trio.SSLStream(stream, context, server_side=True, https_compatible=True)


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> None:
    with within(HANDSHAKE_SECONDS, AdminRefusal.HANDSHAKE):
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as problem:
            raise EndedError(AdminRefusal.HANDSHAKE) from problem
