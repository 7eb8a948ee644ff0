"""Encode the record of one ovni event as bytes. This is the inverse of the module `event`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from tailrace.decoding.formats.ovni.event_type import EventType, PayloadLayout
from tailrace.decoding.formats.ovni.frame import HEAD, JUMBO, JUMBO_HEAD, NUMBERS, plain_payload
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import BEGIN_WORDS, FLAW_OF_ROW, Kind, Record

Members = dict[str, Any]
"""The attributes of a record, by name."""

USUAL_JUMBO = JUMBO | 3
PAYLOAD_MAX = 16
"""Maximum size (bytes) of the payload of an event without a size field (no jumbo)."""

_read = msgspec.json.Decoder(Members).decode


class Half(NamedTuple):
    """One of the two events of a span, or a single event: MCV (model, category and value), attributes and flaw."""

    mcv: str
    members: Members
    flaw: str | None
    ends: bool = False


def said(record: Record) -> Half | None:
    """Return the event from which a record was made; None if the record is not an event.

    A span's record has the attributes of its end, then those of its begin. If both have the same `payload` or `flags`,
    it is stored once."""
    members = _read(record.attributes or "{}")
    ends = record.kind == Kind.END
    if record.kind not in {Kind.BEGIN, Kind.END} or None in {record.start, record.end}:
        mcv = members.get("end_mcv" if ends else "mcv")
        return None if mcv is None else Half(mcv, members, record.flaw, ends)
    keys = list(members)
    at, flawed = keys.index("mcv"), keys[0] == FLAW_OF_ROW
    if ends:
        of_begin = {key: members[key] for key in keys[at:] if key not in {"payload", "flags"}}
        of_end = {key: members[key] for key in keys[:at]}
        flaw = members[FLAW_OF_ROW] if flawed else None
        return Half(members["end_mcv"], of_begin | of_end, flaw, ends)
    changed = members.get(BEGIN_WORDS, {})
    flaw = changed.get(FLAW_OF_ROW, members.get(FLAW_OF_ROW))
    begins = {key: members[key] for key in keys[at:]} | changed
    if "payload" in keys[:at] and "payload" not in begins:
        layout = layout_of(EVENTS[members["mcv"].encode()], members, "<")
        least = HEAD + (layout.size if layout else 0)
        if record.size > least:
            begins["payload"] = members["payload"]
    if "flags" in keys[:at] and "flags" not in begins:
        flags = members["flags"]
        if HEAD + plain_payload(flags) == record.size:
            begins["flags"] = flags
    return Half(members["mcv"], begins, flaw)


def layout_of(event: EventType, members: Mapping[str, Any], order: str) -> PayloadLayout | None:
    """Return the longest payload layout of an event type whose fields are all in `members`, or None."""
    for layout in event.layouts[order]:
        if members.keys() >= set(layout.names):
            return layout
    return None


def values_of(layout: PayloadLayout, members: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(members[name] for name in layout.names)


def event_bytes(record: Record, half: Half, order: str) -> bytes:
    """Return the bytes of an event. If several payloads are possible, prefer one with which the event has its original
    size."""
    event = EVENTS.get(half.mcv.encode())
    clock = (record.end if half.ends else record.start) or 0
    ways = [
        _framed(half, event, clock, data, order, record.size)
        for data in _payloads(record, half, event, order)
    ]
    return next((way for way in ways if len(way) == record.size), ways[0])


def plain_bytes(mcv: str, clock: int, payload: bytes, order: str) -> bytes:
    """Return the bytes of an event without a size field (no jumbo)."""
    return NUMBERS[order].head.pack(_plain_flags(payload) + mcv.encode(), clock) + payload


def _framed(
    half: Half, event: EventType | None, clock: int, data: bytes, order: str, size: int
) -> bytes:
    flags = half.members.get("flags")
    if flags is None:
        usual = event.jumbo if event else len(data) > PAYLOAD_MAX
        jumbo = {HEAD + len(data): False, JUMBO_HEAD + len(data): True}.get(size, usual)
    else:
        jumbo = bool(flags & JUMBO)
    flags = (
        bytes([flags])
        if flags is not None
        else bytes([USUAL_JUMBO])
        if jumbo
        else _plain_flags(data)
    )
    head = NUMBERS[order].head.pack(flags + half.mcv.encode(), clock)
    return head + (NUMBERS[order].size.pack(len(data)) if jumbo else b"") + data


def _plain_flags(payload: bytes) -> bytes:
    return bytes([max(len(payload) - 1, 0)])


def _payloads(record: Record, half: Half, event: EventType | None, order: str) -> Iterator[bytes]:
    """Yield the payloads that the original event may have had, the likeliest first."""
    members = half.members
    rest = bytes.fromhex(members.get("payload", ""))
    layout = None
    if event is not None and half.flaw != "bad_payload":
        layout = layout_of(event, members, order)
    if event is None or layout is None:
        yield rest
        return
    fields = layout.struct.pack(*values_of(layout, members))
    if event.role == "type" and record.kind == Kind.NAME and "payload" not in members:
        label = str(record.name).encode()
        yield fields + label + b"\0"
        yield fields + label
        # The label may have been empty: the name is then "type", followed by the number of the task type.
        yield fields + b"\0"
        yield fields
    elif "deltas" in members:
        deltas = members["deltas"]
        yield Struct(f"{order}{len(deltas)}q").pack(*deltas) + rest
    else:
        yield fields + rest
