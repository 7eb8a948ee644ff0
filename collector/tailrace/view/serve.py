"""Serve a viewer on a socket until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tailrace.errors import AddressError
from tailrace.sources.listening import of_connections
from tailrace.view.application import Viewer

UNREAD_SECONDS = 60
"""If a client reads nothing for this time, the kernel closes its connection."""

REQUEST_SECONDS = 10
"""Maximum time within which a whole request must arrive."""

CONNECTIONS_MAX = 512
"""Beyond this number of connections, the server closes the one that has waited longest for a request."""

STOP_SECONDS = 2
BACKLOG = 1024


class _Server(uvicorn.Server):
    # Install no handlers: uvicorn's own handlers would raise each received signal again at the end.
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(H11Protocol):
    """A connection that the server can close even while a request is arriving, which uvicorn alone cannot."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > CONNECTIONS_MAX:
            min(_waiting(self.server_state), key=lambda each: each.since).end()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    @property
    def waits(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def end(self) -> None:
        # Remove the connection from the set of open connections now. The event loop would do this only later.
        self.connections.discard(self)
        self.transport.abort()


def _waiting(state: ServerState) -> list[_Protocol]:
    return [each for each in state.connections if isinstance(each, _Protocol) and each.waits]


def listen(address: str) -> socket.socket:
    """Return a socket that listens on `address` (host:port). Raise AddressError if this is not possible."""
    try:
        sock = of_connections(address).open()
    except OSError as error:
        raise AddressError([f"{address}: cannot listen: {error.strerror}"]) from error
    # Connections inherit these options from the listening socket. TCP_USER_TIMEOUT also limits the time for which a
    # client does not read. Without TCP_NODELAY, the body of an answer would wait up to 40 ms until the client has
    # acknowledged the headers.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextmanager
def listen_at(path: Path) -> Iterator[socket.socket]:
    """Yield a socket in the file system that only its owner can open, and remove its file at the end. Replace a file that
    a killed server left. Raise AddressError if the path cannot be used."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        _clear(path)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise AddressError([f"{path}: cannot listen: {error.strerror}"]) from error
    try:
        yield sock
    finally:
        sock.close()
        with suppress(OSError):
            path.unlink()


def serve(viewer: Viewer, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Serve the viewer until SIGINT or SIGTERM. Call `ready` once requests are answered."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Allow as many open files as possible, because each open page needs at least one connection.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_serve(viewer, sock, ready))


async def _serve(viewer: Viewer, sock: socket.socket, ready: Callable[[], None]) -> None:
    config = uvicorn.Config(
        viewer.app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = _Server(config)

    def stop() -> None:
        viewer.stop()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    if not serving.done():
        ready()
    while not serving.done():
        await asyncio.wait([serving], timeout=1)
        since = loop.time() - REQUEST_SECONDS
        for each in _waiting(server.server_state):
            if each.since < since:
                each.end()
    await serving


def _clear(path: Path) -> None:
    """Remove the file of a socket on which no process listens. Raise OSError for any other file, or if a server listens
    on the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except FileNotFoundError:
            pass
        else:
            raise OSError(0, "another server listens there")
