"""The files of a Delta log on a local disk, read without the library, and the journal, a second record of the table.

`_delta_log` holds one JSON file for each version, `N.json` (N has 20 digits), with one action a line; and
checkpoints, `N.checkpoint*.parquet`, each the sum of versions 0 to N. The library names a file that it is
still writing `NAME#1`. We read only what durability needs: which files a version adds and removes.
Source: Delta transaction log protocol, "Delta Log Entries" and "Actions".

The journal has a copy of each log entry and a checksum of each file. A writer adds a line after a version is synced
and before anything of it is acknowledged. Parquet's page checksums would be the standard place, but the library
writes none, and a Delta log entry is written before its files can be read back.

The journal is the text file `_journal` in the table's directory. A line is the CRC-32 of its rest (8 hexadecimal
digits), a space, and a JSON object with these members:

- `version`, and `entry`, the text of that version's log file, or null;
- `files`, which maps a path below the table's directory to the file's CRC-32 and size;
- `rows`, for files that upkeep made: the number of rows of each source, format, session, stream and kind.

If two lines are about the same thing, the later one holds. A damaged line is passed over, so damage to the
journal costs no more than the content of that line.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import structs
from zlib_ng.zlib_ng import crc32

from tailrace import owned
from tailrace.filesystem import make_way
from tailrace.store.presence import DirectoryLock

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_PARQUET_MAGIC = b"PAR1"


class Add(msgspec.Struct, rename="camel"):
    """A data file; `path` is relative to the table and percent-encoded, `stats` is JSON."""

    path: str
    size: int
    partition_values: dict[str, str | None]
    modification_time: int = 0
    data_change: bool = True
    stats: str | None = None


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


def row_count(file: Add) -> int | None:
    """Return the number of rows that the log states for a file; None where it states none."""
    return msgspec.json.decode(file.stats or b"{}", type=_Stats).num_records


class Remove(msgspec.Struct):
    path: str


class MetaData(msgspec.Struct):
    configuration: dict[str, str]


class CommitInfo(msgspec.Struct, rename="camel"):
    engine_info: str = ""


class Txn(msgspec.Struct, rename="camel"):
    """A transaction of the writer `app_id`."""

    app_id: str


class Action(msgspec.Struct, rename="camel"):
    """One line of a log entry: at most one field is set, none for actions that we do not read."""

    add: Add | None = None
    remove: Remove | None = None
    meta_data: MetaData | None = None
    commit_info: CommitInfo | None = None
    txn: Txn | None = None


class LastCheckpoint(msgspec.Struct):
    version: int


class DeltaLog:
    """The log of the table in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "_delta_log"
        self.last_checkpoint_path = self.directory / "_last_checkpoint"

    def path(self, version: int) -> Path:
        return self.directory / f"{version:020}.json"

    def data_path(self, file: Add) -> Path:
        return self.root / unquote(file.path)

    def versions(self) -> list[int]:
        """Return the versions that have a JSON file, in order."""
        return sorted(self._numbered(_VERSION))

    def checkpoints(self) -> dict[int, list[Path]]:
        """Return the parts of each checkpoint, by version, in order."""
        found = self._numbered(_CHECKPOINT)
        return {version: found[version] for version in sorted(found)}

    def read(self, version: int) -> list[Action]:
        """Return the actions of a version. Raise OSError, or ValueError for a file that is not whole."""
        return decode(self.path(version).read_bytes())

    def last_checkpoint(self) -> LastCheckpoint | None:
        """Return the content of `_last_checkpoint`; None when it is missing or not whole."""
        try:
            return msgspec.json.decode(self.last_checkpoint_path.read_bytes(), type=LastCheckpoint)
        except (OSError, msgspec.DecodeError):
            return None

    def _numbered(self, pattern: re.Pattern[str]) -> dict[int, list[Path]]:
        found: dict[int, list[Path]] = {}
        for path in sorted(self.directory.iterdir()):
            if match := pattern.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return found


def decode(data: bytes) -> list[Action]:
    """Return the actions in a version's bytes. Raise ValueError when the bytes cannot be the whole version.

    delta-rs ends no file with a newline, so a newline at the end means that its file was cut between two
    lines. Other writers do end their files with one.
    """
    lines = data.split(b"\n")
    ended = not lines[-1]
    try:
        actions = [_ACTION.decode(line) for line in (lines[:-1] if ended else lines)]
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if not actions:
        raise ValueError("it is empty")
    if ended and any(
        a.commit_info and a.commit_info.engine_info.startswith("delta-rs") for a in actions
    ):
        raise ValueError("its last line is missing")
    return actions


_ACTION = msgspec.json.Decoder(Action)


def is_parquet(path: Path) -> bool:
    """Return whether a file has Parquet's marks at both ends and room for the footer of the stated size."""
    with path.open("rb") as file:
        head = file.read(4)
        size = file.seek(0, 2)
        if size < 12 or head != _PARQUET_MAGIC:
            return False
        file.seek(size - 8)
        tail = file.read(8)
    return tail[4:] == _PARQUET_MAGIC and int.from_bytes(tail[:4], "little") <= size - 12


NAME = "_journal"
"""The underscore keeps Delta's vacuum from removing it."""

LOCK = "journal.lock"
"""Name of the lock file in the store. A process holds the lock while it writes the journal."""

_CHUNK = 2**20


class Checksum(NamedTuple):
    """CRC-32 and size (bytes) of a file, as its writer noted them."""

    crc: int
    size: int


Group = tuple[str, str, str, str, str]
"""Source, format, session, stream and kind."""

GROUPS_MAX = 1000
"""For a file with more groups than this the journal holds no numbers of rows."""


class JournalLine(msgspec.Struct, omit_defaults=True):
    version: int | None
    entry: str | None
    files: dict[str, Checksum]
    rows: dict[str, list[tuple[Group, int]]] = {}


class Notes(NamedTuple):
    """The content of the journal: log entries by version, checksums and numbers of rows by path, and the
    number of damaged lines."""

    entries: dict[int, bytes]
    files: dict[str, Checksum]
    rows: dict[str, Counter[Group]]
    damaged: int


class Journal:
    """The journal of the table in `root`, a local directory."""

    def __init__(self, root: Path) -> None:
        self.path = root / NAME
        self._root = root
        self._log = DeltaLog(root)
        self._seen = 0, 0  # the file's inode, and how far `_noted` knows it
        self._noted: set[int] = set()

    def read(self) -> Notes:
        """Return the content of all whole lines; a missing journal is empty. Raise OSError."""
        entries: dict[int, bytes] = {}
        files: dict[str, Checksum] = {}
        rows: dict[str, Counter[Group]] = {}
        lines, damaged = self._lines()
        for line in lines:
            if line.version is not None and line.entry is not None:
                entries[line.version] = line.entry.encode()
            files |= line.files
            rows |= {path: Counter(dict(groups)) for path, groups in line.rows.items()}
        return Notes(entries, files, rows, damaged)

    def note(self, versions: Iterable[int], *, merges: bool) -> None:
        """Add the entries of these versions and the checksums of their files that still exist.

        Without `merges`, leave out files that hold the rows of other files: the upkeep that made them adds
        them. Raise OSError."""
        lines = [line for version in versions if (line := self._line(version, merges=merges))]
        self._append(lines)

    def note_rest(self, versions: range) -> None:
        """Add the entries and files of those versions that nobody has noted yet, and leave out files that hold the rows
        of other files. Raise OSError.

        Several collectors call this for the same versions; each version gets one line."""
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            self._look_on()
            rest = [version for version in versions if version not in self._noted]
            if lines := [line for each in rest if (line := self._line(each, merges=False))]:
                self._append_locked(lines)
            self._noted = {version for version in self._noted if version >= versions.stop}

    def note_rows(self, path: str, counts: Counter[Group]) -> None:
        """Add how many rows of each group a file has, unless there are too many groups. Raise OSError."""
        if len(counts) <= GROUPS_MAX:
            self._append([JournalLine(None, None, {}, {path: list(counts.items())})])

    def note_files(self, paths: Iterable[Path]) -> None:
        """Add the checksums of files in the table's directory. Raise OSError."""
        files = {str(path.relative_to(self._root)): checksum(path) for path in paths}
        self._append([JournalLine(None, None, files)])

    def prune(self) -> None:
        """Forget files that are gone, and entries below the log's first. Raise OSError."""
        first = min(self._log.versions(), default=0)

        def kept(line: JournalLine) -> JournalLine:
            files = {p: found for p, found in line.files.items() if (self._root / p).exists()}
            rows = {p: found for p, found in line.rows.items() if (self._root / p).exists()}
            old = line.version is not None and line.version < first
            return JournalLine(line.version, None if old else line.entry, files, rows)

        self._rewrite(kept)

    def forget(self, versions: Iterable[int]) -> None:
        """Forget the entries of versions whose numbers will be used again. Raise OSError."""
        gone = set(versions)
        self._rewrite(
            lambda line: structs.replace(line, entry=None) if line.version in gone else line
        )

    def _line(self, version: int, *, merges: bool) -> JournalLine | None:
        try:
            entry = self._log.path(version).read_bytes()
        except FileNotFoundError:  # the log was shortened since
            return None
        files: dict[str, Checksum] = {}
        for action in decode(entry):
            if action.add and (merges or action.add.data_change):
                path = self._log.data_path(action.add)
                if path.exists():
                    files[action.add.path] = checksum(path)
        return JournalLine(version, entry.decode(), files)

    def _lines(self) -> tuple[list[JournalLine], int]:
        try:
            data = self.path.read_bytes()
        except OSError:
            if self.path.exists() and self.path.is_file():
                raise
            return [], 0  # missing, or something else is in its place
        parsed = [_parse(line) for line in data.split(b"\n") if line]
        whole = [line for line in parsed if line]
        return whole, len(parsed) - len(whole)

    def _look_on(self) -> None:
        """Learn which versions others have noted since the last look."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                same = self._seen[0] == found.st_ino and self._seen[1] <= found.st_size
                file.seek(self._seen[1] if same else 0)
                lines = file.read().split(b"\n")
                self._seen = found.st_ino, file.tell() - len(lines[-1])
        except OSError:
            return  # missing, or something else is in its place
        whole = [line for text in lines if (line := _parse(text))]
        self._noted |= {line.version for line in whole if line.entry and line.version is not None}

    def _append(self, lines: list[JournalLine]) -> None:
        """Append lines; they are on disk when this returns."""
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            self._append_locked(lines)

    def _append_locked(self, lines: list[JournalLine]) -> None:
        make_way(self.path)
        fd = owned.open_file(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = os.fstat(fd).st_size
            torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
            data = (b"\n" if torn else b"") + b"".join(map(_format, lines))
            try:
                _write(fd, data, end)
            except OSError:
                os.ftruncate(fd, end)
                raise
            os.fsync(fd)
        finally:
            os.close(fd)

    def _rewrite(self, change: Callable[[JournalLine], JournalLine]) -> None:
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            make_way(self.path)
            changed = (change(line) for line in self._lines()[0])
            new = self.path.with_name(f"{NAME}.new")
            new.unlink(missing_ok=True)  # of a process that was killed
            with new.open("xb") as file:
                for line in changed:
                    if line.entry is not None or line.files or line.rows:
                        file.write(_format(line))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)


def checksum(path: Path) -> Checksum:
    """Return the CRC-32 and size of a file. Raise OSError."""
    crc = size = 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            crc = crc32(data, crc)
            size += len(data)
    return Checksum(crc, size)


def _format(line: JournalLine) -> bytes:
    text = msgspec.json.encode(line)
    return b"%08x %s\n" % (crc32(text), text)


def _parse(line: bytes) -> JournalLine | None:
    text = line[9:]
    if line[:9] != b"%08x " % crc32(text):
        return None
    try:
        return _LINE.decode(text)
    except msgspec.DecodeError:
        return None


_LINE = msgspec.json.Decoder(JournalLine)


def _write(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
