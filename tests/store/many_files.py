"""Measure what it costs to open a table of very many files. The table's log is real; the files that it names do not
exist.

    python -m tests.store.many_files 150000
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from tailrace.config.schema import StoreConfig
from tailrace.store import durable, layout, schema
from tailrace.units import Size

A_COMMIT = 10_000
ROWS = 6_000_000
SIZE = int(Size.parse("128 MiB"))


def add(number):
    first = {"source": "sim", "session": f"{number:016x}", "stream": "1", "seq": 10 * number}
    last = {**first, "stream": "99", "seq": 10 * number + 9}
    times = dict.fromkeys(("start", "end", "time"), 1000 * number)
    stated = {
        "numRecords": ROWS,
        "minValues": first | times,
        "maxValues": last | times,
        "nullCount": {"seq": 3},
    }
    name = f"day=2026-11-25/part-{number:032x}.parquet"
    return AddAction(
        name,
        SIZE,
        {"day": "2026-11-25"},
        1_795_000_000_000,
        data_change=True,
        stats=json.dumps(stated),
    )


def write(root, files):
    layout.create(root, {}, StoreConfig())
    table = DeltaTable(root)
    for first in range(0, files, A_COMMIT):
        adds = [add(number) for number in range(first, min(first + A_COMMIT, files))]
        table.create_write_transaction(
            adds, "append", schema.SCHEMA, ["day"], post_commithook_properties=durable.NO_HOOKS
        )
        table.update_incremental()
    table.create_checkpoint()


def look(root):
    """Open the table as a reader does, in a process of its own."""
    begun, idle = time.process_time(), psutil.Process().memory_info().rss
    table = DeltaTable(root)
    opened = time.process_time()
    files = len(table.file_uris())
    listed = time.process_time()
    checkpoint = sum(path.stat().st_size for path in Path(root, "_delta_log").glob("*.parquet"))
    memory = psutil.Process().memory_info().rss - idle
    sys.stdout.write(
        f"{files:,} files: checkpoint {checkpoint / 1e6:.1f} MB, opened in {opened - begun:.2f} s of CPU,"
        f" listed in {listed - opened:.2f}, {memory / 2**20:.0f} MiB\n"
    )


def main():
    if sys.argv[1] == "look":
        look(sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as directory:
        write(directory, int(sys.argv[1]))
        subprocess.run(
            [sys.executable, "-m", "tests.store.many_files", "look", directory], check=True
        )


if __name__ == "__main__":
    main()
