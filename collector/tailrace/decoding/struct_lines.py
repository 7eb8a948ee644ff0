"""Decode many lines at once, each a JSON object, into msgspec structs. Find the fields that the structs do not have.

msgspec skips unknown fields and uses the last of repeated keys. To detect this, this module writes the structs as JSON
again (`rewritten`), and compares the size with that of the lines. It also checks UTF-8 and nesting of Raw values, which
msgspec does not."""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Mapping,
    Sequence,
    Set as AbstractSet,
)
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

_decode_fields = msgspec.json.Decoder(Fields).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode, _encode_lines = msgspec.json.Encoder().encode, msgspec.json.Encoder().encode_lines


class StructLines(Generic[Plain, Spelled]):
    """Decodes lines into structs: `plain` with integers, or `spelled` with numbers as JSON texts.

    Only the decoder itself may write the keys in `reserved` into attributes."""

    def __init__(
        self, plain: object, spelled: object, reserved: AbstractSet[str] = frozenset()
    ) -> None:
        self._decode_plain = msgspec.json.Decoder(cast(type[Plain], plain)).decode
        self._decode_spelled = msgspec.json.Decoder(cast(type[Spelled], spelled)).decode
        self._reserved = reserved

    def decode(self, data: bytes, lines: list[bytes]) -> Sequence[Plain | Spelled] | None:
        """Return the `lines` of `data` as structs, either all of the type `plain` or all of the type `spelled`.

        Return None if a line fits neither of them, nests too deeply or is not UTF-8."""
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
        """For each line, return the fields that its struct lacks, as JSON members like `,"a":1`. `again` has the
        structs as JSON.

        Return None for a line that has a repeated field or a reserved name, or that was not decoded."""
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
    """Return each line's fields as JSON texts, except the keys `left_out` of its struct's type."""
    found = [_decode_fields(line) if one else {} for line, one in zip(lines, decoded, strict=True)]
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
    """Return the members of each JSON object as text; None for a reserved key, or a key that begins with "$"."""
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


def spelled(
    plain: type[msgspec.Struct],
    numbers: Container[str],
    namespace: dict[str, object] | None = None,
) -> type[msgspec.Struct]:
    """Return a struct like `plain`, but with JSON texts in the fields listed in `numbers`, because a line may have
    quotes, a fraction or an exponent in its numbers."""
    fields = [
        (
            each.name,
            msgspec.Raw | msgspec.UnsetType if each.name in numbers else each.type,
            msgspec.NODEFAULT if each.required else msgspec.UNSET,
        )
        for each in msgspec.structs.fields(plain)
    ]
    of = plain.__struct_config__
    return msgspec.defstruct(
        f"Spelled{plain.__name__}", fields, tag_field=of.tag_field, tag=of.tag, gc=False,
        namespace=namespace,
    )  # fmt: skip


@cache
def keys_of(type_: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the JSON keys of a struct type: those of its fields, and the key of its type tag, if it has one."""
    tag = type_.__struct_config__.tag_field
    return type_.__struct_fields__ if tag is None else (tag, *type_.__struct_fields__)


def _same_value(data: bytes, again: bytes) -> bool:
    """Return whether msgspec wrote all of `data` into `again`, judging by the sizes: if msgspec drops a part of `data`,
    `again` is shorter."""
    if len(data) == len(again):
        return True
    content = _content(data)
    return content <= len(again) and content == _content(again)


def _content(data: bytes) -> int:
    """Return the size of a JSON text with msgspec's escapes and without white space, even that in strings."""
    if b"\\" not in data or (rb"\u" not in data and rb"\/" not in data):
        return len(data.translate(None, _WHITE))
    # Turn the whole text into the content of one JSON string. Then msgspec decodes all escapes in one call.
    text = data.replace(rb"\\", b"--").replace(rb"\"", b"--").translate(_AS_CONTENT, _WHITE)
    spelled = _encode(_decode_text(b'"%b"' % text))
    return len(spelled) - len(b'""') - spelled.count(b" ")
