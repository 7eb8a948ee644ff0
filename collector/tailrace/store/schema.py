"""Define the columns of the table, the version of its schema, and the steps that upgrade an older table.

The version is the table property `tailrace.schema`. It also increases when older readers would misinterpret new rows. A
starting collector upgrades an older table; existing rows stay unchanged. A reader opens an older table without an
upgrade, and ignores unknown columns of a newer table.

A step that adds columns must first add nullable columns in one commit, and then set the property in a last commit. The
first such step must also make DuckDB combine old and new files by column name (`query/engine.py`)."""

from __future__ import annotations

import logging
from typing import NamedTuple

from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tailrace.errors import StoreError
from tailrace.rows.schema import COLUMNS
from tailrace.store.durable import NO_HOOKS

SCHEMA_VERSION = 1

VERSION_PROPERTY = "tailrace.schema"

DESCRIPTION = (
    "Events of execution traces, collected by Tailrace, and what is known to be missing of them (kind gap)."
    " A row of kind begin is superseded by a row of kind span with the same source, session and offset."
)
"""The description of the table in its metadata, for users of other engines."""

SCHEMA = Schema(
    [
        Field(c.name, PrimitiveType(c.type), nullable=c.nullable, metadata={"comment": c.meaning})
        for c in COLUMNS
    ]
)

logger = logging.getLogger(__name__)


class SchemaStep(NamedTuple):
    """An upgrade of the table from the preceding schema version to `version`, and its description for users."""

    version: int
    news: str


STEPS: tuple[SchemaStep, ...] = ()
"""The upgrade steps in order: one for each schema version from 2 to `SCHEMA_VERSION`."""


def version_of(table: DeltaTable) -> int:
    """Return the schema version of a table. Raise StoreError if the table was not made by Tailrace."""
    return parse_version(table.metadata().configuration.get(VERSION_PROPERTY), table.table_uri)


def parse_version(stated: str | None, root: str) -> int:
    """Return the schema version that the table property of the table `root` states. Raise StoreError if it states none."""
    if stated is None or not stated.isdecimal() or int(stated) < 1:
        raise StoreError(f"{root}: is a Delta table, but not one of Tailrace's")
    return int(stated)


def refuse_newer(version: int, root: str) -> None:
    """Raise StoreError for a schema version newer than `SCHEMA_VERSION`."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{root}: was written by a newer Tailrace (schema {version}; this one knows"
            f" {SCHEMA_VERSION}): use that one"
        )


def check_writable(table: DeltaTable) -> None:
    """Raise StoreError if a newer version of Tailrace or another program has made the table."""
    version = version_of(table)
    refuse_newer(version, table.table_uri)
    partitions = table.metadata().partition_columns
    if partitions != ["day"] or _shape(table.schema()) != _shape(SCHEMA):
        raise _other_columns(table, version)


def _shape(columns: Schema) -> list[tuple[str, object, bool]]:
    """Return the name, the type and the nullability of each column. Comments of columns may differ between versions."""
    return [(field.name, field.type, field.nullable) for field in columns.fields]


def check_readable(table: DeltaTable) -> None:
    """Raise StoreError if this version of Tailrace cannot read the table's columns. Warn if the schema is newer."""
    version = version_of(table)
    ours = {field.name: field for field in SCHEMA.fields}
    theirs = {field.name: field for field in table.schema().fields}
    missing = ours.keys() - theirs.keys()
    if missing and version >= SCHEMA_VERSION:
        raise _other_columns(table, version)
    if any(ours[name].type != theirs[name].type for name in ours.keys() & theirs.keys()):
        raise _other_columns(table, version)
    if version > SCHEMA_VERSION:
        logger.warning(
            "%s: was written by a newer Tailrace (schema %d; this one knows %d):"
            " what is new in it is not shown, and sums may leave it out",
            table.table_uri, version, SCHEMA_VERSION,
        )  # fmt: skip


def next_step(table: DeltaTable) -> SchemaStep | None:
    """Return the next upgrade step of a table, or None if its schema has the current version."""
    version = version_of(table)
    return next((step for step in STEPS if step.version > version), None)


def take(step: SchemaStep, table: DeltaTable) -> None:
    """Apply an upgrade step in one commit. Raise the Delta library's exceptions; the commit may have succeeded then."""
    table.alter.set_table_properties(
        {VERSION_PROPERTY: str(step.version)},
        raise_if_not_exists=False,  # accept a property that Delta does not define
        post_commithook_properties=NO_HOOKS,
    )


def _other_columns(table: DeltaTable, version: int) -> StoreError:
    """Return the error for a table whose columns match no released version of Tailrace."""
    theirs = {field.name: field.type for field in table.schema().fields}
    ours = {field.name: field.type for field in SCHEMA.fields}
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (
            ("lacks", sorted(ours.keys() - theirs.keys())),
            ("has besides", sorted(theirs.keys() - ours.keys())),
            (
                "has with another type",
                sorted(n for n in ours.keys() & theirs if ours[n] != theirs[n]),
            ),
        )
        if names
    ]
    return StoreError(
        f"{table.table_uri}: says schema {version} but {'; '.join(parts) or 'has its columns otherwise'}."
        " A version of Tailrace before the first release made it, or another program changed it: keep it for"
        " that version, and give this one another store"
    )
