"""Write and read sidecars: two files beside the table for each data file, named after it.

They are in `STORE/rollups/v1`, under the hash of the data file's path in the table. The one with `cells` in its name
has the sums, and in its metadata the header; the one with `longs` has the long spans. Data files never change, so a
sidecar is right as long as it is there, and may be deleted at any time. A table behind a URL, and one in whose
directory nothing may be written, has its sidecars in the user's cache.

`PagedFile` reads such a file page by page. A page is a row group of the file, as columns in memory. The footer of the
file gives the levels and edges, or the lengths and times, of each page, so that a window reads few of them. Pages of
coarse levels serve any window, so `KeptPages` keeps them.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow import parquet

from tailrace.clock import SystemClock
from tailrace.rollups.events import LaneExtent
from tailrace.rollups.pieces import NONE, Ints, Longs, coded, numbers
from tailrace.store.layout import is_local, table_root

MEMORY = 48 * 2**20
"""Bytes of pages that are kept."""

_WORDS = ["label", "member", "kind"]
_NULLS = {"depth": NONE}


class SidecarPage(NamedTuple):
    """Rows of a sidecar. A column without any value is not there; `texts` are codes, with the dictionary of each."""

    rows: int
    columns: dict[str, Any]
    texts: dict[str, tuple[Ints, pa.Array]]
    bytes: int


class PagedFile:
    """A file of a sidecar: bounds of two columns in each of its pages, in which the pages are ordered."""

    def __init__(self, path: str, outer: str, inner: str) -> None:
        """Raise OSError and pyarrow's errors."""
        self.path = path
        file = parquet.ParquetFile(path)
        self.footer = file.metadata
        places = {name: number for number, name in enumerate(file.schema_arrow.names)}
        self.outer = self._bounds(places[outer])
        self.inner = self._bounds(places[inner])
        self.rows = np.array(
            [self.footer.row_group(each).num_rows for each in range(self.footer.num_row_groups)], np.int64
        )  # fmt: skip

    def _bounds(self, column: int) -> tuple[Longs, Longs]:
        of_pages = (self.footer.row_group(each).column(column) for each in range(self.footer.num_row_groups))  # fmt: skip
        found = [each.statistics for each in of_pages]
        return np.array([each.min for each in found], np.int64), np.array([each.max for each in found], np.int64)  # fmt: skip

    def read(self, number: int) -> SidecarPage:
        """Read a page. Raise OSError and pyarrow's errors."""
        words = [name for name in _WORDS if name in self.footer.schema.names]
        with parquet.ParquetFile(self.path, metadata=self.footer, read_dictionary=words) as file:
            table = file.read_row_group(number, use_threads=False)
        columns, texts = {}, {}
        for name in table.column_names:
            column = table.column(name)
            if column.null_count == table.num_rows:
                continue
            if name in words:
                texts[name] = coded(column)
            else:
                columns[name] = numbers(column, _NULLS.get(name, 0))
        size = sum(each.nbytes for each in columns.values())
        size += sum(codes.nbytes + dictionary.nbytes for codes, dictionary in texts.values())
        return SidecarPage(table.num_rows, columns, texts, size)


class KeptPages:
    """The pages that were read last, up to some memory."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._kept: OrderedDict[tuple[str, int], SidecarPage] = OrderedDict()
        self._bytes = 0

    def of(self, file: PagedFile, number: int) -> SidecarPage:
        """Return a page, from memory or from disk. Raise OSError and pyarrow's errors."""
        key = file.path, number
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        page = file.read(number)
        self._kept[key] = page
        self._bytes += page.bytes
        while self._bytes > self._memory and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].bytes
        return page

    def forget(self, path: str) -> None:
        """Forget the pages of a file."""
        for key in [key for key in self._kept if key[0] == path]:
            self._bytes -= self._kept.pop(key).bytes


VERSION = 2
"""Stands in the directory's name. It rises whenever a sidecar comes to hold something else."""

DRAFT_NS = 3600 * 10**9
"""A draft of this age is of a process that was killed: to write a sidecar takes seconds."""

LEAST_ROWS = 20_000
"""A data file with fewer rows is as quickly read as its sidecar."""

_HEADER = b"tailrace.rollup"
_ROW_GROUP = 32_768
_CELLS, _LONGS = ".cells.parquet", ".longs.parquet"
_OF_THE_PROCESS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class SidecarLane(msgspec.Struct, frozen=True, array_like=True):
    """A lane of the data file, and how long its ticks count: 2 ** `scale` ns."""

    scale: int
    extent: LaneExtent


class RollupHeader(msgspec.Struct, frozen=True):
    """Names the data file by its path in the table, with its number of rows; and the levels, how many sums
    each has, and the lanes."""

    path: str
    rows: int
    levels: list[int]
    sizes: list[int]
    lanes: list[SidecarLane]


class Sidecar(msgspec.Struct, frozen=True):
    header: RollupHeader
    cells: str
    longs: str


class Sidecars:
    """The directories of a table's sidecars: the one in the store, and the one in the user's cache."""

    def __init__(self, store: str, environ: Mapping[str, str] = os.environ) -> None:
        root = table_root(store)
        version, name = f"v{VERSION}", hashlib.sha256(root.encode()).hexdigest()[:16]
        own = [Path(root).absolute().parent / "rollups" / version] if is_local(root) else []
        self.directories = [*own, *(cache / name / version for cache in cache_paths(environ))]
        self.refused = 0
        """How many sidecars were there and could not be used."""

    def find(self, path: str) -> Sidecar | None:
        """Return the sidecar of a data file, None if it cannot be read now. Remove one that is damaged, or of something
        else."""
        name = _name(path)
        for directory in self.directories:
            cells, longs = directory / (name + _CELLS), directory / (name + _LONGS)
            if not cells.exists():
                continue
            try:
                header = msgspec.json.decode(
                    parquet.read_metadata(cells).metadata[_HEADER], type=RollupHeader
                )
                parquet.read_metadata(longs)
            except (OSError, pa.ArrowException, KeyError, TypeError, msgspec.MsgspecError) as error:
                if _passing(error):
                    return None
                header = None
            if header is not None and header.path == path:
                return Sidecar(header, str(cells), str(longs))
            self.refused += 1
            remove(cells, longs)
        return None

    def refuse(self, sidecar: Sidecar) -> bool:
        """Read a sidecar to its end. Remove it if it is damaged, and return whether it is, or is gone."""
        try:
            for path in (sidecar.cells, sidecar.longs):
                for _ in parquet.ParquetFile(path).iter_batches():
                    pass
        except (OSError, pa.ArrowException) as error:
            if _passing(error):
                return False
            self.refused += 1
            remove(Path(sidecar.cells), Path(sidecar.longs))
            return True
        return False

    def write(
        self, header: RollupHeader, cells: pa.RecordBatchReader, longs: pa.RecordBatchReader
    ) -> None:
        """Write a sidecar to the first directory that takes it. Raise OSError if none does."""
        directory = self._writable()
        name = _name(header.path)
        _write(directory / (name + _LONGS), longs, None)
        _write(directory / (name + _CELLS), cells, header)

    def sweep(self, paths: Iterable[str]) -> int:
        """Remove the sidecars of all but these data files, and old drafts, which a kill left; return how many sidecars."""
        kept = {_name(path) for path in paths}
        removed = 0
        for directory in self.directories:
            for file in _files(directory):
                if file.name.split(".", 1)[0] not in kept or _is_left(file):
                    remove(file)
                    removed += file.name.endswith(_CELLS)
        return removed

    def _writable(self) -> Path:
        if not self.directories:
            raise OSError(errno.ENOENT, "no directory to keep it in; set HOME or XDG_CACHE_HOME")
        for last, directory in enumerate(self.directories, start=1):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError:
                if last == len(self.directories):
                    raise
                continue
            if os.access(directory, os.W_OK) or last == len(self.directories):
                return directory
        raise AssertionError("there is a last directory")


def cache_paths(environ: Mapping[str, str]) -> list[Path]:
    """Return the user's cache directory for roll-ups (XDG Base Directory Specification), or nothing for a user
    without a home."""
    home = Path(environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():  # the specification requires an absolute path
        try:
            home = Path("~/.cache").expanduser()
        except RuntimeError:  # there is no home directory
            return []
    return [home / "tailrace" / "rollups"]


def remove(*files: Path) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()


def _name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def _is_left(file: Path) -> bool:
    """Return whether a file is a draft that nobody writes any more."""
    with suppress(OSError):
        age = SystemClock().wall_ns() - file.stat().st_mtime_ns
        return file.suffix != ".parquet" and age > DRAFT_NS
    return False


def _passing(error: Exception) -> bool:
    """Return whether the cause of an error is this process, not the file."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in _OF_THE_PROCESS


def _files(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        yield from directory.iterdir()


def _write(path: Path, rows: pa.RecordBatchReader, header: RollupHeader | None) -> None:
    """Write rows to a file, which has its name once it is whole."""
    draft = path.with_name(f"{path.name}.{uuid4().hex}")
    schema = rows.schema
    words = [field.name for field in schema if field.type == pa.string()]
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    try:
        with parquet.ParquetWriter(
            draft, schema, compression="zstd", compression_level=1, use_dictionary=words,
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"), write_statistics=numbers,
            store_schema=False,
        ) as writer:  # fmt: skip
            if header is not None:
                writer.add_key_value_metadata({_HEADER: msgspec.json.encode(header)})
            for batch in rows:
                writer.write_table(
                    pa.Table.from_batches([batch], schema), row_group_size=_ROW_GROUP
                )
        draft.replace(path)
    except BaseException:
        remove(draft)
        raise
