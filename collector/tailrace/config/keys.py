"""The schema as mappings of keys, derived from its structs, so that no key is written twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

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
    """Return the keys of one section, or of one type of source, in the schema's order."""
    return {field.name: field for field in msgspec.structs.fields(struct)}


SECTIONS: dict[str, type[Section]] = {
    name: field.type for name, field in keys(Config).items() if name != "sources"
}

SOURCES: dict[str, type[Section]] = {
    str(struct.__struct_config__.tag): struct for struct in get_args(SourceConfig)
}
"""The values that a source's `type` may have, with the struct of each."""


def keys_of_any(structs: Iterable[type[Section]]) -> Keys:
    """Return the keys that any of these structs has. Keys with the same name have the same type."""
    return {name: field for struct in structs for name, field in keys(struct).items()}


def required_of_all(structs: Iterable[type[Section]]) -> list[str]:
    """Return the keys that each of these structs requires."""
    required = [[n for n, field in keys(struct).items() if field.required] for struct in structs]
    return [name for name in required[0] if all(name in each for each in required)]


def stripped(type_: object) -> object:
    """Return the type without None: `Size` for `Size | None`."""
    return next(t for t in get_args(type_) if t is not NoneType) if optional(type_) else type_


def optional(type_: object) -> bool:
    return NoneType in get_args(type_)


def choices(type_: object) -> tuple[str, ...]:
    """Return the values that a Literal allows, or nothing for any other type."""
    return get_args(type_) if get_origin(type_) is Literal else ()


def words(type_: object) -> str:
    """Return the words for a type in messages and in the documentation."""
    if allowed := choices(type_):
        return alternatives(allowed)
    return _WORDS[stripped(type_)]


def alternatives(allowed: Iterable[str]) -> str:
    return "one of " + ", ".join(f'"{value}"' for value in allowed)


def hint(given: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known word, or all of them."""
    known = list(known)
    if near := get_close_matches(given, known, n=1):
        return f"did you mean {near[0]}?"
    return "allowed: " + ", ".join(known)
