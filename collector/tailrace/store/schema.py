"""The table's columns, which version of them a table has, and how an older one becomes today's.

The version is the table's property `tailrace.schema`. It is part of the metadata that every engine
reads and passes over, and it changes in one commit, wherever the table is. It says more than what
the columns are: a reader of a version understands every row that its writers wrote, so it rises also
when rows come to mean what an older reader would get wrong.

A collector brings an older table to today's version when it starts, step by step; rows that are there
stay as they are, and the views read those of all versions. Whoever only reads takes an older table as
it is, what it lacks being NULL, and a newer one as far as it goes. A step that adds columns adds them
first, nullable and in one commit, and sets the property last: what lies between is a table of the
older version that the next start goes on with. There is no step yet: the first one that adds columns
must also let DuckDB unite the files of before and after by their columns' names (`query/engine.py`).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from arro3.core import DataType, Field, Schema
from deltalake import DeltaTable, Schema as DeltaSchema

from tailrace.errors import StoreError
from tailrace.model.columns import COLUMNS
from tailrace.store.durable import NO_HOOKS

SCHEMA_VERSION = 1

VERSION_PROPERTY = "tailrace.schema"

TYPES = {"date": DataType.date32(), "string": DataType.string(), "long": DataType.int64()}

SCHEMA = Schema([Field(c.name, TYPES[c.type], nullable=c.nullable) for c in COLUMNS])

logger = logging.getLogger(__name__)


class Step(NamedTuple):
    """From the version before to `version`; `news` is what rows say since, for the log."""

    version: int
    news: str


STEPS: tuple[Step, ...] = ()
"""One a version, in order, from version 2 to today's."""


def version_of(table: DeltaTable) -> int:
    """Raise StoreError for a table that is not one of ours."""
    return parse_version(table.metadata().configuration.get(VERSION_PROPERTY), table.table_uri)


def parse_version(stated: str | None, root: str) -> int:
    """The property's value. Raise StoreError unless it is a version."""
    if stated is None or not stated.isdecimal() or int(stated) < 1:
        raise StoreError(f"{root}: is a Delta table, but not one of Tailrace's")
    return int(stated)


def refuse_newer(version: int, root: str) -> None:
    """Raise StoreError for a version that we cannot write."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{root}: was written by a newer Tailrace (schema {version}; this one knows"
            f" {SCHEMA_VERSION}): use that one"
        )


def check_writable(table: DeltaTable) -> None:
    """Raise StoreError unless this is a table that this version, or one before it, has written."""
    version = version_of(table)
    refuse_newer(version, table.table_uri)
    partitions = table.metadata().partition_columns
    if partitions != ["day"] or table.schema() != DeltaSchema.from_arrow(SCHEMA):
        raise _other_columns(table, version)


def check_readable(table: DeltaTable) -> None:
    """Raise StoreError unless our columns can be read from the table; warn of a newer one."""
    version = version_of(table)
    ours = {field.name: field for field in DeltaSchema.from_arrow(SCHEMA).fields}
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


def next_step(table: DeltaTable) -> Step | None:
    """What brings the table nearer to today's version; None when it has it."""
    version = version_of(table)
    return next((step for step in STEPS if step.version > version), None)


def take(step: Step, table: DeltaTable) -> None:
    """Do it, in one commit. Raises what the library does: it may have landed all the same."""
    table.alter.set_table_properties(
        {VERSION_PROPERTY: str(step.version)},
        raise_if_not_exists=False,  # the library knows only Delta's own properties
        post_commithook_properties=NO_HOOKS,
    )


def _other_columns(table: DeltaTable, version: int) -> StoreError:
    columns = ", ".join(f"{field.name} {field.type}" for field in table.schema().fields)
    return StoreError(f"{table.table_uri}: says schema {version} but has other columns: {columns}")
