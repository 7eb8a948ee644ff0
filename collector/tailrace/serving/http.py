"""Serve one HTTP/1.1 connection: receive requests and send responses, each within a time limit.

A request consists of a line and headers; its body is never read. If the client does not read a response, the
response is dropped. HTTP/2 and upgrades are not supported. `exposed` formats metrics for Prometheus.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import h11
import trio
from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from tailrace.figures import AdminRefusal

HEADERS_MAX = 16 * 2**10
"""Maximum size (bytes) of a request: its first line and its headers."""

REQUEST_SECONDS = 10.0
"""Maximum time (seconds) for receiving a request. For the first request, the time counts from the opening of the
connection; for each later request, from the arrival of its first byte."""

IDLE_SECONDS = 75.0
"""Maximum time (seconds) that a connection may wait for the next request. Many scrapers send one a minute."""

ANSWER_SECONDS = 10.0
"""Maximum time (seconds) within which the client must read a response."""

LINGER_SECONDS = 1.0
LINGER_BYTES = 2**20
"""Maximum number of bytes that are read and discarded after the last response: if a socket with unread bytes is
closed, the client may lose the response."""

RECEIVE_MAX = 16 * 2**10


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """Headers by their name in lower case. If a header is repeated, the last one counts."""
    query: str = ""


class Response(NamedTuple):
    status: int
    body: bytes
    media_type: str
    headers: tuple[tuple[str, str], ...] = ()


HttpAnswer = Callable[[Request], Awaitable[Response]]


class EndedError(Exception):
    """Raised when the connection has ended. `cause` states why, if the client caused the end."""

    def __init__(self, cause: AdminRefusal | None = None) -> None:
        super().__init__(cause)
        self.cause = cause


def plain(status: int, text: str, *headers: tuple[str, str]) -> Response:
    return Response(status, text.encode() + b"\n", "text/plain; charset=utf-8", headers)


class Conversation:
    """The requests and responses of one connection. `waiting` is true while the server waits for the client."""

    def __init__(self, stream: trio.abc.Stream, answer: HttpAnswer) -> None:
        self.waiting = True
        self._stream = stream
        self._answer = answer
        self._wire = h11.Connection(h11.SERVER, HEADERS_MAX)
        self._received = b""
        """Received bytes that have not been passed to h11, the HTTP parser. It gets only whole heads (request line and
        headers)."""
        self._ended = False
        """Whether the client has closed its side of the connection."""

    async def run(self) -> None:
        """Answer requests until the connection ends. Then raise EndedError, with a cause if the client caused it."""
        await self._exchange()
        while self._wire.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._wire.start_next_cycle()
            if not self._received:
                with within(IDLE_SECONDS, None):
                    await self._receive()
            await self._exchange()

    async def linger(self) -> None:
        """Wait, at most `LINGER_SECONDS`, until the client has read the last response and closed the connection."""
        if not isinstance(self._stream, trio.SocketStream):
            return
        left = LINGER_BYTES
        with trio.move_on_after(LINGER_SECONDS), suppress(trio.BrokenResourceError):
            await self._stream.send_eof()
            while left > 0 and (data := await self._stream.receive_some(RECEIVE_MAX)):
                left -= len(data)

    async def _exchange(self) -> None:
        with within(REQUEST_SECONDS, AdminRefusal.SLOW):
            request = await self._request()
        path, _, query = request.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        self.waiting = False
        response = await self._answer(Request(request.method.decode("ascii"), path, headers, query))
        self.waiting = True
        await self._send(request, response)

    async def _request(self) -> h11.Request:
        try:
            while not (end := _head(self._received)) and not self._ended:
                await self._receive()
            self._wire.receive_data(self._received[: end or None])
            self._received = self._received[end or len(self._received) :]
            if not end:
                self._wire.receive_data(b"")
            event = self._wire.next_event()
        except h11.RemoteProtocolError as problem:
            await self._send(None, plain(problem.error_status_hint, str(problem)))
            raise EndedError(AdminRefusal.MALFORMED) from problem
        if not isinstance(event, h11.Request):
            raise EndedError
        return event

    async def _receive(self) -> None:
        try:
            data = bytes(await self._stream.receive_some(RECEIVE_MAX))
        except trio.BrokenResourceError as problem:
            raise EndedError from problem
        self._received += data
        self._ended = not data

    async def _send(self, request: h11.Request | None, response: Response) -> None:
        headers = [
            ("Content-Type", response.media_type),
            ("Content-Length", str(len(response.body))),
            *response.headers,
        ]
        if request is None or self._has_body():
            headers.append(("Connection", "close"))
        parts: list[h11.Event] = [h11.Response(status_code=response.status, headers=headers)]
        if request is None or request.method != b"HEAD":
            parts.append(h11.Data(data=response.body))
        parts.append(h11.EndOfMessage())
        data = b"".join(self._wire.send(part) or b"" for part in parts)
        with within(ANSWER_SECONDS, AdminRefusal.UNREAD):
            try:
                await self._stream.send_all(data)
            except trio.BrokenResourceError as problem:
                raise EndedError from problem

    def _has_body(self) -> bool:
        try:
            return not isinstance(self._wire.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return True


def _head(data: bytes) -> int:
    """Return the position in `data` after the line and the headers of a request; 0 if these are not complete yet.
    Raise RemoteProtocolError if they are too long or not valid. This includes two forms that h11 accepts but a proxy
    may read differently: lines that end with LF alone, and headers that continue on a second line."""
    end = data.find(b"\r\n\r\n", 0, HEADERS_MAX) + 4
    if end < 4 and len(data) > HEADERS_MAX:
        raise h11.RemoteProtocolError("the line and the headers are too long", 431)
    head = data[: end if end >= 4 else None]
    lines = head.removesuffix(b"\r").replace(b"\r\n", b"")
    if (head[:1] < b"!" and head) or b"\n" in lines or b"\r" in lines:
        what = "this is not an HTTP request, or a line does not end with CR LF"
        raise h11.RemoteProtocolError(what)
    if b"\r\n " in head or b"\r\n\t" in head:
        raise h11.RemoteProtocolError("a header continues on a second line")
    return end if end >= 4 else 0


@contextmanager
def within(seconds: float, cause: AdminRefusal | None) -> Iterator[None]:
    """Limit a `with` block to `seconds`. If it takes longer, cancel it and raise EndedError with `cause`."""
    with trio.move_on_after(seconds) as patience:
        yield
    if patience.cancelled_caught:
        raise EndedError(cause)


def exposed(families: Iterable[Metric], accept: str = "") -> Response:
    """Return the metrics as OpenMetrics if the request's header `accept` allows it, else as Prometheus text."""
    # prometheus_client expects an object with this method.
    all_: Any = SimpleNamespace(collect=lambda: families)
    if "application/openmetrics-text" in accept:
        # The type check must ignore this call, because prometheus_client declares no types for the function.
        body = openmetrics.generate_latest(all_)  # type: ignore[no-untyped-call]
        return Response(200, body, openmetrics.CONTENT_TYPE_LATEST)
    return Response(200, exposition.generate_latest(all_), exposition.CONTENT_TYPE_PLAIN_0_0_4)
