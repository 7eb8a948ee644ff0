"""Parts that many answers have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Ns = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="nanoseconds, as a decimal text")]
"""Unix nanoseconds, or nanoseconds of a duration."""

Ticks = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="an integer as a decimal text")]
"""A 64-bit integer that may exceed 2^53."""


class ApiProblem(msgspec.Struct, kw_only=True):
    """`what` is wrong, `where` in the request it is, and what to do (`todo`)."""

    what: str
    where: str
    todo: str


class ApiRefusal(msgspec.Struct, kw_only=True):
    """The answer to a request that has no other answer."""

    error: ApiProblem


class Whole(msgspec.Struct, kw_only=True):
    """The events that an answer lacks, by reason.

    `unknown` counts gaps of unknown size, `awaited` events that the running collector still waits for. `unasked`
    is why that collector could not be asked. `selected` says whether any event matches the question; an answer
    without events is never `complete`."""

    complete: bool
    text: str
    missing: dict[str, int]
    unknown: int
    awaited: int
    unasked: str
    selected: bool
