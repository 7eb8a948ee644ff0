"""The static files of the page, read once."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tailrace.view.answering import refusal

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The types of files by their endings, whatever the system says of them; nothing else is served."""


class Page(NamedTuple):
    body: bytes
    media_type: str
    tag: str


class PageFiles:
    """Serves files by their paths below `page/`."""

    def __init__(self) -> None:
        self._pages = {
            path: Page(body, TYPES[_ending(path)], f'"{sha256(body).hexdigest()[:32]}"')
            for path, body in _read(files("tailrace.view") / "page", "")
            if _ending(path) in TYPES
        }

    def respond(self, request: Request) -> Response:
        path = request.url.path.lstrip("/") or INDEX
        page = self._pages.get(path)
        if page is None:
            return refusal(
                HTTPStatus.NOT_FOUND, f"there is no page {path!r}", request.url.path, "open /"
            )
        headers = {"etag": page.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == page.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(page.body, media_type=page.media_type, headers=headers)


def _read(directory: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    for each in directory.iterdir():
        if each.is_dir():
            yield from _read(each, f"{above}{each.name}/")
        else:
            yield f"{above}{each.name}", each.read_bytes()


def _ending(path: str) -> str:
    return path[path.rfind(".") :] if "." in path else ""
