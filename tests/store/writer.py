"""A program that commits to a store until it is killed, and says what is acknowledged.

    writer.py STORE COLLECTOR [--rows N] [--checkpoint-every N] [--never-sync]

Commit number n stores the rows with seq n*ROWS up to (n+1)*ROWS and position n+1, and goes on where
the table ends. One line `N` on standard output once the commit with position N is acknowledged.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.rows.batch import Batch
from tailrace.rows.schema import ROW
from tailrace.store.table import Table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("collector")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--checkpoint-every", type=int, default=7)
    parser.add_argument("--never-sync", action="store_true")
    given = parser.parse_args()
    if given.never_sync:
        os.fsync = lambda fd: None  # The library itself never syncs.
    table = Table.open(
        given.store,
        options={},
        collector=given.collector,
        config=StoreConfig(),
        clock=SystemClock(),
        refills=lambda position: True,
    )
    for number in itertools.count(table.position() or 0):
        commit(table, numbered(given.collector, number * given.rows, given.rows), number + 1)
        sys.stdout.write(f"{number + 1}\n")
        sys.stdout.flush()
        if number % given.checkpoint_every == 0:
            table.checkpoint(keep=5)


def commit(table, batch, position):
    """Store a batch at once."""
    table.land(table.prepare(batch), position)


def numbered(stream, first, rows):
    """Return rows with consecutive `seq`."""
    batch = Batch()
    columns = dict.fromkeys(ROW, [None] * rows)
    columns |= {
        "stream": [stream] * rows,
        "seq": list(range(first, first + rows)),
        "kind": ["instant"] * rows,
        "attributes": [f'{{"row":{i}}}' for i in range(first, first + rows)],
        "offset": [64 * i for i in range(first, first + rows)],
    }
    batch.day = 20_000
    batch.extend("test", "heph", "session", [list(columns[name]) for name in ROW], 64 * rows)
    return batch


if __name__ == "__main__":
    main()
