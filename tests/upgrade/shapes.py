"""Describe from the code what is on disk, to be compared with what it was when the version was set.

    python -m tests.upgrade.shapes

writes tests/vectors/upgrade/schema.txt and state.txt anew. Do that last after a change
of either: first its version rises, unless it has risen since the last release, and it has a step from
the version before (docs/decisions/versions.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from tailrace.decoding.formats import FORMATS
from tailrace.ingest import state
from tailrace.model.gap import Reason
from tailrace.model.record import Kind
from tailrace.rows.schema import COLUMNS
from tailrace.spool import payloads
from tailrace.spool.entry import EntryKind
from tailrace.store.schema import SCHEMA_VERSION
from tests.upgrade.stored import VECTORS

PAYLOADS = (payloads.OpenInfo, payloads.FileFacts, payloads.FileLoss, payloads.DropCount)
"""Structs of entries in the spool: those that no state contains, and some that one does."""


def schema() -> str:
    lines = [f"version {SCHEMA_VERSION}", ""]
    lines += [f"{c.name}: {c.type}{'' if c.nullable else ', never null'}" for c in COLUMNS]
    lines += ["", "kinds: " + " ".join(sorted(Kind)), "reasons: " + " ".join(sorted(Reason))]
    return "\n".join(lines) + "\n"


def ingest_state() -> str:
    roots = [state.IngestState, *PAYLOADS, *(f.state_type for f in FORMATS.values())]
    found: dict[str, list[str]] = {}
    for root in roots:
        _describe(inspect.type_info(root), found)
    lines = [f"version {state.VERSION}", ""]
    lines += ["entries: " + " ".join(f"{kind.name}={kind.value}" for kind in EntryKind)]
    for name in sorted(found):
        lines += ["", name, *found[name]]
    return "\n".join(lines) + "\n"


def _describe(type_: inspect.Type, found: dict[str, list[str]]) -> None:
    """Add a type and all types of which it consists, by name."""
    if isinstance(type_, inspect.StructType | inspect.NamedTupleType):
        name = _name(type_)
        if name in found:
            return
        found[name] = []
        if getattr(type_, "array_like", False):
            found[name].append("    in order")
        if tag := getattr(type_, "tag", None):
            found[name].append(f"    tag {tag}")
        for field in type_.fields:
            needed = ", required" if field.required else ""
            found[name].append(f"    {field.encode_name}: {_name(field.type)}{needed}")
            _describe(field.type, found)
    for part in _parts(type_):
        _describe(part, found)


def _parts(type_: inspect.Type) -> Iterator[inspect.Type]:
    for name in ("item_type", "key_type", "value_type"):
        if part := getattr(type_, name, None):
            yield part
    for name in ("types", "item_types"):
        yield from getattr(type_, name, ())


def _name(type_: inspect.Type) -> str:
    if cls := getattr(type_, "cls", None):
        return f"{cls.__module__.removeprefix('tailrace.')}.{cls.__qualname__}"
    if isinstance(type_, inspect.UnionType):
        return " | ".join(sorted(map(_name, type_.types)))
    if isinstance(type_, inspect.LiteralType):
        return "one of " + " ".join(map(str, type_.values))
    name = type(type_).__name__.removesuffix("Type").lower()
    parts = ", ".join(map(_name, _parts(type_)))
    return f"{name}[{parts}]" if parts else name


SHAPES = {VECTORS / "schema.txt": schema, VECTORS / "state.txt": ingest_state}

if __name__ == "__main__":
    for path, shape in SHAPES.items():
        path.write_text(shape())
