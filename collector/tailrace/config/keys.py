"""Convert the values of settings to the types of the schema, and check them. Provide the schema's sections and
source types as mappings of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from tailrace.config import listen
from tailrace.config.schema import Config, Section, SourceConfig
from tailrace.units import Duration, Size

Keys = Mapping[str, FieldInfo]

_WORDS: dict[object, str] = {
    str: "string",
    bool: "boolean",
    int: "whole number",
    Size: "size",
    Duration: "duration",
    list[str]: "list of strings",
    dict[str, str]: "table of strings",
}


@cache
def keys(struct: type[Section]) -> Keys:
    """Return the keys of a section or a source type, in the schema's order."""
    return {field.name: field for field in msgspec.structs.fields(struct)}


SECTIONS: dict[str, type[Section]] = {
    name: field.type for name, field in keys(Config).items() if name != "sources"
}

SOURCES: dict[str, type[Section]] = {
    str(struct.__struct_config__.tag): struct for struct in get_args(SourceConfig)
}
"""For each type of source, the struct of the schema that defines its keys."""


def keys_of_any(structs: Iterable[type[Section]]) -> Keys:
    return {name: field for struct in structs for name, field in keys(struct).items()}


def required_of_all(structs: Iterable[type[Section]]) -> list[str]:
    """Return the keys that every given struct defines without a default."""
    required = [[n for n, field in keys(struct).items() if field.required] for struct in structs]
    return [name for name in required[0] if all(name in each for each in required)]


def stripped(type_: object) -> object:
    return next(t for t in get_args(type_) if t is not NoneType) if optional(type_) else type_


def optional(type_: object) -> bool:
    return NoneType in get_args(type_)


def choices(type_: object) -> tuple[str, ...]:
    """Return the allowed values if the type is a Literal; otherwise an empty tuple."""
    return get_args(type_) if get_origin(type_) is Literal else ()


def words(type_: object) -> str:
    """Return the name of a value's type, as messages and documentation show it."""
    if allowed := choices(type_):
        return alternatives(allowed)
    return _WORDS[stripped(type_)]


def alternatives(allowed: Iterable[str]) -> str:
    return "one of " + ", ".join(f'"{value}"' for value in allowed)


def hint(given: str, known: Iterable[str]) -> str:
    """Return a hint for a message about an unknown word: the most similar known word, or all known words."""
    known = list(known)
    if near := get_close_matches(given, known, n=1):
        return f"did you mean {near[0]}?"
    return "allowed: " + ", ".join(known)


NUMBER_MAX = 2**63 - 1
DURATION_MAX = Duration(106_751 * 86_400)
"""Longest allowed duration: all whole days that fit into 2**63 ns."""

_KINDS = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number with a fraction",
    str: "a string",
    list: "an array",
    dict: "a table",
}


def convert(key: str, type_: object, value: object) -> object:
    """Convert a value to `type_`, the schema's type of a key. Raise ValueError, with the allowed values, if it is
    invalid."""
    if value == "none" and optional(type_):
        return None  # TOML has no null, so the word "none" stands for it.
    try:
        converted: object = msgspec.convert(value, type_, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        if stripped(type_) in {Size, Duration}:
            raise ValueError(str(error)) from None
        example = ' as in "0660",' if key == "mode" else ""
        raise ValueError(_mismatch(type_, value, example)) from None
    _check(key, converted)
    return converted


def kind(value: object) -> str:
    """Return the name that TOML has for the type of a value."""
    return _KINDS.get(type(value), "a date or a time")


def _quantity(type_: type[Size | Duration], value: object) -> Size | Duration:
    if isinstance(value, str):
        try:
            return type_.parse(value)
        except OverflowError:  # the number has more digits than a float can represent
            raise ValueError(f"is too large for a {words(type_)}") from None
    example = '"16 MiB"' if type_ is Size else '"250 ms"'
    if isinstance(value, int | float) and kind(value) != "a boolean" and 1 <= value <= 10**12:
        example = f'"{type_(value)}"'
    raise ValueError(f"must be a {words(type_)} with its unit, as in {example}, not {kind(value)}")


def _mismatch(type_: object, value: object, example: str) -> str:
    """Return the error message for a value of the wrong type. Strings are quoted only if a single word is expected,
    because others may be secrets."""
    if get_origin(type_) in {list, dict}:
        wrong = "must contain only strings" if type(value) is get_origin(type_) else ""
        return wrong or f"must be a {words(type_)}, not {kind(value)}"
    shown = repr(value) if isinstance(value, str) else kind(value)
    article = "" if choices(type_) else "a "
    return f"must be {article}{words(type_)},{example} not {shown}"


def _check(key: str, value: object) -> None:
    """Raise ValueError if a value of the right type is not allowed."""
    if isinstance(value, Duration):
        if not 0 < value <= DURATION_MAX:
            raise ValueError(f"must be positive and at most {DURATION_MAX}")
    elif isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= NUMBER_MAX:
        raise ValueError("must be at least 1 and less than 2^63")
    elif isinstance(value, str):
        _check_texts([value])
        if key == "mode":
            listen.parse_mode(value)
    elif isinstance(value, dict):
        _check_texts([*value, *value.values()])
    elif isinstance(value, list):
        _check_texts(value)
        if key == "allow":
            for network in value:
                listen.parse_network(network)
        elif not (value and all(value)):
            raise ValueError("must have at least one string, and no empty string")


def _check_texts(texts: list[str]) -> None:
    for text in texts:
        if "\0" in text:
            raise ValueError("must not contain a NUL character")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError("must be UTF-8")
