"""Bring states that earlier versions of the ingest have left to today's version.

A step is a pure function on what msgpack holds: dicts, lists and numbers, since the classes of then
are gone. A new member of which nothing must be known needs no function but its default. It needs a
version all the same, so that an older ingest does not take the state for its own. There is no step yet,
since nothing was released.

Spool entries need no steps: the members of their payloads are never renamed or dropped, and new ones
have defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tailrace.ingest.state import VERSION

State = dict[str, Any]


class Step(NamedTuple):
    """A step to a version; `change` works in place."""

    version: int
    change: Callable[[State], None]


def version_of(snapshot: bytes) -> int:
    return msgspec.msgpack.decode(snapshot, type=_Version).version


def can_upgrade(version: int) -> bool:
    """Return whether a state of this version is today's, or can be upgraded to it."""
    return version == VERSION or version in STEPS


def upgraded(snapshot: bytes) -> bytes:
    """Return a state as of `VERSION`. Raise KeyError for a state that `can_upgrade` denies."""
    version = version_of(snapshot)
    if version == VERSION:
        return snapshot
    state: State = msgspec.msgpack.decode(snapshot, strict=False)
    while version != VERSION:
        version, change = STEPS[version]
        change(state)
    state["version"] = VERSION
    return msgspec.msgpack.encode(state)


STEPS: dict[int, Step] = {}
"""The steps by the version that each begins with."""


class _Version(msgspec.Struct):
    version: int
