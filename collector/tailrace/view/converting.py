"""Turn values of views into values of answers."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.query.completeness import Completeness
from tailrace.view.answering import cut
from tailrace.view.wire import Whole


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
