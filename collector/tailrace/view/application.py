"""Define the web application of `tailrace view`: its endpoints with an OpenAPI 3.1 description, and the files of the
page. A `Door` in front of them authorizes requests.

The endpoints `live` and `export` send their answer in parts.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from inspect import cleandoc
from operator import attrgetter
from pathlib import PurePath
from posixpath import normpath
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tailrace import __version__
from tailrace.errors import TailraceError
from tailrace.rollups.frame import look_over
from tailrace.rollups.snapshot import TimelineSnapshot
from tailrace.view.answers import (
    CSV,
    JSON,
    REFUSALS,
    AnswerPool,
    EncodedAnswer,
    Endpoint,
    refusal,
    response,
)
from tailrace.view.door import Door, Token
from tailrace.view.endpoints import inventory, statistics, timeline
from tailrace.view.endpoints.sql import sql
from tailrace.view.leases import TEND_SECONDS, ServedStore, SnapshotLease
from tailrace.view.questions import ApiQuestion, OfExport
from tailrace.view.streaming import (
    ARCHIVE,
    BINARY,
    EXPORT_SECONDS,
    Download,
    LiveWatch,
    Written,
    write_export,
)
from tailrace.view.wire import ApiRefusal, News

PREFIX = "/api/v1"

ENDPOINTS = (
    Endpoint("GET", "store", "The store, and what can be asked of it", inventory.store, kept=False),
    Endpoint("GET", "overview", "The sources, and what is missing", inventory.overview),
    Endpoint("GET", "streams", "The streams, a page at a time", inventory.streams),
    Endpoint("GET", "sessions", "The sessions: producers, clocks, times", inventory.sessions),
    Endpoint("GET", "names", "The names of sessions, processes and threads", inventory.names),
    Endpoint("GET", "lanes", "The lanes of the timeline", timeline.lanes),
    Endpoint("GET", "lanes/empty", "The long stretches of the timeline without events", timeline.empty_time),
    Endpoint("GET", "frame", "The contents of a window of the timeline", timeline.frame),
    Endpoint("GET", "row", "Every column at a place, and the spans around and inside it", timeline.row),
    Endpoint("GET", "search", "The next events whose name contains a text", timeline.search),
    Endpoint("GET", "gaps", "The gaps, and between which times they lie", inventory.gaps),
    Endpoint("GET", "gaps/next", "The next gap after a time, or before it", inventory.next_gap),
    Endpoint("GET", "statistics", "How many spans there are, and how long they took", statistics.statistics),
    Endpoint("GET", "flame", "Where the time goes, by names inside names", statistics.flame),
    Endpoint("GET", "durations", "When spans began, and how long they took", statistics.durations),
    Endpoint("GET", "compare", "Two runs: what grew, what is new, what is gone", statistics.compare),
    Endpoint("POST", "sql", "The answer to a statement that only reads", sql, kept=False),
    Endpoint("GET", "notes", "The notes about ranges of time", inventory.notes, kept=False),
    Endpoint("POST", "notes", "Keep a note; the answer lists all", inventory.add, kept=False),
    Endpoint("DELETE", "notes", "Remove a note; the answer lists the others", inventory.remove, kept=False),
)  # fmt: skip

EVENTS = "text/event-stream"

_REFERENCE = "#/components/schemas/{name}"

_ABOUT = (
    "The interface that the page of `tailrace view` uses. Send the token as `Authorization: Bearer TOKEN`, or the cookie that the"
    " printed address sets. Times are Unix nanoseconds. Every answer names the table's version, and what it lacks"
    " (`whole`)."
)


@cache
def description() -> bytes:
    """Return the OpenAPI description of all endpoints as JSON."""
    answers = [each.gives[0] for each in ENDPOINTS]
    bodies = [each.takes for each in ENDPOINTS if each.method == "POST"]
    _, schemas = msgspec.json.schema_components(
        {*answers, *bodies, News, ApiRefusal}, ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        content: dict[str, Any] = {JSON: {"schema": _schema(each.gives[0])}}
        if EncodedAnswer in each.gives:
            content[CSV] = {"schema": {"type": "string"}}
        operation = _operation(each.about, each.takes, content, body=each.method == "POST")
        paths.setdefault(f"{PREFIX}/{each.path}", {})[each.method.lower()] = operation
    about = "The news, once a second, as server-sent events `news`"
    news = {EVENTS: {"schema": {"type": "string", "contentSchema": _schema(News)}}}
    paths[f"{PREFIX}/live"] = {"get": _operation(about, ApiQuestion, news)}
    about, binary = (
        "Events in the format of another tool, as a file",
        {"type": "string", "format": "binary"},
    )
    files = {media_type: {"schema": binary} for media_type in (BINARY, ARCHIVE)}
    paths[f"{PREFIX}/export"] = {"get": _operation(about, OfExport, files)}
    itself = _responses({JSON: {"schema": {"type": "object"}}})
    paths[f"{PREFIX}/openapi.json"] = {"get": {"summary": "This description", "responses": itself}}
    described = {
        "openapi": "3.1.0",
        "info": {"title": "tailrace view", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
    return msgspec.json.encode(described)


def _operation(
    about: str, takes: type[ApiQuestion], content: dict[str, Any], *, body: bool = False
) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": about, "description": cleandoc(takes.__doc__ or "")}
    if body:
        taken = {JSON: {"schema": _schema(takes)}}
        operation["requestBody"] = {"required": True, "content": taken}
    else:
        operation["parameters"] = list(_parameters(takes))
    return operation | {"responses": _responses(content)}


def _parameters(takes: type[ApiQuestion]) -> Iterable[dict[str, Any]]:
    _, components = msgspec.json.schema_components([takes], ref_template=_REFERENCE)
    schema = components[takes.__name__]
    required = schema.get("required", [])
    for name, each in schema["properties"].items():
        parameter = {"name": name, "in": "query", "required": name in required, "schema": each}
        if each.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        yield parameter


def _schema(of: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=of.__name__)}


def _responses(content: dict[str, Any]) -> dict[str, Any]:
    refused = {JSON: {"schema": _schema(ApiRefusal)}}
    return {"200": {"description": "the answer", "content": content}} | {
        str(status.value): {"description": status.phrase, "content": refused}
        for status in sorted(REFUSALS)
    }


INDEX = "index.html"
_SCRIPT = b'<script type="module" src="main.js">'
_IMPORT = re.compile(rb'^import (?:[^"]* from )?"(\.[^"]+)";', re.MULTILINE)

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by file name extension. Other files are not served. The operating system's own table is not used, because
it differs between hosts."""


class ServedFile(NamedTuple):
    body: bytes
    media_type: str
    tag: str


@cache
def _page_files() -> dict[str, ServedFile]:
    """Return the files of the directory `page`, by their paths. The index gets links to modules (`_preloads`)."""
    found = dict(_read(files("tailrace.view") / "page", ""))
    found[INDEX] = found[INDEX].replace(_SCRIPT, _preloads(found) + _SCRIPT)
    return {
        path: ServedFile(body, TYPES[ending], f'"{sha256(body).hexdigest()[:32]}"')
        for path, body in found.items()
        if (ending := PurePath(path).suffix) in TYPES
    }


def _preloads(page: Mapping[str, bytes]) -> bytes:
    """Return HTML that makes a browser load all modules of the page's frame at once, instead of each when another
    module imports it. For each view there is a template with links to the view's modules, which the page inserts."""

    def links(modules: Iterable[str]) -> str:
        return "".join(f'<link rel="modulepreload" href="{each}">\n' for each in modules)

    frame = _imported(page, "main.js")
    html = links(frame)
    for path in sorted(page):
        view = PurePath(path)
        if str(view.parent) == "views" and view.suffix == ".js":
            own = [each for each in _imported(page, path) if each not in frame]
            html += f'<template data-view="{view.stem}">\n{links(own)}</template>\n'
    return html.encode()


def _imported(page: Mapping[str, bytes], module: str) -> list[str]:
    """Return the paths of a module and of all modules that it imports, directly or through others."""
    found = [module]
    for each in found:
        for target in _IMPORT.findall(page[each]):
            path = normpath(PurePath(each).parent / target.decode())
            if path not in found:
                found.append(path)
    return found


def _read(directory: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    for each in directory.iterdir():
        if each.is_dir():
            yield from _read(each, f"{above}{each.name}/")
        else:
            yield f"{above}{each.name}", each.read_bytes()


async def _page(request: Request) -> Response:
    path = request.url.path.lstrip("/") or INDEX
    page = _page_files().get(path)
    if page is None:
        return refusal(
            HTTPStatus.NOT_FOUND, f"there is no page {path!r}", request.url.path, "open /"
        )
    headers = {"etag": page.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(page.body, media_type=page.media_type, headers=headers)


async def _openapi(_: Request) -> Response:
    return response(EncodedAnswer(description()))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the only class that has this handler
    status = HTTPStatus(error.status_code)
    where = f"{request.method} {request.url.path}"
    return refusal(status, status.phrase, where, "see openapi.json for the endpoints")


TENDING_NICENESS = 10
"""Niceness of the thread that writes roll-ups, so that answers to requests come first."""

PAUSE_SECONDS = 1.0
"""Maximum time for which the thread that writes roll-ups waits for the answers to requests before its next batch of
rows. Pages that request something all the time would delay it for ever."""


class Viewer:
    """The web application (`app`). It shows the first store; the others are only used in comparisons."""

    def __init__(
        self, stores: Sequence[ServedStore], token: Token | None, hosts: Iterable[str] = ()
    ) -> None:
        self._first = stores[0]
        self._ending = threading.Event()
        self._preparing = SnapshotLease(stores[:1])
        self._pool = AnswerPool(stores)
        self._watch = LiveWatch(stores[0])
        _page_files()  # Read the files now, because an upgrade may replace them while the server runs.
        self.routes = [
            Route(f"{PREFIX}/{each.path}", partial(self._pool.respond, each), methods=[each.method])
            for each in ENDPOINTS
        ]
        self.routes += [
            Route(f"{PREFIX}/live", self._live, methods=["GET"]),
            Route(f"{PREFIX}/export", self._export, methods=["GET"]),
            Route(f"{PREFIX}/openapi.json", _openapi, methods=["GET"]),
            Route("/{path:path}", _page, methods=["GET"]),
        ]
        inner = Starlette(
            routes=self.routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused},
        )
        self.app = Door(inner, token, hosts)

    def stop(self) -> None:
        """End the responses of the endpoint `live`, which would not end otherwise."""
        self._watch.close()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        tending = threading.Thread(target=self._tend, daemon=True)
        tending.start()
        yield
        self._ending.set()
        self._preparing.interrupt()
        self._first.lacking.set()
        self._watch.close()
        self._pool.close()

    def _prepare(self) -> None:
        """Compute what the first frame of a timeline needs, before a page requests the frame. Between the steps, a
        request that waits for the timeline may get it."""
        steps: tuple[Callable[[TimelineSnapshot], object], ...] = (
            attrgetter("lanes"),
            look_over,
            attrgetter("gaps"),
        )
        for step in steps:
            lease = self._preparing = SnapshotLease([self._first])
            if self._ending.is_set():
                return
            good = False
            # Ignore the error here, because the answers to requests report it.
            with suppress(Exception):
                step(lease.timeline())
                good = True
            lease.end(good=good)

    def _tend(self) -> None:
        """Prepare the first frame of a timeline. Then write roll-ups for data files that have none, until the
        application ends. A timeline of files without roll-ups is computed from all their rows or, if these are too
        many, from a sample."""
        self._prepare()
        os.nice(TENDING_NICENESS)  # On Linux, this changes the niceness of this thread alone.
        while True:
            self._first.lacking.clear()
            if self._ending.is_set():
                return
            # ignore the error here, because the answers to requests report it
            with suppress(TailraceError):
                self._first.tend(
                    lambda: not self._ending.is_set(), lambda: self._pool.idle.wait(PAUSE_SECONDS)
                )
            self._first.lacking.wait(TEND_SECONDS)

    async def _live(self, _: Request) -> Response:
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self._watch.listen(), media_type=EVENTS, headers=headers)

    async def _export(self, request: Request) -> Response:
        def work(asked: OfExport) -> Awaitable[Written]:
            return self._pool.run(request, lambda lease: write_export(lease, asked), EXPORT_SECONDS)

        return await self._pool.give(request, OfExport, work, Download)
