"""Write and read sidecars: sums of the spans of one data file, in two files beside the table.

The file with `cells` in its name has the sums of short spans for several bucket widths, and `longs` has each long
span. Both are in the store's directory `rollups/vVERSION`, under a hash of the data file's path. If the table is
at a URL, or the store is not writable, they are in the user's cache directory. Data files never change, so a
sidecar never becomes stale. It may be deleted at any time."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow import parquet

from tailrace.clock import SystemClock
from tailrace.config.load import user_directory
from tailrace.filesystem import is_local
from tailrace.rollups.events import LaneExtent
from tailrace.rollups.pieces import NONE, Ints, Longs, Truths, coded, numbers
from tailrace.store.layout import table_root

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_WORDS = ["label", "member", "kind"]
_NULLS = {"depth": NONE}


class SidecarPage(NamedTuple):
    """The rows of some lanes on one page of a sidecar file. `lanes` states for each lane of the sidecar whether the page
    has its rows. `columns` has no entry for a column that is entirely null. `texts` has, for each text column, the code
    of each row and the dictionary."""

    lanes: Truths
    columns: dict[str, Any]
    texts: dict[str, tuple[Ints, pa.Array]]
    bytes: int


class PagedFile:
    """One of the two files of a sidecar, read page by page. A page is a row group. The rows are sorted by two
    columns; `outer` and `inner` have the least and the greatest value of these columns in each page."""

    def __init__(self, path: str, outer: str, inner: str) -> None:
        """Open the file and read its footer. Raise OSError or pyarrow's errors if it cannot be read."""
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

    def read(self, number: int, lanes: Truths) -> SidecarPage:
        """Read the rows of the chosen lanes on the page with this number. Raise OSError or pyarrow's errors if the page
        cannot be read."""
        words = [name for name in _WORDS if name in self.footer.schema.names]
        with parquet.ParquetFile(self.path, metadata=self.footer, read_dictionary=words) as file:
            table = file.read_row_group(number)
        chosen = np.flatnonzero(lanes[numbers(table.column("lane"))])
        if len(chosen) < table.num_rows:
            table = table.take(chosen)
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
        return SidecarPage(lanes, columns, texts, size + lanes.nbytes)


class LatestUsed(Generic[K, V]):
    """A cache of the values that were used last, with at most `most` bytes in total. `size` returns the number of bytes
    of a value. Threads may share the cache."""

    def __init__(self, most: int, size: Callable[[V], int]) -> None:
        self._most = most
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._forget(key)
            self._values[key] = value
            self._bytes += self._size(value)
            while self._bytes > self._most:
                self._bytes -= self._size(self._values.popitem(last=False)[1])

    def forget(self, key: K) -> None:
        with self._lock:
            self._forget(key)

    def _forget(self, key: K) -> None:
        if (value := self._values.pop(key, None)) is not None:
            self._bytes -= self._size(value)


VERSION = 2
"""Version of the sidecar format, part of the directory's name. Each change of a sidecar's content must increment it."""

DRAFT_NS = 3600 * 10**9
"""Age (ns) from which an unfinished sidecar file counts as left by a killed process. Writing one takes seconds."""

LEAST_ROWS = 2_500
"""Minimum number of rows of a data file that gets a sidecar. The sixty smaller files that may wait for a merge have so
few rows that all of them can be read."""

_HEADER = b"tailrace.rollup"
_ROW_GROUP = 32_768
_CELLS, _LONGS = ".cells.parquet", ".longs.parquet"
_OF_THE_PROCESS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class SidecarLane(msgspec.Struct, frozen=True, array_like=True):
    """A lane (a stream or substream) of a data file. A tick counts as 2 ** `scale` ns where durations are compared
    with bucket widths."""

    scale: int
    extent: LaneExtent


class RollupHeader(msgspec.Struct, frozen=True):
    """The header of a sidecar. `path` and `rows` are those of its data file. `levels` has the base-2 logarithms of
    the bucket widths, and `sizes` the number of sums for each width."""

    path: str
    rows: int
    levels: list[int]
    sizes: list[int]
    lanes: list[SidecarLane]


class RollupProgress(msgspec.Struct, frozen=True):
    """How much of a table has sidecars: the number of rows in the large data files that have one (`rows`), and in all
    large data files whose sidecar can be written (`of`)."""

    rows: int = 0
    of: int = 0


class Sidecar(msgspec.Struct, frozen=True):
    header: RollupHeader
    cells: str
    longs: str


class Sidecars:
    """The sidecars of a table's data files, in the store's directory and in the user's cache directory."""

    def __init__(self, store: str, environ: Mapping[str, str] = os.environ) -> None:
        root = table_root(store)
        version, name = f"v{VERSION}", hashlib.sha256(root.encode()).hexdigest()[:16]
        own = [Path(root).absolute().parent / "rollups" / version] if is_local(root) else []
        cache = user_directory(environ, "XDG_CACHE_HOME", "~/.cache")
        shared = [] if cache is None else [cache / "rollups" / name / version]
        self.directories = [*own, *shared]

    def find(self, path: str) -> Sidecar | None:
        """Return the sidecar of a data file, or None if it does not exist or cannot be read now. Remove it if it is
        damaged or belongs to another file."""
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
            remove(cells, longs)
        return None

    def refuse(self, sidecar: Sidecar) -> bool:
        """Read a sidecar completely, and remove it if it is damaged. Return whether it is damaged or gone. A sidecar
        that cannot be read for lack of permissions, descriptors or memory does not count as damaged."""
        try:
            for path in (sidecar.cells, sidecar.longs):
                for _ in parquet.ParquetFile(path).iter_batches():
                    pass
        except (OSError, pa.ArrowException) as error:
            if _passing(error):
                return False
            remove(Path(sidecar.cells), Path(sidecar.longs))
            return True
        return False

    def write(
        self, header: RollupHeader, cells: pa.RecordBatchReader, longs: pa.RecordBatchReader
    ) -> None:
        """Write a sidecar to the first writable directory. Raise OSError if no directory is writable."""
        directory = self._writable()
        name = _name(header.path)
        _write(directory / (name + _LONGS), longs, None)
        _write(directory / (name + _CELLS), cells, header)

    def sweep(self, paths: Iterable[str]) -> None:
        """Remove the sidecars of all data files that are not in `paths`, and unfinished files of killed processes."""
        kept = {_name(path) for path in paths}
        for directory in self.directories:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                for file in directory.iterdir():
                    if file.name.split(".", 1)[0] not in kept or _is_left(file):
                        remove(file)

    def _writable(self) -> Path:
        if not self.directories:
            raise OSError(errno.ENOENT, "no directory to keep it in; set HOME or XDG_CACHE_HOME")
        *others, last = self.directories
        for directory in others:
            with suppress(OSError):
                directory.mkdir(parents=True, exist_ok=True)
                if os.access(directory, os.W_OK):
                    return directory
        last.mkdir(parents=True, exist_ok=True)
        return last


def remove(*files: Path) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()


def _name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def _is_left(file: Path) -> bool:
    """Return whether a file is an unfinished sidecar file of a killed process."""
    with suppress(OSError):
        age = SystemClock().wall_ns() - file.stat().st_mtime_ns
        return file.suffix != ".parquet" and age > DRAFT_NS
    return False


def _passing(error: Exception) -> bool:
    """Return whether a failed read has a cause that may pass: a lack of permissions, descriptors or memory."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in _OF_THE_PROCESS


def _write(path: Path, rows: pa.RecordBatchReader, header: RollupHeader | None) -> None:
    """Write rows to a temporary file, and rename it to `path` when it is complete."""
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
