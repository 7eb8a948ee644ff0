"""Read the body of a Heph event into a kind, a name and attributes in JSON. The body begins with the description.

    body      = description:string *attribute
    string    = length:u16 *u8                                                     ; UTF-8
    attribute = name:string type:u8 value
    value     = u64 | i64 | f64 | string       ; types 1 to 4
              | length:u16 *value              ; the same with %x80: an array of `length` such values

Attributes become a JSON object in the order of the wire. A NaN or infinity becomes `{"$f64":"7ff8000000000000"}` (its
bits), and text that is not UTF-8 becomes `{"$bytes":"c328"}`. An integer below zero is an i64, any other integer a u64,
and a number with a point or an exponent an f64. Further types are under `$types`, as in
`{"x":1,"y":[],"$types":{"x":"i64","y":"f64[]"}}`. If names repeat, begin with "$" or are not UTF-8, a list replaces the
object: `{"$list":[["k","u64",1],["k","u64",2]]}`. `$description` has a description that is not UTF-8, and `$undecoded`
the unreadable attributes, in hexadecimal.

The known producer writes nested arrays, which look like flat arrays, and lengths modulo 2^16. If the attributes do not
end where the body ends, only those before the first array are read; in a body of 64 KiB or more, only those before the
first array or string."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring as quote
from math import isfinite
from struct import Struct, error as struct_error
from typing import Any, NamedTuple

from tailrace.decoding.memo import Memo
from tailrace.model.record import Kind

BodyValue = tuple[int, int, str, str]
"""A value in a body: its begin, its end, its format for `struct`, and the JSON key of its attribute."""


class BodyLayout(NamedTuple):
    """The layout of event bodies that differ only in the values of their attributes."""

    kind: str
    name: str
    # Splits a body into static bytes and values, which alternate.
    unpack: Callable[[bytes], tuple[Any, ...]]
    static: tuple[bytes, ...]
    template: str
    strings: tuple[int, ...]
    floats: tuple[int, ...]


_layouts: dict[tuple[bytes, int], BodyLayout | None] = {}
_LAYOUTS_MAX, _BODY_MAX = 4096, 512  # All stored layouts take at most about 8 MiB of memory.
_texts: Memo[bytes, str] = Memo(8192, 64)  # This cache takes at most about 2 MiB of memory.


def read_layout(body: bytes, begin: int) -> tuple[str, str, str] | None:
    """Return kind, name and attributes of a body whose layout is stored, or None."""
    layout = _layouts.get((body[:begin], len(body)))
    if layout is None:
        return None
    kind, name, unpack, static, template, strings, floats = layout
    parts = unpack(body)
    if parts[::2] != static:
        return None
    if not strings and not floats:
        return kind, name, template % parts[1::2]
    values = list(parts[1::2])
    for i in floats:
        if not isfinite(values[i]):
            return None
    try:
        for i in strings:
            raw = values[i]
            values[i] = _texts.get(raw) or _texts.keep(raw, quote(raw.decode()))
    except UnicodeDecodeError:
        return None
    return kind, name, template % tuple(values)


def learn_layout(
    body: bytes, begin: int, kind: str, name: str, values: list[BodyValue] | None
) -> None:
    """Store the layout of bodies with this length and description, if none is stored. If `values` is None, store None:
    no layout can be used for such bodies."""
    if len(body) > _BODY_MAX or (body[:begin], len(body)) in _layouts:
        return
    layout = None
    if values:
        form, static, template = [], [], []
        at = 0
        for value_at, end, type_, key in values:
            form.append(f"{value_at - at}s{type_}")
            static.append(body[at:value_at])
            template.append(key.replace("%", "%%") + ("%r" if type_ == "d" else "%s"))
            at = end
        form.append("0s")
        static.append(b"")
        types = [type_[-1] for _, _, type_, _ in values]
        layout = BodyLayout(
            kind,
            name,
            Struct(">" + "".join(form)).unpack,
            tuple(static),
            "{" + ",".join(template) + "}",
            tuple(i for i, type_ in enumerate(types) if type_ == "s"),
            tuple(i for i, type_ in enumerate(types) if type_ == "d"),
        )
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    _layouts[body[:begin], len(body)] = layout


U64, I64, F64, STRING, ARRAY = 1, 2, 3, 4, 0x80
TYPES = {U64: "u64", I64: "i64", F64: "f64", STRING: "string"}
TYPES |= {ARRAY | kind: f"{name}[]" for kind, name in TYPES.items()}

Body = tuple[str, str, str | None, str | None, tuple[tuple[int, int], ...]]
"""The result of `read_body`: kind, name, attributes and flaw of the event, and the byte ranges of its packet in which
another packet may begin.

After a short write, the next packet begins, with a magic, inside the truncated one. A magic is not valid UTF-8, so the
texts of a packet without a flaw contain no other packet. Only its arrays may contain one."""

BODY_AT = 40
"""Offset (bytes) of the body from the beginning of its event packet."""

_COUNTER = b"\x00\x10tailrace.counter"
"""The first attribute's name, with its length, in the body of a counter event (clients/PROTOCOL.md)."""

_u16 = Struct(">H").unpack_from
_u64 = Struct(">Q").unpack_from
_i64 = Struct(">q").unpack_from
_f64 = Struct(">d").unpack_from


_memo: Memo[bytes, Body] = Memo(
    8192, 256
)  # The cache of results of `read_body` takes at most about 8 MiB of memory.
recall = _memo.get
"""Return the cached result of `read_body` for a body, or None."""


def read_body(body: bytes) -> Body:
    """Return the content of an event's body. The caller has checked that the description fits into the body."""
    begin = 2 + (body[0] << 8 | body[1])
    known = read_layout(body, begin)
    if known:
        found: Body = (*known, None, ())
        return _memo.keep(body, found) if _memo.is_eighth() else found
    try:
        name = body[2:begin].decode()
    except UnicodeDecodeError:
        return _memo.keep(body, _read_any(body))
    if begin == len(body):
        return _memo.keep(body, (Kind.SPAN, name, None, None, ()))
    attributes, values = _usual(body, begin)
    kind = Kind.COUNTER if body.startswith(_COUNTER, begin) else Kind.SPAN
    learn_layout(body, begin, kind, name, values)
    return _memo.keep(body, (kind, name, attributes, None, ()) if attributes else _read_any(body))


def _usual(body: bytes, at: int) -> tuple[str | None, list[BodyValue] | None]:
    """Return attributes as JSON and, if `learn_layout` can store the layout, its argument `values`. Return None twice
    if any attribute is not a scalar with an ordinary name."""
    keys: set[str] = set()
    fields: list[str] = []
    values: list[BodyValue] = []
    types: list[str] = []
    end = len(body)
    try:
        # Names of 256 bytes or more are left to `_read_any`.
        while at < end and not body[at]:
            value_at = at + 3 + body[at + 1]
            key, kind = _head(body[at:value_at])
            at = value_at + 8
            form = "Q"
            if kind == U64:
                text = str(_u64(body, value_at)[0])
            elif kind == STRING:
                value_at += 2
                at = value_at + (body[value_at - 2] << 8 | body[value_at - 1])
                text = quote(body[value_at:at].decode())
                form = f"{at - value_at}s"
            elif kind == I64:
                text = str(_i64(body, value_at)[0])
                types.append(f'{key}"i64"' if body[value_at] < 0x80 else "")
            elif kind == F64 and isfinite(number := _f64(body, value_at)[0]):
                text = repr(number)
                form = "d"
            else:
                return None, None
            fields.append(key + text)
            values.append((value_at, at, form, key))
            keys.add(key)
    except (IndexError, UnicodeDecodeError, struct_error):
        return None, None
    if at != end or len(keys) != len(fields):
        return None, None
    if shown := ",".join(filter(None, types)):
        fields.append(f'"$types":{{{shown}}}')
    # The JSON of an i64 depends on its sign. No layout (`learn_layout`) is stored for bodies with an i64.
    return f"{{{','.join(fields)}}}", None if types else values


@lru_cache(
    8192
)  # The cache of this function takes at most about 4 MiB of memory, because most names are short.
def _head(raw: bytes) -> tuple[str, int]:
    """Return an attribute's name as a JSON key, and its type. Raise IndexError or UnicodeDecodeError if the name is not
    ordinary or the attribute is incomplete."""
    kind = raw[2 + raw[1]]
    name = raw[2:-1].decode()
    if name.startswith("$"):
        raise IndexError
    return quote(name) + ":", kind


class _Attribute(NamedTuple):
    """An attribute of a body. `shown` is the type that a reader derives from its JSON value."""

    at: int
    key: str
    type: int
    value: str
    shown: int


def _read_any(body: bytes) -> Body:
    """Read any body that has attributes, or whose description is not UTF-8. `_usual` must give the same results."""
    begin = 2 + (body[0] << 8 | body[1])
    name = body[2:begin].decode(errors="replace")
    attributes, stop = _read_attributes(body, begin)
    fields = _spell(attributes)
    flaw = None
    if stop < len(body):
        flaw = "undecodable_body"
        fields.append(f'"$undecoded":"{body[stop:].hex()}"')
    description = text_or_bytes(body[2:begin])
    if description.startswith("{"):
        fields.append(f'"$description":{description}')
    text = "{" + ",".join(fields) + "}"
    # JSON strings escape quotes. The text `{"$bytes":` can therefore only come from `text_or_bytes`.
    if flaw is None and '{"$bytes":' in text:
        flaw = "invalid_utf8"
    counts = attributes and body.startswith(_COUNTER, begin)
    kind = Kind.COUNTER if counts else Kind.SPAN
    if flaw:
        return kind, name, text, flaw, ((4, BODY_AT + len(body)),)
    ends = [attribute.at for attribute in attributes[1:]] + [len(body)]
    arrays = [(a.at, end) for a, end in zip(attributes, ends, strict=True) if a.type & ARRAY]
    return kind, name, text, None, tuple((BODY_AT + at, BODY_AT + end) for at, end in arrays)


def _read_attributes(body: bytes, at: int) -> tuple[list[_Attribute], int]:
    """Return the attributes from the position `at` on, and the position after them. Stop before the first attribute
    whose length may be wrong."""
    attributes: list[_Attribute] = []
    end = len(body)
    try:
        while at < end:
            value_at = at + 3 + (body[at] << 8 | body[at + 1])
            key = text_or_bytes(body[at + 2 : value_at - 1]) + ":"
            kind = body[value_at - 1]
            value, shown, stop = _READERS[kind](body, value_at)
            if stop > end:
                break
            attributes.append(_Attribute(at, key, kind, value, shown))
            at = stop
    except (IndexError, KeyError, struct_error):
        pass
    if at < end:
        for i, attribute in enumerate(attributes):
            if attribute.type & ARRAY or (attribute.type == STRING and end > 0xFFFF):
                return attributes[:i], attribute.at
    return attributes, at


# Each function in `_READERS` returns the value as JSON, the type that a reader of the JSON would assume, and the
# position after the value. For a string, this position may exceed the end of the body.


def _read_u64(body: bytes, at: int) -> tuple[str, int, int]:
    return str(_u64(body, at)[0]), U64, at + 8


def _read_i64(body: bytes, at: int) -> tuple[str, int, int]:
    (number,) = _i64(body, at)
    return str(number), I64 if number < 0 else U64, at + 8


def _read_f64(body: bytes, at: int) -> tuple[str, int, int]:
    (number,) = _f64(body, at)
    text = repr(number) if isfinite(number) else f'{{"$f64":"{body[at : at + 8].hex()}"}}'
    return text, F64, at + 8


def _read_string(body: bytes, at: int) -> tuple[str, int, int]:
    stop = at + 2 + _u16(body, at)[0]
    return text_or_bytes(body[at + 2 : stop]), STRING, stop


def _read_array(body: bytes, at: int) -> tuple[str, int, int]:
    read = _READERS[body[at - 1] & ~ARRAY]
    (length,) = _u16(body, at)
    at += 2
    values: list[str] = []
    shown = 0
    for _ in range(length):
        value, element, at = read(body, at)
        values.append(value)
        shown = max(shown, element)
    return f"[{','.join(values)}]", shown | ARRAY, at


_READERS = {U64: _read_u64, I64: _read_i64, F64: _read_f64, STRING: _read_string}
_READERS |= {ARRAY | kind: _read_array for kind in _READERS}


def _spell(attributes: list[_Attribute]) -> list[str]:
    """Return the attributes as members of a JSON object, or as a single member `$list`."""
    keys = {attribute.key for attribute in attributes}
    if len(keys) < len(attributes) or any(key.startswith(('"$', "{")) for key in keys):
        items = (f'[{a.key[:-1]},"{TYPES[a.type]}",{a.value}]' for a in attributes)
        return [f'"$list":[{",".join(items)}]']
    fields = [a.key + a.value for a in attributes]
    types = ",".join(f'{a.key}"{TYPES[a.type]}"' for a in attributes if a.shown != a.type)
    return [*fields, f'"$types":{{{types}}}'] if types else fields


def text_or_bytes(raw: bytes) -> str:
    """Return `raw` as a JSON string if it is UTF-8, and as the object `{"$bytes":"…"}` otherwise."""
    try:
        return quote(raw.decode())
    except UnicodeDecodeError:
        return bytes_object(raw)


def bytes_object(raw: bytes) -> str:
    return f'{{"$bytes":"{raw.hex()}"}}'
