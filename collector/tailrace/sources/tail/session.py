"""What is handed on of one file, from its opening to its close."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import Files
from tailrace.ingest.file_state import FileState
from tailrace.ingest.payloads import FileFacts, FileLoss
from tailrace.sources.source import FileIntake, SourceFigures
from tailrace.sources.tail.descriptors import Descriptors
from tailrace.sources.tail.documents import Documents
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.writers import Writers

SUCCEEDED = frozenset({"replaced", "rewritten", "truncated"})
"""Ends after which what stands beside the file may be the next one's already."""

Detail = Literal["hole", "bad_member", "torn_member", "overwritten", "unread"]


class Desk(msgspec.Struct):
    """What all files of a source share."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: Descriptors
    documents: Documents
    clock: Clock
    writers: Writers
    remember: Callable[[str, Trail], None]
    """Told of the path of every session that ends, and of what was read in it."""
    replaces: Mapping[str, tuple[str, ...]] = {}
    """See `Chosen`."""


class Session:
    """Opened with the first thing that is to be said; `content` is how far it has come."""

    def __init__(self, desk: Desk) -> None:
        self.number: int | None = None
        self.content = Trail()
        self.sent: dict[str, int] = {}
        """CRC-32 of each document handed on."""
        self._desk = desk

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState) -> Session:
        session = cls(desk)
        session.number = number
        session.content = Trail.of(state)
        session.sent = state.documents.copy()
        return session

    def open(self, path: str, facts: FileFacts) -> int:
        """Open it unless it is; its number. Its documents are sought beside the path."""
        if self.number is None:
            desk = self._desk
            self.number = desk.intake.open_file(
                facts,
                desk.files.group(facts.path),
                record_max=desk.config.record_max,
                dialect=desk.config.dialect,
                replaces=desk.replaces.get(path, ()),
            )
            self.documents(path)
        return self.number

    def data(self, path: str, facts: FileFacts, data: bytes) -> None:
        self._desk.intake.data(self.open(path, facts), data)
        self.content.add(data)
        self._desk.figures.chunks += 1
        self._desk.figures.bytes += len(data)

    def hole(self, path: str, facts: FileFacts, size: int) -> None:
        self.open(path, facts)
        self.lose("hole", size)
        self.content.pass_over(size)

    def lose(self, detail: Detail, size: int, data: bytes = b"") -> None:
        """Nothing to be said of a file of which nothing was said."""
        if self.number is not None:
            self._desk.intake.loss(self.number, FileLoss(detail=detail, size=size, data=data))

    def bad(self, path: str, facts: FileFacts, size: int, data: bytes) -> None:
        self.open(path, facts)
        self.lose("bad_member", size, data)

    def tell(self, facts: FileFacts) -> None:
        """Its file has another name or place, or a member of it has begun."""
        if self.number is not None:
            self._desk.intake.file(self.number, facts)

    def documents(self, path: str) -> None:
        """Hand on what there is beside the file, which has this path now."""
        if self.number is not None:
            self._desk.documents.follow(self, path)

    def end(self, path: str, reason: str, unread: int = 0) -> None:
        if self.number is None:
            return
        if unread:
            self.lose("unread", unread)
        if reason not in SUCCEEDED:
            # Of a file that was not found again after a restart they were not looked at yet.
            self._desk.documents.follow(self, path)
        self._desk.documents.forget(self)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(path, self.content)
        self.number = None
