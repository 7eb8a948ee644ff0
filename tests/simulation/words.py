"""Decode the bytes between clients and collector without the product's code (clients/PROTOCOL.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

EVENT, METADATA = 0xC1FC1FB7, 0x75D11D4D
_head = struct.Struct(">IIII").unpack_from
_short = struct.Struct(">H").unpack_from
_NAME_AT = 42
_METADATA_AT = 10


class Event(NamedTuple):
    """An event as its name identifies it: the program that emitted it, its stream, and its number there."""

    program: int
    stream: int
    number: int

    @property
    def name(self) -> str:
        return "/".join(map(str, self))


class Words(NamedTuple):
    """The contents of some bytes."""

    events: list[Event]
    reports: list[dict[str, Any]]
    goodbyes: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    announcements: list[dict[str, Any]]
    rest: bytes
    """The incomplete packet at the end."""


def event_of(row: dict[str, Any]) -> Event:
    """Return the event from which a row was made.

    An event of a client has its number in an attribute; an event of a program without a client has it in its name.
    """
    program, stream, *number = _parts(row["name"])
    return Event(program, stream, *(number or [int(row["attributes"][len('{"number":') : -1])]))


def _event_at(data: bytes, at: int, length: int) -> Event:
    """Return the event of a packet. The attribute of a client's event ends with its value, which has 8 bytes."""
    (size_of_name,) = _short(data, at + _NAME_AT - 2)
    name = data[at + _NAME_AT : at + _NAME_AT + size_of_name].decode()
    program, stream, *number = _parts(name)
    value = int.from_bytes(data[at + length - 8 : at + length], "big")
    return Event(program, stream, *(number or [value]))


@lru_cache(2**12)
def _parts(name: str) -> list[int]:
    return [int(part) for part in name.split("/")]


def read(data: bytes) -> Words:
    """Return the contents of whole packets. Raise ValueError for bytes that are no packets."""
    words = Words([], [], [], [], [], b"")
    options = {
        b"tailrace.report": words.reports,
        b"tailrace.goodbye": words.goodbyes,
        b"tailrace.ack": words.answers,
        b"tailrace.session": words.announcements,
    }
    events, at, size = words.events, 0, len(data)
    while at + 16 <= size:
        magic, length, _, _ = _head(data, at)
        if at + length > size:
            break
        if magic == EVENT:
            events.append(_event_at(data, at, length))
        elif magic == METADATA:
            (size_of_name,) = _short(data, at + 8)
            value = at + _METADATA_AT + size_of_name
            said = options.get(data[at + _METADATA_AT : value])
            if said is not None:
                said.append(json.loads(data[value : at + length]))
        else:
            raise ValueError(f"no packet at {at}: {data[at : at + 16]!r}")
        at += length
    return words._replace(rest=data[at:])


def is_whole(goodbyes: Iterable[dict[str, Any]]) -> bool:
    """Return whether packets of goodbyes contain a complete goodbye of a client."""
    said = list(goodbyes)
    parts = {goodbye["part"] for goodbye in said if "part" in goodbye}
    ends = (goodbye.get("part", 0) for goodbye in said if not goodbye.get("more"))
    return any(parts.issuperset(range(end)) for end in ends)


_REPORT = b"\x00\x0ftailrace.report"


def reports(data: bytes) -> list[dict[str, Any]]:
    """Return the complete reports in bytes that may begin or end within a packet."""
    found, at = [], data.find(_REPORT)
    while at >= 8:
        length = int.from_bytes(data[at - 4 : at], "big")
        value = data[at + len(_REPORT) : at - 8 + length]
        if at - 8 + length <= len(data):
            found.append(json.loads(value))
        at = data.find(_REPORT, at + 1)
    return found
