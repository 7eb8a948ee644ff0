"""One file and how far it is read.

A file is *new* until it has bytes, and may have to *wait*. Then it *follows*: it is read into a
session of its own. A *shadow* is a file that begins like one that has ended. If it holds no more than
that file, it was read before; if it holds more, it is a file of its own. A file that was *left* is
not read until another incarnation is in its place.

`look` compares the file with what is known of it; `read` hands on its next piece. Both raise OSError
when a later try may succeed, and neither waits.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from tailrace.model.spelling import spelled
from tailrace.sources.tail import content, identity
from tailrace.sources.tail.content import BEGIN, Compressed, ContentView, ReadPart, SparseRange
from tailrace.sources.tail.identity import ContentCheck, Trail, judge
from tailrace.sources.tail.inflate import Bad, InflationBegun, StatedLoss, Torn
from tailrace.sources.tail.location import AnotherFileError, FileStamp, Location, signature
from tailrace.sources.tail.session import Desk, Handoff, Resting
from tailrace.spool.payloads import HEAD, FileFacts, FileState, Member

KEPT_OPEN = 60.0
"""Seconds without a change after which a file is closed. Until then bytes that are written and deleted between two looks are
read."""

Phase = Literal["new", "waits", "follows", "shadow", "left"]


class Compared:
    """How a file compares with another one. `trail` are the equal bytes so far. `part` is what is read of the other file, and
    `changed_as` the signature of this one when they were compared. `found` is None until all bytes are compared."""

    def __init__(
        self,
        part: ReadPart | None,
        changed_as: FileStamp | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.part = part
        self.changed_as = changed_as
        self.trail = trail or Trail()
        self.check = ContentCheck(self.trail)
        self.found: bool | None = None

    @property
    def taken(self) -> int:
        """Return how many bytes of the other file were read."""
        return (self.part or self).trail.offset


class Followed:
    """A known file, from when it is found until it is forgotten."""

    def __init__(self, desk: Desk, path: str, device: int, inode: int, birth: int) -> None:
        self.location = Location(desk.descriptors, desk.clock, path, device, inode, birth)
        self.known = 0
        """Its number in the order in which files became known, from 1; 0 before that."""
        self.rank = 0
        """The `known` of the first file that was known in its place."""
        self.phase: Phase = "new"
        self.undecided = True
        """Whether something may have changed that decides if a new or waiting file is followed."""
        self.reason = "empty"
        """The cause for which it waits."""
        self.handoff = Handoff(desk)
        self.size = 0
        self.final = False
        """Whether it will not change any more, so that all of it is there."""
        self.interval = 0.0
        self.due = 0.0
        self.queued = False
        self._desk = desk
        self._system = desk.descriptors.roots.system
        self._part = ReadPart()
        self._head: bytes | None = None
        self._signature: FileStamp | None = None
        self._confirmed = False
        self._written_at: int | None = None
        """Its time of modification at the last look (Unix ns)."""
        self._touched = False
        """Whether it was written to without growing, so that bytes already read may have changed."""
        self._resting = Resting(desk)
        self._compared: dict[Followed | Trail, Compared] = {}
        """The files, and contents of ended ones, that this file may be a copy of by its name."""

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState, now: float) -> Followed:
        """Return a file that an earlier life of the daemon followed. Its path is not known until it
        is found again."""
        facts = state.facts
        file = cls(desk, facts.path, facts.device, facts.inode, facts.birth)
        file.phase = "follows"
        file.handoff = Handoff.resumed(desk, number, state)
        file._part = ReadPart("earlier")
        file._resting = Resting(desk, facts.rest)
        file._part.go_on(file.handoff.content, facts.member)
        file.location.lose_path("deleted", now)
        return file

    @property
    def facts(self) -> FileFacts:
        at = self.location
        return FileFacts(
            path=spelled(at.path), device=at.device, inode=at.inode, birth=at.birth,
            member=self._part.member, rest=self._resting.told,
        )  # fmt: skip

    @property
    def taken(self) -> int:
        """Return how many bytes of the file were read."""
        reader = self._part.reader
        return reader.trail.offset if reader else 0

    @property
    def behind(self) -> int:
        """Return how many known bytes were not read."""
        return max(0, self.size - self.taken)

    @property
    def compressed(self) -> Compressed | None:
        """Return the reader of a compressed file."""
        reader = self._part.reader
        return reader if isinstance(reader, Compressed) else None

    @property
    def passed(self) -> int:
        """Return how many bytes of the file, and of its content, were read and handed on."""
        return self.taken + self.handoff.content.offset

    def give_up_inflater(self) -> None:
        if (reader := self.compressed) is not None:
            reader.give_up(self.handoff.content)

    @property
    def is_blank(self) -> bool:
        """Return whether nothing of it was handed on."""
        return self.handoff.number is None and not self.handoff.content.offset

    @property
    def has_more(self) -> bool:
        """Return whether there are bytes to read, or to read once more."""
        return self.behind > 0 or self._part.is_being_checked

    def look(self, now: float) -> bool:
        """Look for changes; return whether another file is at its path. Raise OSError."""
        found, replaced = self.location.find(now)
        if found is None:
            return replaced
        now_as = signature(found)
        changed = now_as != self._signature
        if changed and not self.taken and self.location.is_succeeded(now):
            return True  # the size that was found is the other file's
        if self._written_at not in {None, found.st_mtime_ns}:
            self._touched |= found.st_size == self.size
        self._written_at = found.st_mtime_ns
        if changed or not self._confirmed:
            # Examine it once more when it has come to rest: its times may be too coarse to show a
            # change at the moment of the last look.
            self._signature, self._confirmed, self._head = None, False, None
            try:
                self._examine(found.st_size)
            except AnotherFileError:
                return True  # no descriptor was spare to notice it before
            self._signature, self._confirmed = now_as, not changed
            if changed:
                self.location.changed_at = now
                self.undecided = True
            elif self._touched:
                self._touched = False
                self._part.begin_check()
        return replaced

    def recognises(self, path: str) -> bool:
        """Return whether the file at a path, which has the same device and inode, is this file and
        none that was made after its end. Raise OSError."""
        at = self.location
        if at.is_open:
            return True  # no other file gets the inode of an open one
        fd = self._desk.descriptors.roots.open(path)
        try:
            birth = self._system.birth(fd)
            if birth and at.birth:
                return birth == at.birth
            if path == at.path:
                return True
            known = self.handoff.content
            if identity.relation(known.head, content.head(fd)) == "other":
                return False
            if not self._part.is_plain:
                return True
            head, last = identity.look(fd, known)
            return judge(known, head, last, grown=True).verdict == "same"
        finally:
            os.close(fd)

    def rest(self, now: float) -> None:
        """Hand on whether the file rests. Call this when all of it is read. Raise OSError."""
        at = self.location
        if at.changed_at == now or self._written_at is None or self.handoff.number is None:
            return
        unchanged, pending = now - at.changed_at, self._part.pending
        if self._resting.look(at.path, at.birth, self._written_at, unchanged, pending):
            self.handoff.tell(self.facts)

    def let_rest(self, now: float) -> None:
        """Close the file until it changes, if all of it is read and it rests or has not changed for long."""
        rests = self._resting.told is not None or now - self.location.changed_at >= KEPT_OPEN
        if rests and self._confirmed and self._signature:
            self.location.close_until(self._signature)

    def moved(self, path: str) -> None:
        """Note that the file is followed, and has this path now."""
        if self.location.find_again(path) | self._resting.is_followed():
            self.handoff.tell(self.facts)
        self.handoff.documents(path)

    def wait(self, reason: str) -> None:
        self.phase = "waits"
        self.reason = reason
        self.undecided = False

    def wait_for(self, reason: Literal["original", "source"]) -> None:
        """Wait, because the file may be a copy of another one, or another source follows it. A later look may show that
        this is over."""
        self.phase = "waits"
        self.reason = reason

    def step_back(self) -> None:
        """Start again: nothing of this file was read, and the bytes of another file may be its own."""
        self.phase = "new"
        self.undecided = True
        self._reset()

    def follow(self, shadowed: Trail | None) -> None:
        """Begin to read the file: as the shadow of an ended file, if there is one that begins like
        it."""
        self.phase = "follows"
        self._compared.clear()
        if shadowed is not None:
            self.phase = "shadow"
            self._go_on_after(shadowed)

    def take_over(self, original: Followed) -> None:
        """Continue the session of a file that this one is a copy of. Raise OSError."""
        self._go_on_after(original.handoff.content)
        self.phase = "follows"
        self.handoff, original.handoff = original.handoff, self.handoff
        self.handoff.tell(self.facts)
        self.handoff.documents(self.location.path)

    def leave(self, reason: str) -> None:
        """Close its session and read no more of it."""
        self.handoff.end(self.location.path, reason)
        self.phase = "left"

    def may_have_copy(self, other: Followed, head: bytes) -> bool:
        """Return whether another file that begins with `head` may be a copy of this one."""
        known = self.handoff.content
        if identity.relation(known.head, head) == "other":
            return False
        if other.location.path == self.location.path:
            # A file that is begun again in the same place is shorter at first.
            return other.size >= self.taken
        return self.location.gone is not None or self.behind > 0 or len(head) <= known.offset

    @property
    def was_part(self) -> bool:
        """Return whether all bytes of this file, which has not changed since, are among those that were read of another one."""
        return any(
            each.found and each.changed_as == self._signature and self._suffices(each.taken)
            for each in self._compared.values()
        )

    def _suffices(self, whole: int) -> bool:
        """Return whether this file is long enough to be part of another one by its name: many begin with the same header."""
        return self.size == whole or HEAD <= self.size < whole

    def is_part_of(self, other: Followed) -> bool | None:
        """Return whether another file begins with all bytes of this one, None while they are still being compared. Raise
        OSError for this file."""
        if not self._suffices(other.size):
            return False
        known = self._compared.get(other)
        if known is None or known.part is not other._part:
            known = self._compared[other] = Compared(other._part)
        trail = known.trail
        if known.changed_as != self._signature:
            known.changed_as, known.found = self._signature, None
            head, last = identity.look(self.location.open(), trail)
            if self.size < trail.offset or judge(trail, head, last, grown=True).verdict != "same":
                trail = known.trail = Trail()
        if known.found is None:
            size = min(identity.VERIFY_BYTES, self.size - trail.offset)
            data = os.pread(self.location.open(), size, trail.offset)
            known.found = False
            with suppress(OSError):  # the other file's own look reports it
                theirs = os.pread(other.location.open(), len(data), trail.offset)
                if not identity.differing(data, theirs, trail.offset):
                    trail.add(data)
                    known.found = trail.offset >= self.size or (None if data else False)
        return known.found

    def was_read_as(self, content: Trail) -> bool | None:
        """Return whether this is the content of a plain file that has ended, None while it is still being compared. Raise
        OSError."""
        if content.offset != self.size or content.crc is None:
            return False
        known = self._compared.get(content)
        if known is None or known.changed_as != self._signature:
            known = self._compared[content] = Compared(None, self._signature, content)
        if known.found is None:
            known.found = known.check.step(self.location.open())
        return known.found

    def head(self) -> bytes:
        """Return the first bytes of its content, as far as they were there when it changed last.
        Raise OSError."""
        if self._head is None:
            self._head = content.head(self.location.open())
        return self._head

    def read(self) -> bool:
        """Hand on the next piece; return whether there may be more. Raise OSError."""
        fd = self.location.open()
        if self.phase not in {"follows", "shadow"}:
            return False
        part = self._part
        if part.reader is None and (kind := content.kind(fd, final=self.final)):
            part.go_on(Trail(), BEGIN if kind is Compressed else None)
            if kind is Compressed:
                return True  # its inflater waits for its turn
        if part.reader is None:
            return False  # its first bytes do not tell yet what it is
        waited = self._desk.clock.monotonic() - self.location.changed_at
        past_holes = self.final or waited >= self._desk.config.hole_timeout
        piece = part.reader.next(ContentView(fd, self.size, past_holes, self.final))
        if piece is None:
            return part.is_being_checked and self._go_on_checking(fd)
        if piece == "changed":
            self._signature = None
            return False
        if self.phase == "shadow" and not isinstance(piece, InflationBegun) and piece != b"":
            # It holds more than the file that it began like.
            self.phase = "follows"
            self._reset()
        elif piece == "other":
            self._begin_incarnation("rewritten", 0)
        else:
            self._hand_on(piece)
        return True

    def close(self, reason: str, *, copied: bool) -> None:
        """End the file. Unread bytes are lost; if nothing was read and a copy may exist, no loss is
        known."""
        self._end(reason, 0 if copied and self.is_blank else self.behind)
        self.phase = "left"

    def _hand_on(
        self, piece: bytes | SparseRange | InflationBegun | Torn | Bad | StatedLoss
    ) -> None:
        handoff, path = self.handoff, self.location.path
        self._resting.grows()
        match piece:
            case InflationBegun(member):
                self._reach(member)
            case Torn(after):
                handoff.lose("torn_member", 0)
                self._reach(after)
            case Bad(size, data, after):
                handoff.bad(path, self.facts, size, data)
                self._reach(after)
            case StatedLoss(detail, size, after):
                handoff.open(path, self.facts)
                handoff.lose(detail, size, stated=True)
                self._reach(after)
            case SparseRange(size):
                handoff.hole(path, self.facts, size)
            case bytes():
                if piece:
                    handoff.data(path, self.facts, piece)

    def _reach(self, member: Member) -> None:
        """Note that a compressed file can be inflated again from here on."""
        if member != self._part.member:
            self._part.member = member
            self.handoff.tell(self.facts)

    def _examine(self, found: int) -> None:
        """Compare the file with the bytes that were read from it. `found` is its size at this look. Raise OSError."""
        fd = self.location.open() if self.taken else None
        before, self.size = self.size, found
        if fd is None:
            if found < before:
                self._begin_incarnation("truncated", before)
            return
        part = self._part
        head, last = identity.look(fd, part.trail)
        # Another incarnation may have begun since the look. The size is taken after these bytes, so that it
        # belongs to the same incarnation.
        self.size = self._system.fstat(fd).st_size
        verdict, differing = part.compare(head, last, self.size, self._begins_otherwise)
        if verdict in {"truncated", "rewritten"}:
            known = max(before, found)
            self._begin_incarnation(verdict, max(0, known - self.taken) if self.size < known else 0)
        elif verdict == "overwritten":
            if part.is_plain:
                self.handoff.content = part.trail.copied()
            if differing:
                self.handoff.lose("overwritten", differing)

    def _begins_otherwise(self) -> bool:
        """Return whether a compressed file that an earlier life read has other content now. Raise OSError."""
        if not self._part.is_compressed_earlier:
            return False
        return identity.relation(self.handoff.content.head, self.head()) == "other"

    def _go_on_checking(self, fd: int) -> bool:
        """Check some more of it; return whether more is left to check. Raise OSError."""
        part = self._part
        same = part.check_more(fd)
        if same is False:
            # It may have become another file since the look.
            self._examine(self._system.fstat(fd).st_size)
            if self._part is part and part.distrust():
                self.handoff.lose("overwritten", 0)
        return same is None

    def _begin_incarnation(self, reason: str, unread: int) -> None:
        """End the session, because the file is another incarnation now."""
        self._end(reason, unread)
        self.phase = "follows" if self.phase == "shadow" else "new"
        self.undecided = True
        self._reset()

    def _end(self, reason: str, unread: int) -> None:
        """End its session. If bytes are lost before any was read, open a session that says so. Where
        the file may be a copy of another one, or another source follows it, the bytes are not known to be lost."""
        waits = self.phase == "waits" and self.reason == "files_max"
        if unread and (waits or self.phase in {"new", "follows"}):
            self.handoff.open(self.location.path, self.facts)
        self.handoff.end(self.location.path, reason, unread)

    def _reset(self) -> None:
        self.handoff = Handoff(self._desk)
        self._part = ReadPart()
        self._resting = Resting(self._desk)

    def _go_on_after(self, known: Trail) -> None:
        """Continue after content that was read of another file and is the same in this one. Raise
        OSError."""
        kind = content.kind(self.location.open(), final=True)
        self._signature = None
        self._part = ReadPart("copied")
        self._part.go_on(known, BEGIN if kind is Compressed else None)
