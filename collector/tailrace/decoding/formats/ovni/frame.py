"""Find the beginnings and ends of ovni's events, and the next event after unreadable bytes.

    stream  = %s"ovni" version:u32 *event          ; version 1, in the byte order of all numbers
    event   = flags:u8 model:u8 category:u8 value:u8 clock:u64 payload
    payload = *16u8                                ; flags' low 4 bits + 1 bytes, none for 0
            | size:u32 *u8                         ; `size` bytes, if flags has bit 0x10 (jumbo)

Readers ignore the three highest bits of the flags, which are reserved, and the low 4 bits of a jumbo's flags. Nothing
marks the beginning of an event. A search checks the flags, whether the MCV (model, category and value) is known, and
the highest bits of the clock. Random bytes match about once in 100 MB, so that one match suffices. The search ignores
the clock of the previous event, which may be damaged."""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from tailrace.decoding.formats.ovni.table import EVENTS

MAGIC = b"ovni"
ORDERS = {MAGIC + b"\1\0\0\0": "<", MAGIC + b"\0\0\0\1": ">"}
"""The byte order of the numbers in a stream ("<" little-endian, ">" big-endian), by the stream's header."""

HEADER, HEAD, JUMBO_HEAD = 8, 12, 16
"""Size (bytes) of the stream header, of an event without payload, and of a jumbo (with a size field) without data."""

JUMBO = 0x10
USUAL_JUMBO = JUMBO | 3
"""The flags that libovni writes for a jumbo, an event with a size field."""
JUMBO_MAX = 2097135
"""Maximum size (bytes) of the data in a jumbo, an event with a size field. It fits into libovni's buffer of 2 MiB."""

CLOCK_END = 1 << 58
"""Upper limit of a valid clock (ns): 9 years after the start of the node."""

_CANDIDATE = re.compile(
    b"[\\x00-\\x0f\\x13](?:%s)"
    % b"|".join(
        b"%s(?:%s)" % (re.escape(model), b"|".join(sorted(re.escape(mcv[1:]) for mcv in some)))
        for model in sorted({mcv[:1] for mcv in EVENTS})
        for some in [[mcv for mcv in EVENTS if mcv[:1] == model]]
    ),
    re.DOTALL,
)


class Numbers(NamedTuple):
    """Structs that read flags, MCV (model, category and value) and clock of an event, and the size of a jumbo."""

    head: Struct
    size: Struct


NUMBERS = {order: Numbers(Struct(order + "4sq"), Struct(order + "I")) for order in "<>"}


def event_size(buffer: bytes | bytearray, at: int, numbers: Numbers) -> int | str:
    """Return the size of the event at `at`, 0 if more bytes are necessary, or the reason why no event can begin there.

    bad_event: the MCV (model, category and value) is unknown, and either it is not printable or the clock is
        impossible. Or the MCV is known and never that of a jumbo (with a size field), but the flags show a jumbo.
    bad_size: a jumbo is larger than the maximum of libovni."""
    have = len(buffer) - at
    if have < HEAD:
        return 0
    head, clock = numbers.head.unpack_from(buffer, at)
    event = EVENTS.get(head[1:])
    jumbo = head[0] & JUMBO
    if event:
        possible = event.jumbo or not jumbo
    else:
        possible = _is_clock(clock) and all(0x21 <= byte <= 0x7E for byte in head[1:])
    if not possible:
        return "bad_event"
    if jumbo:
        if have < JUMBO_HEAD:
            return 0
        (size,) = numbers.size.unpack_from(buffer, at + HEAD)
        return JUMBO_HEAD + size if size <= JUMBO_MAX else "bad_size"
    return HEAD + plain_payload(head[0])


def plain_payload(flags: int) -> int:
    """Return the size (bytes) of the payload of an event without a size field (not a jumbo)."""
    low = flags & 0xF
    return low + 1 if low else 0


def find_event(
    buffer: bytearray, begin: int, stop: int, numbers: Numbers, limit: int
) -> tuple[int, bool]:
    """Return the position of the first event of at most `limit` bytes in `buffer[begin:stop]`, and True. Otherwise
    return the first position at which an event may begin once more bytes have arrived, and False."""
    while match := _CANDIDATE.search(buffer, begin, stop):
        at = match.start()
        jumbo = buffer[at] & JUMBO
        if stop - at < (JUMBO_HEAD if jumbo else HEAD):
            return at, False
        head, clock = numbers.head.unpack_from(buffer, at)
        event = EVENTS[head[1:]]
        if bool(jumbo) == event.jumbo and _is_clock(clock):
            if jumbo:
                size = JUMBO_HEAD + numbers.size.unpack_from(buffer, at + HEAD)[0]
                fits = size <= min(limit, JUMBO_HEAD + JUMBO_MAX)
            else:
                payload = plain_payload(head[0])
                fits = payload >= event.least if event.least else not payload
            if fits:
                return at, True
        begin = at + 1
    return max(begin, stop - 3), False


def _is_clock(clock: int) -> bool:
    return 0 <= clock < CLOCK_END
