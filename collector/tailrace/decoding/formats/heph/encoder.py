"""Turn Heph records back into packets.

The table has a digest instead of a session's id (`session`). The encoder writes the digest, filled up with zeros, as
the id, so that no reader of the packets can continue the session. All other bytes are equal to the original, except
spaces in JSON. `repair` adds nothing, because the format has no end mark."""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec

from tailrace.decoding.formats.heph.body import ARRAY, F64, I64, STRING, TYPES, U64
from tailrace.decoding.formats.heph.packets import EVENT, METADATA, METADATA_MIN
from tailrace.decoding.formats.heph.session import OPTIONS, STORED_DIGITS
from tailrace.model.record import Kind, Record

ID_DIGITS = 32

_event = Struct(">IIIIQQQ").pack
_metadata = Struct(">IIH").pack
_u16, _u64, _i64, _f64 = (Struct(f">{form}").pack for form in "HQqd")
_CODES = {name: code for code, name in TYPES.items()}
_read_members = msgspec.json.Decoder(dict[str, Any]).decode
_read_texts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.decode

Attribute = tuple[bytes, int, Any]
"""Name, type code and decoded JSON value of an attribute."""


class HephEncoder:
    def __init__(self, repair: bool) -> None:  # noqa: ARG002 - see `Format.encoder`
        self.added: dict[str, int] = {}
        # For each stream: the sequence number that the next record gets if the record itself has no number.
        self._next: dict[str, int] = {}

    def close(self) -> bytes:
        return b""

    def encode(self, record: Record, *, following: Record | None) -> bytes:  # noqa: ARG002 - all packets are alike
        if record.kind == Kind.SESSION:
            return _option(record)
        if record.kind not in {Kind.SPAN, Kind.COUNTER}:
            return b""
        members = _read_members(record.attributes or "{}")
        start, end = members.pop("$start", record.start), members.pop("$end", record.end)
        count = self._next.get(record.stream, 0) if record.counter is None else record.counter
        self._next[record.stream] = count + 1
        body = _body(str(record.name), members)
        return (
            _event(
                EVENT, 40 + len(body), int(record.stream), count % 2**32,
                (record.substream or 0) % 2**64, start, end,
            )
            + body
        )  # fmt: skip


def _body(name: str, members: dict[str, Any]) -> bytes:
    """Return the body of an event, given its name and its attributes (see the module `body`)."""
    description = members.pop("$description", name)
    rest = bytes.fromhex(members.pop("$undecoded", ""))
    attributes: list[Attribute]
    if "$list" in members:
        attributes = [(_raw(key), _CODES[name], value) for key, name, value in members["$list"]]
    else:
        types = members.pop("$types", {})
        attributes = [
            (key.encode(), _CODES[types[key]] if key in types else _shown(value), value)
            for key, value in members.items()
        ]
    packed = b"".join(
        _string(key) + bytes((type_,)) + _value(type_, value) for key, type_, value in attributes
    )
    return _string(_raw(description)) + packed + rest


def _shown(value: Any) -> int:  # noqa: ANN401 - whatever JSON has
    """Return the type code that a JSON value implies. Attributes with another type have an entry in `$types`."""
    if isinstance(value, list):
        return ARRAY | max(map(_shown, value))
    if isinstance(value, int):
        return I64 if value < 0 else U64
    return (
        F64 if isinstance(value, float) or (isinstance(value, dict) and "$f64" in value) else STRING
    )


def _value(type_: int, value: Any) -> bytes:  # noqa: ANN401 - whatever JSON has
    if type_ & ARRAY:
        return _u16(len(value)) + b"".join(_value(type_ & ~ARRAY, each) for each in value)
    if type_ == F64:
        return bytes.fromhex(value["$f64"]) if isinstance(value, dict) else _f64(value)
    if type_ == STRING:
        return _string(_raw(value))
    return _u64(value) if type_ == U64 else _i64(value)


def _raw(text: str | dict[str, str]) -> bytes:
    """Return the bytes of a text. A text that is not UTF-8 is given as `{"$bytes":"…"}`."""
    return bytes.fromhex(text["$bytes"]) if isinstance(text, dict) else text.encode()


def _string(raw: bytes) -> bytes:
    return _u16(len(raw)) + raw


def _option(record: Record) -> bytes:
    """Return the metadata packet that a decoder reads as this session record."""
    texts = _read_texts(record.attributes or "{}")
    name = _raw(_decode(texts["$name"]) if "$name" in texts else str(record.name))
    if record.name == "epoch" and record.flaw is None:
        value = _u64(_decode(texts["epoch"]))
    elif record.name in OPTIONS and record.flaw is None:
        session = bytes(texts.get("session", b""))
        if session[:1] == b'"' and len(stored := str(_decode(session))) == STORED_DIGITS:
            # Fill the digest up to the length of an id.
            texts["session"] = msgspec.Raw(msgspec.json.encode(stored.ljust(ID_DIGITS, "0")))
        value = msgspec.json.encode(texts)
    else:
        value = _raw(_decode(texts["value"]))
    return _metadata(METADATA, METADATA_MIN + len(name) + len(value), len(name)) + name + value
