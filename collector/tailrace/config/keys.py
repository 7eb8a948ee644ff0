"""The schema as mappings of keys, walked from its structs: no key is written a second time."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from tailrace.config.schema import Config, Section, SourceConfig
from tailrace.units import Duration, Size

Keys = dict[str, FieldInfo]

_WORDS: dict[Any, str] = {
    str: "string",
    int: "whole number",
    Size: "size",
    Duration: "duration",
    list[str]: "list of strings",
    dict[str, str]: "table of strings",
}


def keys(struct: type[Section]) -> Keys:
    """The keys of one section or of one type of source, in the schema's order."""
    return {field.name: field for field in msgspec.structs.fields(struct)}


SECTIONS: dict[str, type[Section]] = {
    name: field.type for name, field in keys(Config).items() if name != "sources"
}

SOURCES: dict[str, type[Section]] = {
    str(struct.__struct_config__.tag): struct for struct in get_args(SourceConfig)
}
"""What a source's `type` may be, and the struct of each."""


def source_keys() -> Keys:
    """The keys of all types of source together; required is what all of them require."""
    every = [keys(struct) for struct in SOURCES.values()]
    merged = {name: field for each in every for name, field in reversed(each.items())}
    return dict(reversed(merged.items()))


def stripped(type_: Any) -> Any:  # noqa: ANN401 - a type as an annotation spells it
    """The type of a value that is there: `Size` of `Size | None`."""
    return next(t for t in get_args(type_) if t is not NoneType) if optional(type_) else type_


def optional(type_: Any) -> bool:  # noqa: ANN401 - a type as an annotation spells it
    return NoneType in get_args(type_)


def choices(type_: Any) -> tuple[str, ...]:  # noqa: ANN401 - a type as an annotation spells it
    """The values a Literal allows; empty for every other type."""
    return get_args(type_) if get_origin(type_) is Literal else ()


def words(type_: Any) -> str:  # noqa: ANN401 - a type as an annotation spells it
    """What a value of this type is called in a message and in the documentation."""
    if allowed := choices(type_):
        return alternatives(allowed)
    return _WORDS[stripped(type_)]


def alternatives(allowed: Iterable[str]) -> str:
    return "one of " + ", ".join(f'"{value}"' for value in allowed)


def hint(given: str, known: Iterable[str], allowed: Iterable[str] | None = None) -> str:
    """The end of a message about an unknown word: the nearest known one, or all that are allowed,
    which are the known ones if not said otherwise."""
    known = list(known)
    if near := get_close_matches(given, known, n=1):
        return f"did you mean {near[0]}?"
    return "allowed: " + ", ".join(known if allowed is None else allowed)
