"""Find the beginnings and sizes of Heph packets, and turn metadata packets into session records."""

from __future__ import annotations

from struct import Struct

from tailrace.decoding.formats.heph.body import bytes_object, text_or_bytes
from tailrace.decoding.formats.heph.session import OPTIONS, OURS, read, veiled
from tailrace.model.record import Record, SessionFacts, session_record

EVENT, METADATA = 0xC1FC1FB7, 0x75D11D4D
MAGICS = (EVENT.to_bytes(4, "big"), METADATA.to_bytes(4, "big"))
MAGIC_SIZE, EVENT_MIN, METADATA_MIN = 4, 42, 10

prefix = Struct(">II").unpack_from
_u16 = Struct(">H").unpack_from


def find_magic(data: bytes | bytearray, begin: int, stop: int) -> int:
    """Return the position of the first complete magic (first bytes of a packet) in `data[begin:stop]`, or -1 if there
    is none."""
    width = 256
    while True:
        end = min(begin + width, stop)
        event = data.find(MAGICS[0], begin, end)
        metadata = data.find(MAGICS[1], begin, end if event < 0 else event + 3)
        if event >= 0 or metadata >= 0 or end == stop:
            return event if metadata < 0 else metadata
        begin, width = end - 3, width * 4


def fault_at(data: bytes, at: int, stop: int, limit: int) -> str | None:
    """Return the reason why no packet can begin at `at`, or None if a packet can begin there. Look only at bytes before
    `stop`."""
    have = stop - at
    if have < 8:
        return None if data[at : at + 4] in MAGICS else "bad_magic"
    magic, size = prefix(data, at)
    if magic not in {EVENT, METADATA}:
        return "bad_magic"
    least = EVENT_MIN if magic == EVENT else METADATA_MIN
    if size > limit:
        return "too_long"
    if size < least:
        return "bad_size"
    if have >= least and least + _u16(data, at + least - 2)[0] > size:
        return "bad_length"
    return None


def packet_within(data: bytes, begin: int, stop: int, limit: int, room: int = MAGIC_SIZE) -> int:
    """Return the position of the first possible packet in `data[begin:stop]`, or -1.

    At least `room` bytes of the packet must lie before `stop`."""
    last = stop - room + MAGIC_SIZE
    at = find_magic(data, begin, last)
    while at >= 0 and fault_at(data, at, stop, limit):
        at = find_magic(data, at + 1, last)
    return at


_u64 = Struct(">Q").unpack_from


def read_metadata(offset: int, packet: bytes) -> Record:
    """Return the record of a whole metadata packet. The caller has checked that the option's name fits into the
    packet."""
    value_at = METADATA_MIN + _u16(packet, 8)[0]
    raw, value = packet[METADATA_MIN:value_at], packet[value_at:]
    name, size, flaw = raw.decode(errors="replace"), len(packet), None
    if name == "epoch" and len(value) == 8:
        (epoch,) = _u64(value)
        facts = SessionFacts(clock="monotonic_ns", ticks_per_second=1e9, epoch=epoch)
        clock = f'"clock":"monotonic_ns","ticks_per_second":1000000000,"epoch":{epoch}'
        return session_record(offset, size, name, f"{{{clock}}}", facts=facts)
    if name == "epoch":
        flaw = "bad_epoch"
    elif name in OPTIONS:
        if found := read(name, value):
            return session_record(offset, size, name, found[0], facts=found[1])
        flaw = "bad_session"
    if name.startswith(OURS):
        value = veiled(value)
    text = value.decode(errors="replace")
    plain = text.isprintable() and text.encode() == value
    attributes = f'"value":{text_or_bytes(value) if plain else bytes_object(value)}'
    if name.encode() != raw:
        attributes += f',"$name":{text_or_bytes(raw)}'
        flaw = "invalid_utf8"
    return session_record(offset, size, name, f"{{{attributes}}}", flaw=flaw)
