"""The session of one file, from its opening to its close: all that is handed on of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import Files
from tailrace.ingest.file_state import FileState
from tailrace.ingest.payloads import FileFacts, FileLoss, LossDetail
from tailrace.sources.source import FileIntake, SourceFigures
from tailrace.sources.tail.descriptors import TailDescriptors
from tailrace.sources.tail.documents import DocumentWatch
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.writers import Writers

SUCCEEDED = frozenset({"replaced", "rewritten", "truncated"})
"""Ends after which the documents beside the file may already be the next file's."""


class Desk(msgspec.Struct):
    """The parts that all files of a source share."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: TailDescriptors
    documents: DocumentWatch
    clock: Clock
    writers: Writers
    remember: Callable[[str, Trail], None]
    """Called at the end of every session with its path and what was read in it."""
    replaces: Mapping[str, tuple[str, ...]] = {}
    """See `Chosen`."""


class Handoff:
    """The session of one file, which is opened with the first thing to hand on. `content` is how far
    it has come."""

    def __init__(self, desk: Desk) -> None:
        self.number: int | None = None
        """The number of the session; None while it is not open."""
        self.content = Trail()
        self.lost = False
        """Whether this life has found that the session lacks something."""
        self.sent: dict[str, int] = {}
        """CRC-32 of each document handed on."""
        self._desk = desk

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState) -> Handoff:
        handoff = cls(desk)
        handoff.number = number
        handoff.content = Trail.of(state)
        handoff.sent = state.documents.copy()
        return handoff

    def open(self, path: str, facts: FileFacts) -> int:
        """Open the session if it is not open; return its number. Its documents are sought beside the
        path."""
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

    def lose(
        self, detail: LossDetail, size: int, data: bytes = b"", *, stated: bool = False
    ) -> None:
        """Report a loss if the session is open."""
        self.lost = True
        if self.number is not None:
            loss = FileLoss(detail=detail, size=size, data=data, stated=stated)
            self._desk.intake.loss(self.number, loss)

    def bad(self, path: str, facts: FileFacts, size: int, data: bytes) -> None:
        self.open(path, facts)
        self.lose("bad_member", size, data)

    def tell(self, facts: FileFacts) -> None:
        """Hand on that the file has another name or place, that it rests, or that a member of it has
        begun."""
        if self.number is not None:
            self._desk.intake.file(self.number, facts)

    def documents(self, path: str) -> None:
        """Hand on the documents beside the file, which has this path now."""
        if self.number is not None:
            self._desk.documents.follow(self, path)

    def let_go(self) -> None:
        """Leave the session open for another source."""
        if self.number is not None:
            self._desk.documents.forget(self)
            self._desk.intake.let_go(self.number)
            self.number = None

    def end(self, path: str, reason: str, unread: int = 0) -> None:
        if self.number is None:
            return
        if unread:
            self.lose("unread", unread)
        if reason not in SUCCEEDED:
            # Nobody has looked at them yet if the file was not found again after a restart.
            self._desk.documents.follow(self, path)
        self._desk.documents.forget(self)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(path, self.content)
        self.number = None
