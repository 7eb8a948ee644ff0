"""Compose the application: endpoints, page, door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.view.answering import refusal
from tailrace.view.asking import Asking
from tailrace.view.desk import Shelf
from tailrace.view.endpoints import ENDPOINTS, PREFIX
from tailrace.view.opening import Door, Token
from tailrace.view.pages import Pages


def application(
    shelves: Sequence[Shelf], token: Token | None, hosts: Iterable[str] = ()
) -> ASGIApp:
    """Return the application that shows these stores, the first one before all."""
    asking = Asking(shelves)
    pages = Pages()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        asking.close()

    async def page(request: Request) -> Response:
        return pages.respond(request)

    routes = [
        Route(f"{PREFIX}/{each.path}", partial(asking.respond, each), methods=[each.method])
        for each in ENDPOINTS
    ]
    inner = Starlette(
        routes=[*routes, Route("/{path:path}", page, methods=["GET"])],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused},
    )
    return Door(inner, token, hosts)


async def _refused(request: Request, error: Exception) -> Response:
    status = (
        HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    )
    where = f"{request.method} {request.url.path}"
    return refusal(status, status.phrase, where, "see openapi.json for the endpoints")
