"""The files of a Delta log on a local disk, read without the library.

`_delta_log` holds one JSON file for each version, `N.json` (N has 20 digits), with one action a line; and
checkpoints, `N.checkpoint*.parquet`, each the sum of versions 0 to N. The library names a file that it is
still writing `NAME#1`. We read only what durability needs: which files a version adds and removes.
Source: Delta transaction log protocol, "Delta Log Entries" and "Actions".
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import msgspec

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
