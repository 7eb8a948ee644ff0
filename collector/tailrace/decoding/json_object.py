"""Read one JSON object strictly, and keep the text of each value as its producer wrote it.

Python's own parser decides what is JSON, made stricter here: no NaN or Infinity, no lone surrogates,
only UTF-8, and nothing nested deeper than `DEPTH_MAX`. So every returned text can be stored in a table
as it is, and other parsers accept it; only a number may be larger than they can hold.
"""

from __future__ import annotations

import json
import re
from json.scanner import make_scanner
from typing import Any, NamedTuple

DEPTH_MAX = 128
"""How deep objects and arrays may nest, the outermost counted: common JSON parsers take as much."""

BEYOND = 1 << 70
"""Stands for any integer of more than 20 characters: no range of interest contains it, and converting
it would take time that grows with the square of its length."""

INTEGRAL_MAX = 1 << 53
"""The largest integer that a number with a fraction or an exponent may spell: programs that spell integers so keep no
larger ones exactly."""

WHITE = " \t\r\n"
_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_SPELLED_MAX = 64
_BRACKET_OR_STRING = re.compile(r'[\[{]|([\]}])|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STRING_OR_HEX = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|([:\[,][ \t]*[-+]?0[xX][0-9a-fA-F]++)[ \t]*[,}\]]', re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


class Field(NamedTuple):
    """A key with its value, and the value's own text."""

    key: str
    value: Any
    text: str


def integer(field: Field) -> int | None:
    """Return the integer that a field has, None for any other value. `1.0` and `1e3` are integers, as JavaScript and jq have it."""
    if type(field.value) is float:
        return integral(field.text)
    return int(field.value) if type(field.value) is int else None


def integral(text: str) -> int | None:
    """Return the integer that a number of JSON spells with a fraction or an exponent, None if it is not integral, beyond
    `INTEGRAL_MAX`, or longer than `_SPELLED_MAX` characters."""
    found = _NUMBER.fullmatch(text) if len(text) <= _SPELLED_MAX else None
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups(default="")
    digits = (whole + fraction).rstrip("0")
    if not digits:
        return 0
    zeros = len(whole) - len(digits) + int(exponent or 0)
    if not 0 <= zeros <= 16 or (value := int(digits) * 10**zeros) > INTEGRAL_MAX:
        return None
    return int(-value if sign else value)


class _RefusedError(ValueError):
    """A text is refused; the argument is the reason."""


def _integer(text: str) -> int:
    return int(text) if len(text) <= 20 else BEYOND


def _constant(_: str) -> None:
    raise _RefusedError("not_a_number")


_decoder = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)
_scan = make_scanner(_decoder)  # type: ignore[arg-type] # typeshed wants a context, Python a decoder


def read_object(line: bytes) -> list[Field] | str:
    """Return the fields of an object in their order, repeated ones included, or the reason to refuse it:
    invalid_utf8, too_deep, bad_json, hex_number, not_a_number, not_an_object, lone_surrogate."""
    try:
        return _read(line.decode().strip(WHITE))
    except UnicodeDecodeError:
        return "invalid_utf8"
    except _RefusedError as refused:
        return str(refused)
    except (ValueError, IndexError, StopIteration):
        numbers = _STRING_OR_HEX.finditer(line)
        return "hex_number" if any(found[1] for found in numbers) else "bad_json"


def is_whole(line: bytes) -> bool:
    """Return whether a line is one complete JSON object. No bytes that follow can then change the object."""
    return not isinstance(read_object(line), str)


def _read(text: str) -> list[Field]:
    if _too_deep(text):
        raise _RefusedError("too_deep")
    if not text.startswith("{"):
        _decoder.decode(text)
        raise _RefusedError("not_an_object")
    fields, at = _fields(text)
    if at != len(text):
        raise ValueError(at)
    if "\\u" in text and any(escape[1] for escape in _ESCAPE.finditer(text)):
        raise _RefusedError("lone_surrogate")
    return fields


def _fields(text: str) -> tuple[list[Field], int]:
    """Return the fields of the object at the start of `text`, and where it ends.

    Raise ValueError, IndexError or StopIteration if there is no object."""
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
    """Return where the white space at `at` ends."""
    while text[at] in WHITE:
        at += 1
    return at


def _expect(text: str, at: int, mark: str) -> int:
    """Return where `mark` stands, at `at` or behind white space. Raise ValueError if it is not there."""
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
