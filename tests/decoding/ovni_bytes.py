"""Make streams of ovni, event by event."""

from __future__ import annotations

import struct

HEADER = b"ovni\1\0\0\0"


def event(mcv, clock, payload=b"", *, flags=0, order="<"):
    """Return the bytes of an event with up to 16 bytes of payload. `flags` are the upper four bits of the event's
    flags.
    """
    assert len(payload) != 1
    low = len(payload) - 1 if payload else 0
    return struct.pack(order + "B3sQ", flags | low, mcv.encode(), clock) + payload


def jumbo(mcv, clock, data, *, flags=0x13, order="<"):
    head = struct.pack(order + "B3sQI", flags, mcv.encode(), clock, len(data))
    return head + data


def u32(*values, order="<"):
    return struct.pack(f"{order}{len(values)}I", *values)


def mark(mcv, clock, type_, value, *, order="<"):
    return event(mcv, clock, struct.pack(order + "qi", value, type_), order=order)


def starts(clock, *, order="<"):
    return event("OHx", clock, struct.pack(order + "iiQ", 0, -1, 0), order=order)


def ends(clock, *, order="<"):
    return event("OHe", clock, order=order)
