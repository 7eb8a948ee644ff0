"""The log of the ranks that ran on one node: who came, who left with which exit status, and who vanished.

It is a file of JSON lines beside the node's table, each line on disk before anything follows from it. A rank
without a last line was killed, or outlived its collector.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tailrace.errors import StoreError

NAME = "ranks.jsonl"


class NodeBegan(msgspec.Struct, kw_only=True, tag="node"):
    """A collector began on a node. Times are Unix nanoseconds."""

    time: int
    node: str
    host: str
    job: str | None
    size: int | None
    """The number of the job's ranks, if the launcher says it."""
    local_size: int | None
    """The number of the node's ranks, if the launcher says it."""


class RankCame(msgspec.Struct, kw_only=True, tag="came"):
    time: int
    rank: int
    job: str | None
    size: int | None
    pid: int
    arguments: list[str]


class RankLeft(msgspec.Struct, kw_only=True, tag="left"):
    """A rank ended. Without an exit status, it vanished without a word: it was killed."""

    time: int
    rank: int
    job: str | None
    exit_status: int | None


class NodeEnded(msgspec.Struct, kw_only=True, tag="ended"):
    """The collector ended in order, after the last rank. `no_room` counts what it refused for want of room, by cause."""

    time: int
    no_room: dict[str, int] = {}


RankLine = NodeBegan | RankCame | RankLeft | NodeEnded


class RankLog:
    """Appends lines to the log of a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def append(self, line: RankLine) -> None:
        """Append a line, durably. Raise OSError."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read(directory: Path) -> list[RankLine]:
    """Return the lines of a directory's log, without a last line that a kill cut off. Raise StoreError."""
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
