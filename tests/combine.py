"""Combine the measurements of several processes. Leave out files of processes that were killed while they wrote.

    python -m tests.combine

A file that cannot be read is left out, named and deleted: `coverage report`, which also combines files, would find it
again. If no file can be read, nothing was measured, and this fails.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from coverage import Coverage, CoverageData
from coverage.data import combinable_files
from coverage.exceptions import CoverageException

NAME = ".coverage"


def combine(directory: Path) -> bool:
    """Combine the files in a directory into one, and print which were left out. Return whether there was any file."""
    combined = 0
    for file in map(Path, combinable_files(str(directory / NAME))):
        if error := damage(file):
            sys.stdout.write(
                f"left out, as its process was killed while it wrote: {file.name} ({error})\n"
            )
            file.unlink()
            Path(f"{file}-journal").unlink(missing_ok=True)
        else:
            combined += 1
    if not combined:
        sys.stdout.write("nothing was measured: no process has left a file that can be read\n")
        return False
    Coverage(data_file=str(directory / NAME)).combine([str(directory)], strict=True)
    sys.stdout.write(f"combined what {combined} processes have measured\n")
    return True


def damage(file: Path) -> str:
    """Return what is wrong with a file, or an empty text."""
    try:
        CoverageData(str(file), read_only=True).read()
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        connection.close()
    except (CoverageException, sqlite3.Error) as error:
        return str(error).splitlines()[0]
    return "" if found == "ok" else str(found)


if __name__ == "__main__":
    sys.exit(not combine(Path.cwd()))
