"""Read the files of a Delta log on a local disk without the library, and keep the table's journal.

`_delta_log` has one JSON file for each version, with one action on each line. A checkpoint, `N.checkpoint*.parquet`, is
the sum of versions 0 to N. Source: Delta transaction log protocol, "Delta Log Entries" and "Actions".

The journal has a copy of each log entry and a checksum of each file, because the library writes no page checksums into
Parquet files. A writer adds a line after it has synced a version, and before it acknowledges the version's rows. The
journal is the text file `_journal` in the table's directory. Each line has the CRC-32 of all that follows the space (8
hexadecimal digits), a space, and a JSON object with these members:

- `version`, and `entry`, the text of that version's log file, or null;
- `files`, which maps a path below the table's directory to the CRC-32 and size of the file;
- `rows`, for files written by upkeep: the number of rows of each source, format, session, stream and kind.

A later line replaces an earlier line about the same version or file. Damaged lines are skipped."""

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
    """A log action that adds a data file. `path` is relative to the table and percent-encoded; `stats` is JSON."""

    path: str
    size: int
    partition_values: dict[str, str | None]
    modification_time: int = 0
    data_change: bool = True
    stats: str | None = None


class Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


class Remove(msgspec.Struct):
    path: str


class MetaData(msgspec.Struct):
    configuration: dict[str, str]


class CommitInfo(msgspec.Struct, rename="camel"):
    engine_info: str = ""


class Txn(msgspec.Struct, rename="camel"):
    """A log action that records the last transaction number of the writer `app_id`, such as a collector."""

    app_id: str


class Action(msgspec.Struct, rename="camel"):
    """One line of a log entry: one action. The field for the kind of the action is set. No field is set for a kind that
    this module does not decode."""

    add: Add | None = None
    remove: Remove | None = None
    meta_data: MetaData | None = None
    commit_info: CommitInfo | None = None
    txn: Txn | None = None


class LastCheckpoint(msgspec.Struct):
    version: int


class DeltaLog:
    """The Delta log of the table in the directory `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "_delta_log"
        self.last_checkpoint_path = self.directory / "_last_checkpoint"

    def path(self, version: int) -> Path:
        return self.directory / f"{version:020}.json"

    def data_path(self, file: Add) -> Path:
        return self.root / unquote(file.path)

    def versions(self) -> list[int]:
        return sorted(self._numbered(_VERSION))

    def checkpoints(self) -> dict[int, list[Path]]:
        """Return the paths of the files of each checkpoint by its version, in order."""
        found = self._numbered(_CHECKPOINT)
        return {version: found[version] for version in sorted(found)}

    def read(self, version: int) -> list[Action]:
        """Return the actions of a version's log file. Raise OSError if it is unreadable, ValueError if it is
        incomplete."""
        return decode(self.path(version).read_bytes())

    def last_checkpoint(self) -> LastCheckpoint | None:
        """Return the content of `_last_checkpoint`, or None if the file is missing or incomplete."""
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
    """Decode the content of a version's log file into actions. Raise ValueError if the content is incomplete."""
    lines = data.split(b"\n")
    # delta-rs writes no newline at the end of a log file. If a file of delta-rs ends with a newline, further lines are
    # missing.
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
    """Return whether a file begins and ends as a Parquet file. Do not read its rows."""
    with path.open("rb") as file:
        head = file.read(4)
        size = file.seek(0, 2)
        if size < 12 or head != _PARQUET_MAGIC:
            return False
        file.seek(size - 8)
        tail = file.read(8)
    return tail[4:] == _PARQUET_MAGIC and int.from_bytes(tail[:4], "little") <= size - 12


NAME = "_journal"
"""File name of the table's journal. Delta's vacuum does not remove a file whose name begins with an underscore."""

LOCK = "journal.lock"
"""Name of a lock file in the store. A process locks it while it writes the table's journal."""

_CHUNK = 2**20


class Checksum(NamedTuple):
    """CRC-32 and size (bytes) of a file, as recorded in the table's journal."""

    crc: int
    size: int


Group = tuple[str, str, str, str, str]
"""The values (source, format, session, stream and kind) that the rows of one group have in common."""

GROUPS_MAX = 1000
"""The table's journal records how many rows each group (`Group`) of a data file has, but only if the file has at most
this number of groups."""


class JournalLine(msgspec.Struct, omit_defaults=True):
    version: int | None
    entry: str | None
    files: dict[str, Checksum]
    rows: dict[str, list[tuple[Group, int]]] = {}


class JournalContent(NamedTuple):
    """The content of the table's journal: log entries by version, checksums by path, numbers of rows by path and
    `Group`, and the number of damaged lines."""

    entries: dict[int, bytes]
    files: dict[str, Checksum]
    rows: dict[str, Counter[Group]]
    damaged: int


class Journal:
    """A second record of the versions of a local table, and checksums of its files."""

    def __init__(self, root: Path) -> None:
        self.path = root / NAME
        self._root = root
        self._log = DeltaLog(root)
        # Inode of the journal, and the offset after the last line whose version is in `_noted`
        self._seen = 0, 0
        self._noted: set[int] = set()

    def read(self) -> JournalContent:
        """Return the content of all undamaged lines. A missing journal is empty. Raise OSError if it cannot be read."""
        entries: dict[int, bytes] = {}
        files: dict[str, Checksum] = {}
        rows: dict[str, Counter[Group]] = {}
        lines, damaged = self._lines()
        for line in lines:
            if line.version is not None and line.entry is not None:
                entries[line.version] = line.entry.encode()
            files |= line.files
            rows |= {path: Counter(dict(groups)) for path, groups in line.rows.items()}
        return JournalContent(entries, files, rows, damaged)

    def note(self, versions: Iterable[int], *, merges: bool) -> None:
        """Add the log entries of `versions`, and the checksums of the data files that they added.

        Without `merges`, leave out the checksums of files that upkeep has merged from earlier files, because upkeep
        itself adds them. Raise OSError if the journal or a file cannot be accessed."""
        self._append([line for each in versions if (line := self._line(each, merges=merges))])

    def note_rest(self, versions: range) -> None:
        """Add the log entries of those `versions` that the journal lacks, and the checksums of their data files,
        without files that upkeep has merged.

        A lock ensures that the journal gets only one line for each version. Raise OSError if the journal or a data file
        cannot be accessed."""
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            self._look_on()
            rest = [version for version in versions if version not in self._noted]
            if lines := [line for each in rest if (line := self._line(each, merges=False))]:
                self._append_locked(lines)
            self._noted = {version for version in self._noted if version >= versions.stop}

    def note_rows(self, path: str, counts: Counter[Group]) -> None:
        """Add the number of rows of each `Group` in a data file, unless there are more than `GROUPS_MAX` groups. Raise
        OSError if that fails."""
        if len(counts) <= GROUPS_MAX:
            self._append([JournalLine(None, None, {}, {path: list(counts.items())})])

    def note_files(self, paths: Iterable[Path]) -> None:
        """Add the checksums of files in the table's directory. Raise OSError if that fails."""
        files = {str(path.relative_to(self._root)): checksum(path) for path in paths}
        self._append([JournalLine(None, None, files)])

    def prune(self) -> None:
        """Remove facts about files and versions that no longer exist. Raise OSError if the journal cannot be rewritten."""
        first = min(self._log.versions(), default=0)

        def kept(line: JournalLine) -> JournalLine:
            files = {p: found for p, found in line.files.items() if (self._root / p).exists()}
            rows = {p: found for p, found in line.rows.items() if (self._root / p).exists()}
            old = line.version is not None and line.version < first
            return JournalLine(line.version, None if old else line.entry, files, rows)

        self._rewrite(kept)

    def forget(self, versions: Iterable[int]) -> None:
        """Remove the log entries of `versions`, whose numbers new versions will get. Raise OSError if that fails."""
        gone = set(versions)
        self._rewrite(
            lambda line: structs.replace(line, entry=None) if line.version in gone else line
        )

    def _line(self, version: int, *, merges: bool) -> JournalLine | None:
        try:
            entry = self._log.path(version).read_bytes()
        # A checkpoint of the Delta log has replaced the version's log file since it was listed.
        except FileNotFoundError:
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
            return [], 0  # The journal is missing or not a regular file, so it has no lines.
        parsed = [_parse(line) for line in data.split(b"\n") if line]
        whole = [line for line in parsed if line]
        return whole, len(parsed) - len(whole)

    def _look_on(self) -> None:
        """Read the lines that were added to the journal since the last call."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                same = self._seen[0] == found.st_ino and self._seen[1] <= found.st_size
                file.seek(self._seen[1] if same else 0)
                lines = file.read().split(b"\n")
                self._seen = found.st_ino, file.tell() - len(lines[-1])
        except OSError:
            return  # The journal is missing or not a regular file, so there are no new lines.
        whole = [line for text in lines if (line := _parse(text))]
        self._noted |= {line.version for line in whole if line.entry and line.version is not None}

    def _append(self, lines: list[JournalLine]) -> None:
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            self._append_locked(lines)

    def _append_locked(self, lines: list[JournalLine]) -> None:
        make_way(self.path)
        fd = owned.open_file(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = os.fstat(fd).st_size
            torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
            data = (b"\n" if torn else b"") + b"".join(map(_format, lines))
            with owned.whole_or_nothing(fd, end):
                owned.write_at(fd, data, end)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _rewrite(self, change: Callable[[JournalLine], JournalLine]) -> None:
        with DirectoryLock(self._root.parent, name=LOCK, wait=True):
            make_way(self.path)
            changed = map(change, self._lines()[0])
            kept = [_format(each) for each in changed if each.entry or each.files or each.rows]
            new = self.path.with_name(f"{NAME}.new")
            owned.write_new(new, b"".join(kept))
            new.replace(self.path)


def checksum(path: Path) -> Checksum:
    """Return the CRC-32 and size of a file. Raise OSError if it cannot be read."""
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
