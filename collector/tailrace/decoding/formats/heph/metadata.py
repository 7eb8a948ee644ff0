"""A Heph metadata packet to a session record: the producer's epoch, a client's statements, other options."""

from __future__ import annotations

from struct import Struct

from tailrace.decoding.formats.heph.body import bytes_object, text_or_bytes
from tailrace.decoding.formats.heph.packets import METADATA_MIN
from tailrace.decoding.formats.heph.session import OPTIONS, OURS, read, veiled
from tailrace.model.record import Kind, Record, SessionFacts

_u16 = Struct(">H").unpack_from
_u64 = Struct(">Q").unpack_from


def read_metadata(offset: int, packet: bytes) -> Record:
    """Read a whole metadata packet whose lengths have been checked."""
    value_at = METADATA_MIN + _u16(packet, 8)[0]
    raw, value = packet[METADATA_MIN:value_at], packet[value_at:]
    name = raw.decode(errors="replace")
    attributes, flaw, facts = _option(name, raw, value)
    return Record(
        offset, len(packet), Kind.SESSION, "", None, None, name, None, None, None, None, None,
        attributes, flaw, facts,
    )  # fmt: skip


def _option(
    name: str, raw: bytes, value: bytes
) -> tuple[str | None, str | None, SessionFacts | None]:
    """Return a metadata packet's attributes, flaw and facts; `raw` is its name as sent."""
    flaw = None
    if name == "epoch":
        if len(value) == 8:
            (epoch,) = _u64(value)
            facts = SessionFacts(clock="monotonic_ns", ticks_per_second=1e9, epoch=epoch)
            clock = f'"clock":"monotonic_ns","ticks_per_second":1000000000,"epoch":{epoch}'
            return f"{{{clock}}}", None, facts
        flaw = "bad_epoch"
    elif name in OPTIONS:
        if said := read(name, value):
            return said[0], None, said[1]
        flaw = "bad_session"
    if name.startswith(OURS):
        value = veiled(value)
    text = value.decode(errors="replace")
    plain = text.isprintable() and text.encode() == value
    attributes = f'"value":{text_or_bytes(value) if plain else bytes_object(value)}'
    if name.encode() != raw:
        attributes += f',"$name":{text_or_bytes(raw)}'
        flaw = "invalid_utf8"
    return f"{{{attributes}}}", flaw, None
