"""Write ready Arrow batches to durable rows. The rows are those that the collector has written before.

Each batch becomes a Parquet file, which is synced, and one commit of a Delta table, which is synced, too. Columns with
few values are dictionary-encoded from the start, and stay so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction
from pyarrow import parquet

BATCH = 500_000
_FEW = ("source", "format", "session", "stream", "kind", "name", "category")
_DAY = "day"


def write(events: str, home: str) -> Callable[[], int]:
    """Read the table `events`. Return a function that writes its rows to a new table in `home`."""
    schema = DeltaTable(events).schema()
    source = DeltaTable(events).to_pyarrow_dataset().to_table()
    days = source.column(_DAY).unique().to_pylist() if _DAY in source.column_names else [None]
    rows = _coded(source.drop_columns([_DAY]) if days != [None] else source).combine_chunks()
    shutil.rmtree(home, ignore_errors=True)
    table = DeltaTable.create(home, schema, partition_by=[_DAY] if days != [None] else None)

    def work() -> int:
        for number, at in enumerate(range(0, rows.num_rows, BATCH)):
            batch = rows.slice(at, BATCH)
            name = f"part-{number}.parquet"
            _store(batch, Path(home) / name)
            values = {} if days == [None] else {_DAY: str(days[0])}
            added = AddAction(name, Path(home, name).stat().st_size, values, 0, True, json.dumps({"numRecords": batch.num_rows}))  # noqa: FBT003 # fmt: skip
            table.create_write_transaction([added], "append", schema, partition_by=list(values) or None, commit_properties=CommitProperties())  # fmt: skip
            _sync(Path(home) / "_delta_log" / f"{number + 1:020}.json")
            _sync(Path(home) / "_delta_log")
        return int(rows.num_rows)

    return work


def _coded(table: pa.Table) -> pa.Table:
    for name in set(_FEW) & set(table.column_names):
        index = table.column_names.index(name)
        coded = table.column(name).combine_chunks().dictionary_encode()
        table = table.set_column(index, name, coded)
    return table


def _store(batch: pa.Table, path: Path) -> None:
    numbers = [field.name for field in batch.schema if pa.types.is_integer(field.type)]
    parquet.write_table(
        batch, path, compression="zstd", compression_level=1, store_schema=False,
        use_dictionary=[name for name in _FEW if name in batch.column_names],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"), write_statistics=numbers,
    )  # fmt: skip
    _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
