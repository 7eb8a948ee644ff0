"""Serve metrics of the collectors that write to a store, on any host, from the table.

The table is read for each request. If it cannot be read, the response is an error without any figures: Prometheus
must not store outdated figures as current ones.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterable

import trio
from prometheus_client.core import Metric

from tailrace import threads
from tailrace.clock import SystemClock
from tailrace.config.schema import AdminConfig
from tailrace.errors import TailraceError
from tailrace.figures import AdminFigures
from tailrace.security.guard import guard
from tailrace.serving.http import Request, Response, exposed, plain
from tailrace.serving.pages import SECURITY_HEADERS, has_token, refusal
from tailrace.serving.server import Server
from tailrace.sources.listening import bound, named, refusal as address_refusal
from tailrace.terminal import printable

TableLook = Callable[[], Iterable[Metric]]


class ObserverPages:
    """The pages of the observer's endpoint. `look` reads the table and returns the metrics. `accepts` returns whether a
    token is valid; None means that no token is required."""

    def __init__(self, look: TableLook, accepts: Callable[[bytes], bool] | None) -> None:
        self._look = look
        self._accepts = accepts

    async def answer(self, request: Request) -> Response:
        response = await self._page(request)
        return response._replace(headers=response.headers + SECURITY_HEADERS)

    async def _page(self, request: Request) -> Response:
        if refused := refusal(request, may_see=has_token(request, self._accepts)):
            return refused
        if request.path != "/metrics":
            return plain(404, "not found; pages: /metrics")
        return await trio.to_thread.run_sync(self._metrics, request.headers.get("accept", ""))

    def _metrics(self, accept: str) -> Response:
        try:
            return exposed(list(self._look()), accept)
        except TailraceError as error:
            return plain(503, printable(str(error)))


def serve(config: AdminConfig, look: TableLook, ready: Callable[[str], None]) -> None:
    """Serve metrics at the address of a section `[admin]` until SIGINT or SIGTERM. Call `ready` with the address.
    Raise ConfigError if the address or a certificate or token file cannot be used."""
    certificates, tokens, networks = guard("admin", config, SystemClock())
    pages = ObserverPages(look, tokens.accepts if tokens else None)
    server = Server(
        pages.answer, AdminFigures(), connections_max=config.connections_max,
        allows=networks.allows, context=certificates.context if certificates else lambda: None,
    )  # fmt: skip
    try:
        listener = bound(config.listen, socket.SOCK_STREAM)
    except OSError as error:
        raise address_refusal("--listen", config.listen, error) from error
    with listener:
        trio.run(_serve, server, listener, ready)


async def _serve(server: Server, listener: socket.socket, ready: Callable[[str], None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await threads.hold()
            await nursery.start(server.serve, trio.socket.from_stdlib_socket(listener))
            ready(named(listener))
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()
