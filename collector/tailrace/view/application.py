"""Compose the application: endpoints, page, door."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tailrace.errors import TailraceError
from tailrace.view import exporting, openapi
from tailrace.view.answering import refusal, response
from tailrace.view.asking import Asking
from tailrace.view.desk import Shelf
from tailrace.view.endpoints import ENDPOINTS, PREFIX
from tailrace.view.live import LiveWatch
from tailrace.view.opening import Door, Token
from tailrace.view.pages import PageFiles
from tailrace.view.questions import OfExport

TEND_SECONDS = 30.0
"""Time between two looks for data files without roll-ups."""


class Viewer:
    """The application `app` over some stores, the first one before all."""

    def __init__(
        self, shelves: Sequence[Shelf], token: Token | None, hosts: Iterable[str] = ()
    ) -> None:
        self._first = shelves[0]
        self._ending = threading.Event()
        self._asking = Asking(shelves)
        self._watch = LiveWatch(shelves[0].loaded, shelves[0].clock)
        self._pages = PageFiles()
        self.routes = [
            Route(
                f"{PREFIX}/{each.path}", partial(self._asking.respond, each), methods=[each.method]
            )
            for each in ENDPOINTS
        ]
        self.routes += [
            Route(f"{PREFIX}/live", self._live, methods=["GET"]),
            Route(f"{PREFIX}/export", self._export, methods=["GET"]),
            Route(f"{PREFIX}/openapi.json", self._openapi, methods=["GET"]),
            Route("/{path:path}", self._page, methods=["GET"]),
        ]
        inner = Starlette(
            routes=self.routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused},
        )
        self.app = Door(inner, token, hosts)

    def stop(self) -> None:
        """End the answers that would never end."""
        self._watch.close()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        tending = threading.Thread(target=self._tend, daemon=True)
        tending.start()
        yield
        self._ending.set()
        self._watch.close()
        self._asking.close()

    def _tend(self) -> None:
        """Make roll-ups from time to time; without them, timelines are computed from rows."""
        while True:
            with suppress(TailraceError):  # questions say what is wrong
                self._first.tend(lambda: not self._ending.is_set())
            if self._ending.wait(TEND_SECONDS):
                return

    async def _live(self, _: Request) -> Response:
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self._watch.listen(), media_type=openapi.EVENTS, headers=headers)

    async def _export(self, request: Request) -> Response:
        return await self._asking.give(
            request,
            OfExport,
            lambda asked: self._asking.long(
                request, lambda turn: exporting.write(turn, asked), exporting.SECONDS
            ),
            exporting.Download,
        )

    async def _openapi(self, _: Request) -> Response:
        return response(openapi.description())

    async def _page(self, request: Request) -> Response:
        return self._pages.respond(request)


async def _refused(request: Request, error: Exception) -> Response:
    status = (
        HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    )
    where = f"{request.method} {request.url.path}"
    return refusal(status, status.phrase, where, "see openapi.json for the endpoints")
