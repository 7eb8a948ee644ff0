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
from tailrace.serving.http import HttpAnswer, Request, Response, exposed, plain
from tailrace.serving.pages import SECURITY_HEADERS, has_token, refusal
from tailrace.serving.server import Server
from tailrace.sources.listening import bound, named, refusal as address_refusal
from tailrace.terminal import printable

TableLook = Callable[[], Iterable[Metric]]


def _pages(look: TableLook, accepts: Callable[[bytes], bool] | None) -> HttpAnswer:
    """Return a function that answers requests. `look` reads the table and returns the metrics. `accepts` returns whether
    a token is valid; None means that no token is required."""

    def metrics(accept: str) -> Response:
        try:
            return exposed(list(look()), accept)
        except TailraceError as error:
            return plain(503, printable(str(error)))

    async def answer(request: Request) -> Response:
        response = refusal(request, may_see=has_token(request, accepts))
        if response is None and request.path != "/metrics":
            response = plain(404, "not found; pages: /metrics")
        if response is None:
            accept = request.headers.get("accept", "")
            response = await trio.to_thread.run_sync(metrics, accept)
        return response._replace(headers=response.headers + SECURITY_HEADERS)

    return answer


def serve(config: AdminConfig, look: TableLook, ready: Callable[[str], None]) -> None:
    """Serve metrics at the address of a section `[admin]` until SIGINT or SIGTERM. Call `ready` with the address.
    Raise ConfigError if the address or a certificate or token file cannot be used."""
    certificates, tokens, networks = guard("admin", config, SystemClock())
    server = Server(
        _pages(look, tokens.accepts if tokens else None), AdminFigures(), connections_max=config.connections_max,
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
