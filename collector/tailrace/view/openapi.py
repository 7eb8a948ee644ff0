"""Describe the API as OpenAPI 3.1, from the endpoints and from the classes of questions and answers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

from tailrace import __version__
from tailrace.view.answering import JSON, statuses
from tailrace.view.endpoints import ENDPOINTS, PREFIX
from tailrace.view.exporting import ARCHIVE, BINARY
from tailrace.view.questions import ApiQuestion, OfExport
from tailrace.view.wire import ApiRefusal, News

EVENTS = "text/event-stream"

_REFERENCE = "#/components/schemas/{name}"

_ABOUT = (
    "What the page of `tailrace view` uses. Send the token as `Authorization: Bearer TOKEN`, or the cookie that the"
    " printed address sets. Times are Unix nanoseconds. Every answer names the table's version, and what it lacks"
    " (`whole`)."
)


@cache
def description() -> bytes:
    """Return the description as JSON."""
    return msgspec.json.encode(_description())


def _description() -> dict[str, Any]:
    answers = [each.gives for each in ENDPOINTS]
    bodies = [each.takes for each in ENDPOINTS if each.method == "POST"]
    _, schemas = msgspec.json.schema_components(
        {*answers, *bodies, News, ApiRefusal}, ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        operation = _operation(each.about, each.takes, body=each.method == "POST")
        content = {JSON: {"schema": _schema(each.gives)}} | {
            kind: {"schema": {"type": "string"}} for kind in each.media_types
        }
        operation["responses"] = _responses(content)
        paths.setdefault(f"{PREFIX}/{each.path}", {})[each.method.lower()] = operation
    paths[f"{PREFIX}/live"] = {"get": _live()}
    paths[f"{PREFIX}/export"] = {"get": _export()}
    paths[f"{PREFIX}/openapi.json"] = {
        "get": {
            "summary": "This description",
            "responses": _responses({JSON: {"schema": {"type": "object"}}}),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tailrace view", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _live() -> dict[str, Any]:
    operation = _operation("What is new, once a second, as server-sent events `news`", ApiQuestion)
    content = {EVENTS: {"schema": {"type": "string", "contentSchema": _schema(News)}}}
    return operation | {"responses": _responses(content)}


def _export() -> dict[str, Any]:
    operation = _operation("Events in the format of another tool, as a file", OfExport)
    binary = {"schema": {"type": "string", "format": "binary"}}
    return operation | {"responses": _responses({BINARY: binary, ARCHIVE: binary})}


def _operation(about: str, takes: type[ApiQuestion], *, body: bool = False) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": about, "description": cleandoc(takes.__doc__ or "")}
    if body:
        content = {JSON: {"schema": _schema(takes)}}
        return operation | {"requestBody": {"required": True, "content": content}}
    return operation | {"parameters": list(_parameters(takes))}


def _parameters(takes: type[ApiQuestion]) -> Iterable[dict[str, Any]]:
    _, (schema, *_) = _components(takes)
    required = schema.get("required", [])
    for name, each in schema["properties"].items():
        parameter = {"name": name, "in": "query", "required": name in required, "schema": each}
        if each.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        yield parameter


def _components(takes: type[ApiQuestion]) -> tuple[Any, list[dict[str, Any]]]:
    references, schemas = msgspec.json.schema_components([takes], ref_template=_REFERENCE)
    return references, list(schemas.values())


def _schema(of: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=of.__name__)}


def _responses(content: dict[str, Any]) -> dict[str, Any]:
    refused = {JSON: {"schema": _schema(ApiRefusal)}}
    return {"200": {"description": "the answer", "content": content}} | {
        str(status.value): {"description": status.phrase, "content": refused}
        for status in statuses()
    }
