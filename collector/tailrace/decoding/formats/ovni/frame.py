"""Find the beginnings and ends of ovni's events, and the next event after unreadable bytes.

    stream  = %s"ovni" version:u32 *event          ; version 1, in the byte order of all numbers
    event   = flags:u8 model:u8 category:u8 value:u8 clock:u64 payload
    payload = *16u8                                ; flags' low 4 bits + 1 bytes, none for 0
            | size:u32 *u8                         ; `size` bytes, if flags has bit 0x10 (jumbo)

The three highest bits of the flags are reserved. Readers ignore them, and the low 4 bits of a jumbo's flags.

Nothing in a stream marks the beginning of an event. The search for an event checks the flags, whether the MCV (model,
category and value) is known, and the highest bits of the clock. Random bytes match about once in 100 MB. One match is
therefore sufficient to continue, without a check of the next event. The search ignores the clock of the previous event,
because the previous event may be damaged.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from tailrace.decoding.formats.ovni.table import EVENTS

MAGIC = b"ovni"
ORDERS = {MAGIC + b"\1\0\0\0": "<", MAGIC + b"\0\0\0\1": ">"}
"""The byte order of the numbers in a stream ("<" little-endian, ">" big-endian), by the stream's header."""

HEADER, HEAD, JUMBO_HEAD = 8, 12, 16
"""Size (bytes) of the stream header, of an event without payload, and of a jumbo (an event that states the size of its
data) without data."""

JUMBO = 0x10
JUMBO_MAX = 2097135
"""Maximum size (bytes) of the data in a jumbo, an event that states the size of its data. A whole jumbo must fit into
libovni's buffer of 2 MiB."""

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
    """The structs that read numbers in one byte order. `head` reads flags, MCV (model, category and value) and clock.
    `size` reads the size of a jumbo (an event that states the size of its data).
    """

    head: Struct
    size: Struct


NUMBERS = {order: Numbers(Struct(order + "4sq"), Struct(order + "I")) for order in "<>"}


def event_size(buffer: bytes | bytearray, at: int, numbers: Numbers) -> int | str:
    """Return the size of the event at `at`, 0 if more bytes are necessary, or the reason why no event can begin there.

    bad_event: the MCV (model, category and value) is unknown, and it is not printable or the clock is impossible. Or
        the flags show a jumbo (an event that states the size of its data), but events with this MCV are never jumbos.
    bad_size: a jumbo is larger than the maximum of libovni.
    """
    have = len(buffer) - at
    if have < HEAD:
        return 0
    head, clock = numbers.head.unpack_from(buffer, at)
    event = EVENTS.get(head[1:])
    jumbo = head[0] & JUMBO
    if (jumbo and not event.jumbo) if event else not (_printable(head[1:]) and _is_clock(clock)):
        return "bad_event"
    if jumbo:
        if have < JUMBO_HEAD:
            return 0
        (size,) = numbers.size.unpack_from(buffer, at + HEAD)
        return JUMBO_HEAD + size if size <= JUMBO_MAX else "bad_size"
    return HEAD + plain_payload(head[0])


def plain_payload(flags: int) -> int:
    """Return the size (bytes) of the payload of an event with the given flags. The event must not be a jumbo."""
    low = flags & 0xF
    return low + 1 if low else 0


def find_event(
    buffer: bytearray, begin: int, stop: int, numbers: Numbers, limit: int
) -> tuple[int, bool]:
    """Return the position of the first event of at most `limit` bytes that begins in `buffer[begin:stop]`, and True.

    If no such event is found, return False and the position from which on an event may begin when more bytes have come.
    """
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


def _printable(mcv: bytes) -> bool:
    return all(0x21 <= byte <= 0x7E for byte in mcv)


def _is_clock(clock: int) -> bool:
    return 0 <= clock < CLOCK_END
