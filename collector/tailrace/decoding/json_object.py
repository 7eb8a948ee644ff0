"""Read one JSON object strictly, and keep the text of each value as its producer wrote it.

NaN, Infinity, lone surrogates, bytes that are not UTF-8 and deep nesting (`DEPTH_MAX`) are refused. Other parsers
accept each returned text, except numbers that are too large for them."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring as quote
from json.scanner import make_scanner
from typing import Any, NamedTuple

import msgspec

DEPTH_MAX = 128
"""Maximum nesting depth, including the outermost object. Common JSON parsers accept this depth."""

BEYOND = 1 << 70
"""Value that replaces each integer of more than 20 characters, whose conversion would take quadratic time."""

INTEGRAL_MAX = 1 << 53
"""The largest integer that is accepted with a fraction or an exponent. A double holds integers up to it exactly."""

Texts = dict[str, str]
"""The JSON texts of an object's values, by key."""

_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def as_object(texts: Texts) -> str | None:
    """Return the JSON text of an object; None for an object without members."""
    if not texts:
        return None
    return "{" + ",".join(f"{quote(key)}:{text}" for key, text in texts.items()) + "}"


def texts_of(text: str | None) -> Texts:
    """Return the members of a JSON object, or an empty dict for None. This is the inverse of `as_object`."""
    return {} if text is None else {k: str(raw, "utf-8") for k, raw in _raw_members(text).items()}


def with_member(text: str | None, key: str, value: str) -> str:
    """Return a JSON object with a further member. The object may be None, and `value` is a JSON text."""
    return f'{text[:-1]},"{key}":{value}}}' if text else f'{{"{key}":{value}}}'


WHITE = " \t\r\n"
_SPELLED_MAX = 64
_BRACKET_OR_STRING = re.compile(r'[\[{]|([\]}])|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STRING_OR_HEX = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|([:\[,][ \t]*[-+]?0[xX][0-9a-fA-F]++)[ \t]*[,}\]]', re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


class Field(NamedTuple):
    """A member of a JSON object: its key, its value, and the text of the value as the producer wrote it."""

    key: str
    value: Any
    text: str


def integer(field: Field) -> int | None:
    """Return the value of a field as an integer, or None. `1.0` and `1e3` are integers, as in JavaScript and jq."""
    if type(field.value) is float:
        return integral(field.text)
    return int(field.value) if type(field.value) is int else None


def integral(text: str) -> int | None:
    """Return the integer value of a JSON number with a fraction or an exponent, such as 12.0 or 1e3.

    Return None if the value is not an integer or is beyond `INTEGRAL_MAX`, or if the text is too long."""
    if len(text) > _SPELLED_MAX:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # The exponent is too long for Decimal, or the text is not a number.
        return None if text.upper().partition("E")[0].strip("-0.") else 0
    if not number:
        return 0
    value = int(number) if 0 <= number.adjusted() < 16 else 0
    return value if value == number and abs(value) <= INTEGRAL_MAX else None


class _RefusedError(ValueError):
    """Signals that a text is not a JSON object that this module accepts. The argument is the reason."""


def _refuse_constant(_: str) -> None:
    raise _RefusedError("not_a_number")


_decoder = json.JSONDecoder(
    parse_int=lambda text: int(text) if len(text) <= 20 else BEYOND, parse_constant=_refuse_constant
)
_scan = make_scanner(_decoder)  # type: ignore[arg-type] # typeshed wants a context, Python a decoder


def read_object(line: bytes) -> list[Field] | str:
    """Return the fields of a JSON object in order, including repeated keys, or the reason for a refusal: invalid_utf8,
    too_deep, bad_json, hex_number, not_a_number, not_an_object or lone_surrogate."""
    try:
        text = line.decode().strip(WHITE)
        if _too_deep(text):
            return "too_deep"
        if not text.startswith("{"):
            _decoder.decode(text)
            return "not_an_object"
        fields, at = _fields(text)
        if at != len(text):
            raise ValueError(at)  # noqa: TRY301
        lone = "\\u" in text and any(escape[1] for escape in _ESCAPE.finditer(text))
    except UnicodeDecodeError:
        return "invalid_utf8"
    except _RefusedError as refused:
        return str(refused)
    except (ValueError, IndexError, StopIteration):
        numbers = _STRING_OR_HEX.finditer(line)
        return "hex_number" if any(found[1] for found in numbers) else "bad_json"
    return "lone_surrogate" if lone else fields


def is_whole(line: bytes) -> bool:
    return not isinstance(read_object(line), str)


def _fields(text: str) -> tuple[list[Field], int]:
    """Return the fields of the object with which `text` begins, and its end."""
    fields: list[Field] = []
    at = _skip(text, 1)
    if text[at] == "}":
        return fields, at + 1
    while True:
        if text[at] != '"':
            raise ValueError(at)
        key, at = _scan(text, at)
        if text[at] != ":":
            at = _expect(text, at, ":")
        begin = at + 1 if text[at + 1] not in WHITE else _skip(text, at + 1)
        value, at = _scan(text, begin)
        fields.append(Field(key, value, text[begin:at]))
        if text[at] != ",":
            at = _skip(text, at)
            if text[at] == "}":
                return fields, at + 1
            at = _expect(text, at, ",")
        at = at + 1 if text[at + 1] not in WHITE else _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in WHITE:
        at += 1
    return at


def _expect(text: str, at: int, mark: str) -> int:
    """Return the position after the character `mark`. Only white space may precede it; otherwise raise ValueError."""
    at = _skip(text, at)
    if text[at] != mark:
        raise ValueError(at)
    return at


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif match[1]:
            depth -= 1
    return False


def any_deep(lines: list[bytes]) -> bool:
    """Return whether one of the lines, which must be valid JSON, is nested deeper than `DEPTH_MAX`."""
    long = [line for line in lines if len(line) > 2 * DEPTH_MAX]
    return any(
        line.count(b"[") + line.count(b"{") > DEPTH_MAX and _too_deep(line.decode())
        for line in long
    )
