"""Describe every configuration key in words, for the reference file and for tests of its content."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from tailrace.config import schema
from tailrace.config.keys import SECTIONS, SOURCES, keys, words
from tailrace.config.reload import Takes, takes
from tailrace.units import Duration, Size


class Described(NamedTuple):
    """A described key.

    `default` is spelled as in TOML: empty for a required key, `none` for no value. `takes` states when a change takes
    effect. `meaning` is the text under the schema's field.
    """

    section: str
    key: str
    type: str
    default: str
    takes: str
    meaning: str


def describe() -> list[Described]:
    """Return all keys in the schema's order. Sources come last, each type as a section `sources (TYPE)`."""
    described = [d for name, struct in SECTIONS.items() for d in _section(name, struct)]
    for tag, struct in SOURCES.items():
        section = f"sources ({tag})"
        described.append(
            Described(section, "type", f'"{tag}"', "", Takes.SOURCE, "The type of the source.")
        )
        described += _section(section, struct)
    return described


def _section(section: str, struct: type[schema.Section]) -> Iterator[Described]:
    for key, field in keys(struct).items():
        meaning = _meanings()[struct.__name__, key]
        yield Described(
            section, key, words(field.type), _default(field), takes(struct, key), meaning
        )


def _default(field: FieldInfo) -> str:
    if field.required:
        return ""
    return _toml(field.default_factory() if field.default is NODEFAULT else field.default)


def _toml(value: object) -> str:
    if value is None:
        return "none"
    return json.dumps(str(value) if isinstance(value, Size | Duration) else value)


@cache
def _meanings() -> dict[tuple[str, str], str]:
    """Return the string under each field, by class and field. The interpreter drops these strings."""
    tree = ast.parse(inspect.getsource(schema))
    return {
        (struct.name, field.target.id): inspect.cleandoc(text.value.value)
        for struct in tree.body
        if isinstance(struct, ast.ClassDef)
        for field, text in zip(struct.body, struct.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
