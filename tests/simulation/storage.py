"""What a collector has on disk: the log, checkpoints, and the table, which a model of the commit fills.

A kill leaves all that was synced, and of the rest as much as the disk happens to have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tailrace.ingest.machine import Quarantined
from tailrace.spool.entry import Entry
from tests.ingest.log import Log

CHECKPOINTS = 2


class Refused(Exception):  # noqa: N818 - an answer, not a mistake
    """The table said that it did not take a commit."""


class Checkpoint(NamedTuple):
    position: int
    snapshot: bytes


class Table:
    """Rows and a position that change together."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.position = 0
        self.down = False
        self.landed = False
        """Whether a commit that is refused is in the table all the same."""

    def break_(self, *, landed: bool) -> None:
        """Refuse all commits from now on."""
        self.down, self.landed = True, landed

    def mend(self) -> None:
        self.down = False

    def commit(self, rows: list[dict[str, Any]], position: int) -> None:
        """Add rows and move the position, once. Raise Refused."""
        if position <= self.position:
            return  # an earlier attempt landed
        if self.down and not self.landed:
            raise Refused
        self.rows += rows
        self.position = position
        if self.down:
            raise Refused


@dataclass
class Disk:
    log: Log = field(default_factory=Log)
    table: Table = field(default_factory=Table)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    durable: int = 0
    """Position below which the log is synced."""
    full: bool = False
    quarantined: dict[str, bytearray] = field(default_factory=dict)
    """The quarantine files, by session."""

    @property
    def end(self) -> int:
        return self.log.entries[-1].end if self.log.entries else 0

    @property
    def _synced(self) -> int:
        """How many entries are durable."""
        return sum(entry.end <= self.durable for entry in self.log.entries)

    def empty(self) -> None:
        """Have room again."""
        self.full = False

    def quarantine(self, kept: list[Quarantined]) -> None:
        """Write frames at their places; a replay writes the same ones again."""
        for session, at, frame in kept:
            file = self.quarantined.setdefault(session, bytearray())
            before = bytes(file[at : at + len(frame)])
            assert frame.startswith(before), "a replay quarantines something else"
            assert at <= len(file), "a hole in the quarantine"
            file[at : at + len(frame)] = frame

    def sync(self) -> None:
        self.durable = self.end

    def read(self, position: int) -> list[Entry]:
        """Return the durable entries from a position on."""
        entries = self.log.entries
        begin = len(entries)
        while begin and entries[begin - 1].position >= position:
            begin -= 1
        assert begin == len(entries) or entries[begin].position == position, "released too early"
        return [entry for entry in entries[begin:] if entry.end <= self.durable]

    def cut(self, random: Random) -> None:
        """Lose the end of the log that was not synced, or a part of it."""
        entries = self.log.entries
        del entries[random.randint(self._synced, len(entries)) :]
        self.durable = self.end

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, and release what no restart needs."""
        self.checkpoints = [*self.checkpoints, checkpoint][-CHECKPOINTS:]
        oldest = self.checkpoints[0].position
        released = sum(entry.position < oldest for entry in self.log.entries)
        # The last synced entry says where the log goes on, should a kill lose all others.
        del self.log.entries[: max(0, min(released, self._synced - 1))]

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that the table has reached."""
        fitting = [c for c in self.checkpoints if c.position <= self.table.position]
        return fitting[-1] if fitting else None
