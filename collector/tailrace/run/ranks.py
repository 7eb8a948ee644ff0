"""Read and write the log of the ranks that ran on one node: their start, and their end with the exit status.

The log is a file of JSON lines beside the node's table. Each line is synced to disk before the collector proceeds.
Therefore, if the end of a rank is not in the log, the collector was killed before the rank ended.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tailrace.errors import StoreError

NAME = "ranks.jsonl"


class NodeBegan(msgspec.Struct, kw_only=True, tag="node"):
    """A collector started on a node. Times are Unix nanoseconds."""

    time: int
    node: str
    host: str
    job: str | None
    size: int | None
    """Number of ranks of the job; None if the launcher does not state it."""
    local_size: int | None
    """Number of ranks of the job on this node; None if the launcher does not state it."""


class RankCame(msgspec.Struct, kw_only=True, tag="came"):
    time: int
    rank: int
    job: str | None
    size: int | None
    pid: int
    arguments: list[str]


class RankLeft(msgspec.Struct, kw_only=True, tag="left"):
    """A rank ended. `exit_status` is None if its connection ended without a message, because the rank was killed."""

    time: int
    rank: int
    job: str | None
    exit_status: int | None


class NodeEnded(msgspec.Struct, kw_only=True, tag="ended"):
    """The collector of a node ended by itself, after the last rank had left. `no_room` is the number of connections
    and datagrams that it refused because a limit was reached, by cause. `empty` is the number of trace files that
    programs of the node left without content, or None if unknown."""

    time: int
    no_room: dict[str, int] = {}
    empty: int | None = None


RankLine = NodeBegan | RankCame | RankLeft | NodeEnded


class RankLog:
    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def append(self, line: RankLine) -> None:
        """Append a line to the log, and sync the log to disk. Raise OSError if that fails."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read(directory: Path) -> list[RankLine]:
    """Return the lines of the log of ranks in a directory, without an incomplete last line; an empty list if there
    is no log. Raise StoreError if it cannot be read."""
    path = directory / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=RankLine) for line in lines if line]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: is not a log of ranks: {error}") from error
