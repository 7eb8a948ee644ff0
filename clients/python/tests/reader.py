"""Read Heph packets.

The reader shares no code and no constant with the client. It reads byte by byte, and uses only the specification of the
format.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple


class Metadata(NamedTuple):
    name: str
    option: bytes


class Event(NamedTuple):
    stream: int
    counter: int
    substream: int
    start: int
    end: int
    description: str
    attributes: list


class Cursor:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        piece = self.data[self.at : self.at + size]
        assert len(piece) == size, "a packet ends early"
        self.at += size
        return piece

    def unsigned(self, size):
        return int.from_bytes(self.take(size), "big")

    def text(self):
        return self.take(self.unsigned(2)).decode()

    @property
    def more(self):
        return self.at < len(self.data)


def attributes(event):
    return {name: value for name, _, value in event.attributes}


def packets(data):
    """Return all packets in a stream of bytes or in a datagram. Fail if the last packet is incomplete."""
    whole = Cursor(data)
    found = []
    while whole.more:
        magic = whole.unsigned(4)
        packet = Cursor(whole.take(whole.unsigned(4) - 8))
        assert magic in {0x75D11D57 - 10, 0xC1FC1FC1 - 10}
        found.append(_event(packet) if magic == 0xC1FC1FB7 else _metadata(packet))
    return found


def received(collector):
    """Return all received packets, but only the first of the packets that announce the session: without an answer, a
    client repeats them."""
    found = [packet for datagram in collector.waiting() for packet in packets(datagram)]
    names = [packet[0] for packet in found]
    once = {"epoch", "tailrace.session"}
    return [packet for at, packet in enumerate(found) if names[at] not in once & {*names[:at]}]


def events(data):
    return [packet for packet in packets(data) if isinstance(packet, Event)]


def same(left, right):
    """Return whether two values are equal. NaN equals NaN, and 1 equals neither 1.0 nor True."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


def _metadata(packet):
    name = packet.text()
    return Metadata(name, packet.take(len(packet.data) - packet.at))


def _event(packet):
    stream, counter = packet.unsigned(4), packet.unsigned(4)
    substream, start, end = packet.unsigned(8), packet.unsigned(8), packet.unsigned(8)
    description = packet.text()
    attributes = []
    while packet.more:
        name = packet.text()
        kind = packet.unsigned(1)
        if kind & 0b1000_0000:
            value = [_value(packet, kind & 0b0111_1111) for _ in range(packet.unsigned(2))]
        else:
            value = _value(packet, kind)
        attributes.append((name, kind, value))
    return Event(stream, counter, substream, start, end, description, attributes)


def _value(packet, kind):
    if kind == 1:
        return packet.unsigned(8)
    if kind == 2:
        return int.from_bytes(packet.take(8), "big", signed=True)
    if kind == 3:
        return struct.unpack("!d", packet.take(8))[0]
    assert kind == 4, f"type {kind} is not defined"
    return packet.text()
