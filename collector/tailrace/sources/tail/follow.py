"""One file and how far it is read.

A file is *new* until it has bytes, or *waits*; then it *follows* a session of its own. A *shadow* is
a file that begins as one that has ended: if all of it is that, it was read before; if there is more,
it is a file of its own.

`look` compares the file with what is known of it, `read` hands on its next piece. Both raise OSError
for what may be tried again, and neither waits.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Literal

import msgspec

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.decoder import Files
from tailrace.ingest.state import HEAD, FileFacts, FileState, Loss
from tailrace.sources.source import CHUNK_MAX, FileIntake, SourceFigures
from tailrace.sources.tail import identity
from tailrace.sources.tail.descriptors import OPEN, Descriptors
from tailrace.sources.tail.identity import Trail, judge
from tailrace.sources.tail.inflate import MAGIC

Phase = Literal["new", "waits", "follows", "shadow", "left"]


class Desk(msgspec.Struct, frozen=True):
    """What all files of a source share."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: Descriptors
    clock: Clock
    remember: Callable[[str, Trail], None]
    """Told of the path of every session that ends, and of what was read in it."""


class Followed:
    def __init__(self, desk: Desk, path: str, device: int, inode: int) -> None:
        self.path = path
        self.device = device
        self.inode = inode
        self.birth = 0
        self.phase: Phase = "new"
        self.undecided = True
        """While it is new or waits: something has happened that may change that."""
        self.reason = "empty"
        """What it waits for."""
        self.number: int | None = None
        self.raw = Trail()
        self.content = self.raw
        """The same as `raw` but for compressed files."""
        self.size = 0
        self.changed_at = 0.0
        """When a change of it was seen last."""
        self.gone: str | None = None
        """Why its path does not lead to it any more."""
        self.gone_at = 0.0
        self.final = False
        """It will not change any more; what is there is all."""
        self.interval = 0.0
        self.due = 0.0
        self.queued = False
        self._desk = desk
        self._signature: tuple[int, int, int] | None = None
        self._confirmed = False
        self._reached = True
        """Its content was once as long as what is known of it; a copy's may still have to be."""
        self._data_end = 0

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState, now: float) -> Followed:
        """Of an earlier life; where it is now, nobody knows."""
        facts = state.facts
        file = cls(desk, facts.path, facts.device, facts.inode)
        file.birth = facts.birth
        file.phase = "follows"
        file.number = number
        file.raw = file.content = Trail.of(state)
        file.gone, file.gone_at, file.changed_at = "deleted", now, now
        return file

    @property
    def node(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def facts(self) -> FileFacts:
        return FileFacts(
            path=self.path, device=self.device, inode=self.inode, birth=self.birth, member=None
        )

    @property
    def behind(self) -> int:
        """Bytes known and not read."""
        return max(0, self.size - self.raw.offset)

    @property
    def unlinked(self) -> bool:
        """It is open, and no name leads to it."""
        fd = self._desk.descriptors.get(self)
        return fd is not None and os.fstat(fd).st_nlink == 0

    def look(self, now: float) -> bool:
        """See what has changed; whether another file is at its path."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - three times as fast
        except (FileNotFoundError, NotADirectoryError):
            found = None
        replaced = found is not None and (found.st_dev, found.st_ino) != self.node
        if found is None or replaced:
            if self.gone is None:
                self.gone = "replaced" if replaced else "deleted"
                self.gone_at = self.changed_at = now
                self._desk.descriptors.pin(self)
            fd = self._desk.descriptors.get(self)
            if fd is None:
                return replaced
            found = os.fstat(fd)
        signature = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        changed = signature != self._signature
        if changed or not self._confirmed:
            # Once more when it has come to rest: its times may be too coarse to tell of a change
            # in the moment of the last look.
            self._examine(found.st_size)
            self._signature, self._confirmed = signature, not changed
            if changed:
                self.changed_at = now
                self.undecided = True
        return replaced

    def recognises(self, path: str, found: os.stat_result) -> bool:
        """Whether the file found at a path, which has the same device and inode, is this one and
        not one that was made after its end. Raise OSError."""
        if self._desk.descriptors.get(self) is not None:
            return True  # as long as it is open its inode is its own
        fd = os.open(path, OPEN)
        try:
            birth = identity.birth(fd)
            if birth and self.birth:
                return birth == self.birth
            if path == self.path:
                return True
            head, last = identity.look(fd, self.raw)
            return judge(self.raw, head, last, grown=True).verdict == "same"
        finally:
            os.close(fd)

    def moved(self, path: str) -> None:
        """It has this path now."""
        self.gone = None
        self._desk.descriptors.unpin(self)
        if path != self.path:
            self.path = path
            if self.number is not None:
                self._desk.intake.file(self.number, self.facts)

    def wait(self, reason: str) -> None:
        self.phase = "waits"
        self.reason = reason
        self.undecided = False

    def follow(self, shadowed: Trail | None) -> None:
        """Begin to read it; as the shadow of one that ended if there is one that begins like it."""
        self.phase = "follows"
        if shadowed is not None:
            self.phase = "shadow"
            self._go_on_after(shadowed)

    def take_over(self, original: Followed) -> None:
        """Go on with the session of a file of which it is a copy."""
        self.phase = "follows"
        self.number, original.number = original.number, None
        self._go_on_after(original.content)
        if self.number is not None:
            self._desk.intake.file(self.number, self.facts)

    def leave(self, reason: str) -> None:
        """Close its session and read no more of it."""
        if self.number is not None:
            self._desk.intake.close(self.number, reason)
        self.number = None
        self.phase = "left"

    def may_have_copy(self, other: Followed, head: bytes) -> bool:
        """Whether another file that begins with `head` may be a copy of this one."""
        if identity.relation(self.content.head, head) == "other":
            return False
        if other.path == self.path:
            return other.size >= self.content.offset
        return self.gone is not None or self.behind > 0 or len(head) <= self.content.offset

    def head(self) -> bytes:
        """The first bytes of its content, as far as they can be had now."""
        return os.pread(self._fd(), HEAD, 0)

    def read(self) -> bool:
        """Hand on the next piece; whether there may be more."""
        fd = self._fd()
        if self.phase not in {"follows", "shadow"}:
            return False
        if not self.raw.offset and not self._kind_known(fd):
            return False
        end = self._readable(fd)
        if end is None:
            return False
        raw = self.raw
        back = len(raw.last)
        data = os.pread(fd, back + min(CHUNK_MAX, end - raw.offset), raw.offset - back)
        if len(data) < back or not raw.precedes(data[:back]):
            self._signature = None
            return False
        if len(data) == back:
            return False
        self._deliver(data[back:])
        return self.raw.offset < self.size

    def close(self, reason: str) -> None:
        """It is over; what was not read never will be."""
        self._end_session(reason, self.behind)
        self.phase = "left"

    def _end_session(self, reason: str, unread: int) -> None:
        if self.number is None:
            return
        if unread:
            self._lose("unread", unread)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(self.path, self.content)
        self.number = None

    def _go_on_after(self, content: Trail) -> None:
        """Another file's content was read so far, and this one's is the same."""
        self.raw = self.content = content.copied()
        self._reached = False
        self._signature = None

    def _fd(self) -> int:
        """Its descriptor. Raise OSError."""
        descriptors = self._desk.descriptors
        fd = descriptors.get(self)
        if fd is not None:
            return fd
        fd = descriptors.open(self, self.path)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self.node:
            descriptors.close(self)
            self._signature = None
            raise OSError(errno.ENOENT, "another file has its path by now")
        if self.gone is not None:
            descriptors.pin(self)
        birth = identity.birth(fd)
        if self.birth and birth != self.birth:
            self._again("replaced", self.behind)
        self.birth = birth
        return fd

    def _examine(self, size: int) -> None:
        """Compare what is there with what was read."""
        fd = self._fd() if self.raw.offset else None
        before, self.size = self.size, size
        raw = self.raw
        if size < raw.offset:
            if self._reached:
                self._again("truncated", max(0, before - raw.offset))
            return
        self._reached = True
        if not raw.offset or fd is None:
            return
        head, last = identity.look(fd, raw)
        verdict, differing = judge(raw, head, last, grown=size > raw.offset)
        if verdict == "rewritten":
            self._again("rewritten", 0)
        elif verdict == "overwritten":
            raw.head, raw.last = head, last
            self._lose("overwritten", differing)

    def _again(self, reason: str, unread: int) -> None:
        """What is there now is another incarnation."""
        self._end_session(reason, unread)
        self.phase = "new"
        self.undecided = True
        self._afresh()

    def _afresh(self) -> None:
        self.raw = self.content = Trail()
        self._reached = True
        self._data_end = 0

    def _kind_known(self, fd: int) -> bool:
        """Whether it is compressed is known from its first two bytes."""
        begin = os.pread(fd, len(MAGIC), 0)
        return begin != MAGIC[: len(begin)] or (self.final and begin != b"")

    def _readable(self, fd: int) -> int | None:
        """Up to where there are bytes at our place; None for none. Holes are passed over here."""
        raw = self.raw
        if raw.offset < self._data_end:
            return self._data_end
        if raw.offset >= self.size:
            return None
        try:
            begin = os.lseek(fd, raw.offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return self.size  # a file system that knows no holes
            # Nothing but a hole is left: whoever made it so long may be about to fill it.
            if not self.final:
                return None
            begin = self.size
        if begin > raw.offset:
            waited = self._desk.clock.monotonic() - self.changed_at
            if not self.final and waited < self._desk.config.hole_timeout:
                return None
            self._pass_over(begin - raw.offset)
        if begin >= self.size:
            return None
        self._data_end = os.lseek(fd, begin, os.SEEK_HOLE)
        return self._data_end

    def _pass_over(self, size: int) -> None:
        self._begin()
        self._lose("hole", size)
        self.raw.pass_over(size)

    def _deliver(self, data: bytes) -> None:
        if self.phase == "shadow":
            self.phase = "follows"
            self._afresh()
            return
        number = self._begin()
        self._desk.intake.data(number, data)
        self.content.add(data)
        self._desk.figures.chunks += 1
        self._desk.figures.bytes += len(data)

    def _begin(self) -> int:
        """The number of its session, begun now if need be."""
        if self.number is None:
            desk = self._desk
            self.number = desk.intake.open_file(
                self.facts,
                desk.files.group(self.path),
                record_max=desk.config.record_max,
                dialect=desk.config.dialect,
            )
        return self.number

    def _lose(self, detail: Literal["hole", "overwritten", "unread"], size: int) -> None:
        if self.number is not None:
            self._desk.intake.loss(self.number, Loss(detail=detail, size=size))
