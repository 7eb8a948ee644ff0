"""Make tables from given rows, with the library that the collector uses to write tables."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tailrace.config.schema import StoreConfig
from tailrace.query.engine import Engine
from tailrace.rows.schema import COLUMNS, OWN_ROWS
from tailrace.store.durable import NO_HOOKS
from tailrace.store.layout import create, table_root

DAY = date(2026, 11, 21)
SECOND = 10**9

_TYPES = {"date": pa.date32(), "string": pa.string(), "long": pa.int64(),
          "timestamp": pa.timestamp("us", "UTC")}  # fmt: skip
SCHEMA = pa.schema([pa.field(c.name, _TYPES[c.type], c.nullable) for c in COLUMNS])


def row(kind="span", **values):
    """Return a row of the table. `attributes` may be a dict. A column that is not given is null or has a default."""
    if isinstance(values.get("attributes"), dict):
        values["attributes"] = json.dumps(values["attributes"])
    given = {"day": DAY, "source": "sim", "format": "heph", "session": "a", "stream": "1"}
    return dict.fromkeys(SCHEMA.names) | given | {"kind": kind, "offset": 0} | values


def session(name, *, offset=0, **values):
    """Return a session row. The values are its attributes, except those with the name of a column. A row that the
    collector writes has a time."""
    columns = {key: values.pop(key) for key in ("source", "session", "format") if key in values}
    if name in OWN_ROWS:
        stated = (values.get(key) for key in ("closed_at", "opened", "since"))
        columns["time"] = next((t for t in stated if isinstance(t, int) and t < 2**63), 1)
    return row("session", stream="", name=name, offset=offset, attributes=values, **columns)


def clocked(*, epoch=None, ticks_per_second=SECOND, **values):
    facts = {"clock": "clk", "ticks_per_second": ticks_per_second}
    return session("header", **facts, **({} if epoch is None else {"epoch": epoch}), **values)


def gap(count, seq=None, reason="network", **values):
    return finding("gap", count, seq, reason, **values)


def heal(count, seq=None, reason="network", **values):
    return finding("heal", count, seq, reason, **values)


def finding(kind, count, seq, reason, **values):
    about = {"missing": count or None, "attributes": {"count": count}} | values
    return row(kind, name=reason, seq=seq, **about)


def make(store, *commits, options=None):
    """Create a table, and write one version for each of the commits, which are lists of rows. Return the store's path."""
    create(table_root(str(store)), options or {}, StoreConfig())
    for rows in commits:
        commit(store, rows, options=options)
    return str(store)


def commit(store, rows, *, options=None):
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA]
    write_deltalake(
        table_root(str(store)),
        pa.Table.from_arrays(columns, schema=SCHEMA),
        mode="append",
        storage_options=options,
        post_commithook_properties=NO_HOOKS,
    )


def commit_many(store, count, *, different=None, **values):
    """Write a version with `count` rows. They differ in `seq` (0, 1, 2 ...), and in the columns in `different`, which
    has a value for each row.
    """
    same = row(**values)
    columns = {f.name: pa.repeat(pa.scalar(same[f.name], f.type), count) for f in SCHEMA}
    for name, each in ({"seq": range(count)} | (different or {})).items():
        columns[name] = pa.array(each, SCHEMA.field(name).type)
    write_deltalake(
        table_root(str(store)),
        pa.table(columns, schema=SCHEMA),
        mode="append",
        post_commithook_properties=NO_HOOKS,
    )


def compact(store, *, options=None):
    """Merge all files of each day into one file."""
    table = DeltaTable(table_root(str(store)), storage_options=options)
    table.optimize.compact(post_commithook_properties=NO_HOOKS)


def vacuum(store):
    """Delete the files that do not belong to the newest version of the table."""
    DeltaTable(table_root(str(store))).vacuum(
        retention_hours=0,
        dry_run=False,
        enforce_retention_duration=False,
        post_commithook_properties=NO_HOOKS,
    )


def shorten_log(store):
    """Replace the older versions in the table's log by a checkpoint, as upkeep does after some time."""
    DeltaTable(table_root(str(store))).create_checkpoint()
    for path in sorted((store / "events" / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()


def ask(store, sql, **options):
    """Return the rows of an SQL statement, as dicts."""
    engine = Engine(str(store), **options)
    try:
        return dicts(engine.ask(sql))
    finally:
        engine.close()


def dicts(answer):
    names = [column.name for column in answer.columns]
    rows = []
    while page := answer.next_page():
        rows += [dict(zip(names, row, strict=True)) for row in page]
    return rows


def rows_in(store, columns=None, **values):
    """Return the rows of a store's table whose columns have these values, as dicts."""
    table = DeltaTable(table_root(str(store)))
    filters = [(name, "=", value) for name, value in values.items()] or None
    return table.to_pyarrow_table(columns=columns, filters=filters).to_pylist()


def later(days):
    return DAY + timedelta(days=days)
