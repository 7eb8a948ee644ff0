"""Turn answers and errors into HTTP responses."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from tailrace.errors import MissingPackageError, QueryError, StoreError, TailraceError, UnknownError
from tailrace.query.completeness import Completeness
from tailrace.view.wire import ApiProblem, ApiRefusal, Whole

JSON = "application/json"
CSV = "text/csv; charset=utf-8"

ANSWER_BYTES = 32 * 2**20
"""The largest answer of JSON. A page that draws more has no use for it."""

TEXT_MAX = 10_000
"""Characters of a name, or of another text of a trace, in an answer: a trace may hold texts of any length."""


class TooLargeError(TailraceError):
    """The answer is larger than `ANSWER_BYTES`."""


class TooLongError(TailraceError):
    """The answer took longer than it may."""


class FileAnswer(NamedTuple):
    """An answer that is not JSON. `name` is the file under which a browser saves it."""

    body: bytes
    media_type: str
    name: str


_STATUS: tuple[tuple[type[TailraceError], HTTPStatus, str], ...] = (
    (UnknownError, HTTPStatus.NOT_FOUND, "ask for something that there is"),
    (QueryError, HTTPStatus.BAD_REQUEST, "change the question"),
    (TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "ask for less"),
    (TooLongError, HTTPStatus.GATEWAY_TIMEOUT, "ask for less: a shorter range, or fewer sessions"),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "check the store, then ask again"),
    (MissingPackageError, HTTPStatus.NOT_IMPLEMENTED, "install the package"),
    (TailraceError, HTTPStatus.INTERNAL_SERVER_ERROR, "see what the server says on its terminal"),
)
"""The status of each class of errors, and what to do."""


def cut(text: str, most: int = TEXT_MAX) -> str:
    """Return a text with at most `most` characters, which says how long it was."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def shown(text: str | None) -> str | None:
    return None if text is None else cut(text)


def encoded(answer: msgspec.Struct) -> bytes:
    """Return an answer as JSON. Raise TooLargeError."""
    body = msgspec.json.encode(answer)
    if len(body) > ANSWER_BYTES:
        raise TooLargeError(f"the answer has {len(body)} bytes, and may have {ANSWER_BYTES}")
    return body


def response(answer: FileAnswer | bytes) -> Response:
    """Return the response for an answer: JSON, or other content."""
    if isinstance(answer, bytes):
        return Response(answer, media_type=JSON, headers={"cache-control": "no-store"})
    headers = {
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="{answer.name}"',
    }
    return Response(answer.body, media_type=answer.media_type, headers=headers)


def refusal(
    status: HTTPStatus, what: str, where: str, todo: str, headers: dict[str, str] | None = None
) -> Response:
    problem = ApiRefusal(error=ApiProblem(what=cut(what), where=cut(where), todo=todo))
    return Response(
        msgspec.json.encode(problem),
        status,
        media_type=JSON,
        headers={"cache-control": "no-store", **(headers or {})},
    )


def failure(error: TailraceError, where: str) -> Response:
    """Return the response for an error of ours."""
    status, todo = next((status, todo) for kind, status, todo in _STATUS if isinstance(error, kind))
    return refusal(status, str(error), where, todo)


def statuses() -> Iterable[HTTPStatus]:
    """Return the statuses of refusals that any endpoint may give."""
    return sorted(
        {status for _, status, _ in _STATUS} | {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    )


def whole(found: Completeness) -> Whole:
    return Whole(
        complete=found.complete,
        text=cut(found.text),
        missing=dict(found.missing),
        unknown=found.unknown,
        awaited=found.awaited,
        unasked=cut(found.unasked),
        selected=found.selected,
    )


def decimal(number: int | None) -> str | None:
    """Return a 64-bit number, or a larger one, as the text that answers have for it."""
    return None if number is None else str(number)


def members(text: str | None) -> dict[str, Any]:
    """Return the members of an object that the views give as text; none for what is no object.

    Long texts in it are cut."""
    if text is None:
        return {}
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return {}
    return (
        {cut(key): bounded(value) for key, value in found.items()}
        if isinstance(found, dict)
        else {}
    )


def bounded(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return a value of JSON with its texts cut, its numbers exact for JavaScript, and not nested too deeply."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return str(value)
    if depth >= 20 and isinstance(value, dict | list):
        return cut(msgspec.json.encode(value).decode())
    if isinstance(value, dict):
        return {cut(key): bounded(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [bounded(each, depth + 1) for each in value]
    return value
