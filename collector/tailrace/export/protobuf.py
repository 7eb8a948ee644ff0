"""Encode protocol buffers: the few kinds of fields that an export needs."""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2

_SMALL = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(2**14)]
_MASK = 2**64 - 1


def varint(number: int) -> bytes:
    """Encode a number of 64 bits; a negative one as its two's complement."""
    if 0 <= number < 2**14:
        return _SMALL[number]
    number &= _MASK
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    return key(field, VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return key(field, FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    return key(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())
