"""Examine a data file of the table: is it what was written?

A file in the journal is compared by its checksum. Any other file is read in full: that does not notice
damage that changes values and keeps the encoding valid, so such a file is not *verified*.
"""

from __future__ import annotations

import mmap
import stat
import tempfile
from pathlib import Path

import msgspec
from deltalake import DeltaTable

from tailrace.errors import StoreError
from tailrace.store.journal import Checksum, checksum
from tailrace.store.log import Action, Add, DeltaLog, is_parquet
from tailrace.store.refusal import line, os_error
from tailrace.store.schema import SCHEMA
from tailrace.store.snapshot import DataFile

_ZEROS = bytes(1024)


def place_damage(path: Path, size: int) -> str | None:
    """Return what is wrong with a file, without reading its content; None if nothing is."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "is not a file"
    if found.st_size != size:
        return f"has {found.st_size} of {size} bytes"
    return None


def damage(root: Path, file: DataFile, noted: Checksum | None) -> str | None:
    """Return what is wrong with a file of the table in `root`; None if nothing is.

    `noted` is its checksum in the journal. Raise StoreError when the system refuses to read it; raise
    OSError."""
    path = root / file.path
    if reason := place_damage(path, file.size):
        return reason
    if noted is not None:
        same = checksum(path) == noted
        return None if same else "has another checksum than when it was written"
    if not is_parquet(path):
        return "has no Parquet footer"
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(_ZEROS) >= 0:  # zstd never writes so many
            return "has a hole of zeros"
    return _undecodable(root, file)


def _undecodable(root: Path, file: DataFile) -> str | None:
    """Read all rows of a file, as the only file of a scratch table; return what is wrong with them."""
    add = Add(file.path, file.size, {"day": Path(file.path).parent.name.removeprefix("day=")})
    with tempfile.TemporaryDirectory(prefix="tailrace-") as scratch:
        table = DeltaTable.create(scratch, SCHEMA, partition_by=["day"])
        copy = DeltaLog(Path(scratch))
        link = copy.data_path(add)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to((root / file.path).resolve())
        copy.path(1).write_bytes(msgspec.json.encode(Action(add=add)))
        table.update_incremental()
        try:
            rows = sum(batch.num_rows for batch in table.scan())
        except Exception as error:  # the library has no type for damaged data
            if os_error(error) is not None:
                raise StoreError(f"{root / file.path}: cannot be read: {line(error)}") from error
            return f"does not decode: {line(error)}"
    return None if file.rows in (0, rows) else f"has {rows} of {file.rows} rows"
