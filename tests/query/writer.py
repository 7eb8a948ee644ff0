"""Write a table in a process of its own: `writer.py STORE COMMITS`.

Each commit has 100 rows, whose `seq` continue from 0. After each seventh commit, merge all files and delete the old
files. The time from one deletion to the next grows, so that even the slowest reader gets an answer."""

from __future__ import annotations

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

spec = spec_from_file_location("tables", Path(__file__).with_name("tables.py"))
tables = module_from_spec(spec)
spec.loader.exec_module(tables)

ROWS = 100
PAUSE_SECONDS = 0.02


def main(store, commits):
    for number in range(commits):
        first = ROWS * number
        rows = [tables.row(seq=seq, offset=90 * seq) for seq in range(first, first + ROWS)]
        tables.commit(store, rows)
        if number % 7 == 6:
            tables.compact(store)
            tables.vacuum(store)
            time.sleep(PAUSE_SECONDS * (number // 7))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
