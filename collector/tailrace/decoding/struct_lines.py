"""Decode many lines at once into msgspec structs. Each line is a JSON object. Find the fields of the lines that the
structs do not have.

msgspec skips unknown fields and uses the last of repeated keys. To detect this, the module writes the structs as JSON
again (`rewritten`), and compares the sizes. msgspec never writes more bytes than it reads. If the new text lacks only
the white space and the escapes of the original lines, msgspec has dropped nothing else. msgspec does not check the
UTF-8 and the nesting of Raw values, so this module checks both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from functools import cache
from typing import Generic, TypeVar, cast

import msgspec

from tailrace.decoding.json_object import any_deep

Plain = TypeVar("Plain", bound=msgspec.Struct)
Spelled = TypeVar("Spelled", bound=msgspec.Struct)
Fields = dict[str, msgspec.Raw]

_WHITE = b" \t\r"
_AS_CONTENT = bytes.maketrans(b'"\n', b"--")
_NEGATIVE_ZERO = re.compile(rb"[:\s]-0\s*[,}]")

_decode_text = msgspec.json.Decoder(str).decode
decode_fields = msgspec.json.Decoder(Fields).decode
_encode, _encode_lines = msgspec.json.Encoder().encode, msgspec.json.Encoder().encode_lines


class StructLines(Generic[Plain, Spelled]):
    """Decodes lines into structs of the type `plain`, whose numbers are integers, or of the type `spelled`, whose
    numbers are JSON texts. `reserved`: the keys that only the decoder itself may write into attributes (see
    `further`)."""

    def __init__(
        self, plain: object, spelled: object, reserved: AbstractSet[str] = frozenset()
    ) -> None:
        self._decode_plain = msgspec.json.Decoder(cast(type[Plain], plain)).decode
        self._decode_spelled = msgspec.json.Decoder(cast(type[Spelled], spelled)).decode
        self._reserved = reserved

    def decode(self, data: bytes, lines: list[bytes]) -> Sequence[Plain | Spelled] | None:
        """Return the lines as structs, all `plain` or all `spelled`. Return None if a line fits neither type, nests too
        deeply or is not UTF-8. `lines` are the lines in `data`; white space around a line does not matter."""
        decoded: Sequence[Plain | Spelled] | None = None
        try:
            if not data.isascii():
                data.decode()
            # msgspec writes -0 as 0. Lines with a negative zero are therefore decoded with their numbers as texts.
            if not (b"-0" in data and _NEGATIVE_ZERO.search(data)):
                with suppress(msgspec.ValidationError):
                    decoded = list(map(self._decode_plain, lines))
            if decoded is None:
                decoded = list(map(self._decode_spelled, lines))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return None if any_deep(lines) else decoded

    def decode_each(self, lines: list[bytes]) -> Sequence[Plain | Spelled | None]:
        """Return each line as a struct, or None for a line that `decode` cannot read."""
        decoded: list[Plain | Spelled | None] = []
        for line in lines:
            decoded += self.decode(line, [line]) or [None]
        return decoded

    def further(
        self, lines: list[bytes], decoded: Sequence[Plain | Spelled | None], again: bytes
    ) -> Sequence[str | None]:
        """Return, for each line, the fields that the line's struct does not have, as JSON members such as
        `,"a":1,"b":2`.

        `decoded` has the structs, and `again` the structs as JSON (`rewritten`). Return None for a line that has a
        repeated field, a reserved name, or no struct."""
        text = b"\n".join(lines) + b"\n"
        whole = None not in decoded
        if whole and _same_value(text, again):
            return [""] * len(lines)
        fields = fields_but(keys_of, lines, decoded)
        found = members(fields, self._reserved)
        rest = "".join([more or "" for more in found])
        if whole and None not in found and _same_value(text, again + rest.encode()):
            return found
        return [
            more
            if one and more is not None and _same_value(line, _encode(one) + more.encode())
            else None
            for line, one, more in zip(lines, decoded, found, strict=True)
        ]


def fields_but(
    left_out: Callable[[type[msgspec.Struct]], Iterable[str]],
    lines: list[bytes],
    decoded: Sequence[msgspec.Struct | None],
) -> list[Fields]:
    """Return the fields of each line as JSON texts by key. Leave out the keys that `left_out` returns for the type of
    the line's struct. Return no fields for a line without a struct."""
    found = [decode_fields(line) if one else {} for line, one in zip(lines, decoded, strict=True)]
    for fields, one in zip(found, decoded, strict=True):
        for key in left_out(type(one)) if one else ():
            fields.pop(key, None)
    return found


def rewritten(decoded: Sequence[object | None]) -> bytes:
    """Return structs as lines of JSON, without white space and without escapes that JSON does not require."""
    return _encode_lines([one for one in decoded if one is not None])


def members(
    objects: Sequence[Mapping[str, msgspec.Raw]], reserved: AbstractSet[str] = frozenset()
) -> Sequence[str | None]:
    """Return the members of each JSON object as text. Return None for an object with a key that begins with "$" or that
    is in `reserved`.

    The values must not contain newlines."""
    text = _encode_lines(objects)
    lines = text.decode().split("\n")[:-1]
    found = [f",{line[1:-1]}" if len(line) > 2 else "" for line in lines]
    if b'"$' in text:
        reserved = reserved | {key for each in objects for key in each if key[:1] == "$"}
    if not reserved:
        return found
    return [
        line if reserved.isdisjoint(each) else None
        for each, line in zip(objects, found, strict=True)
    ]


@cache
def keys_of(type_: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the JSON keys of a struct type: those of its fields, and the key of its type tag, if it has one."""
    tag = type_.__struct_config__.tag_field
    return type_.__struct_fields__ if tag is None else (tag, *type_.__struct_fields__)


def _same_value(data: bytes, again: bytes) -> bool:
    """Return whether `data` and `again` are spellings of the same value. `again` is the JSON that msgspec wrote after
    it had decoded `data`.

    Compare only the sizes (`_content`) of the texts: if msgspec drops a part of `data`, `again` is shorter."""
    if len(data) == len(again):
        return True
    content = _content(data)
    return content <= len(again) and content == _content(again)


def _content(data: bytes) -> int:
    """Return the size (bytes) of a JSON text without all white space, even in strings, and with the escapes that
    msgspec writes. Two spellings of one value have the same size."""
    if b"\\" not in data or (rb"\u" not in data and rb"\/" not in data):
        return len(data.translate(None, _WHITE))
    # Turn the whole text into the content of one JSON string. Then msgspec decodes all escapes in one call.
    text = data.replace(rb"\\", b"--").replace(rb"\"", b"--").translate(_AS_CONTENT, _WHITE)
    spelled = _encode(_decode_text(b'"%b"' % text))
    return len(spelled) - len(b'""') - spelled.count(b" ")
