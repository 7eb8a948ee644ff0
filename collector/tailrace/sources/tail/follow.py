"""One file and how far it is read.

A file is *new* until it has bytes, or *waits*; then it *follows* a session of its own. A *shadow* is
a file that begins as one that has ended: if all of it is that, it was read before; if there is more,
it is a file of its own. One that was *left* is not read until it is another incarnation.

`look` compares the file with what is known of it, `read` hands on its next piece. Both raise OSError
for what may be tried again, and neither waits.
"""

from __future__ import annotations

import os
from typing import Literal

from tailrace.ingest.state import FileFacts, FileState, Member
from tailrace.model.spelling import spelled
from tailrace.sources.tail import content, identity
from tailrace.sources.tail.content import BEGIN, Compressed, Plain, Reader, View
from tailrace.sources.tail.identity import Trail, Verification, judge
from tailrace.sources.tail.inflate import Bad, Begun, Torn
from tailrace.sources.tail.place import Located
from tailrace.sources.tail.raw import Hole
from tailrace.sources.tail.resting import Resting
from tailrace.sources.tail.session import Desk, Session

Phase = Literal["new", "waits", "follows", "shadow", "left"]
Origin = Literal["now", "earlier", "copied"]
"""Whether what is known of a file was read in this life of the daemon; in an earlier one, where its
changes may have been told already; or in another file, and has yet to be seen in this one."""


class Followed(Located):
    def __init__(self, desk: Desk, path: str, device: int, inode: int, birth: int) -> None:
        super().__init__(desk.descriptors, desk.clock, path, device, inode, birth)
        self.known = 0
        """Which file it was to become known: the first, the second, …; 0 before that."""
        self.rank = 0
        """The same of the first file that was known in its place."""
        self.phase: Phase = "new"
        self.undecided = True
        """While it is new or waits: something may have changed that."""
        self.reason = "empty"
        """What it waits for."""
        self.session = Session(desk)
        self.size = 0
        self.final = False
        """It will not change any more; what is there is all."""
        self.interval = 0.0
        self.due = 0.0
        self.queued = False
        self._desk = desk
        self._reader: Reader | None = None
        self._member: Member | None = None
        self._head: bytes | None = None
        self._signature: tuple[int, int, int] | None = None
        self._confirmed = False
        self._written_at: int | None = None
        """Its mtime when it was looked at last (Unix ns)."""
        self._touched = False
        """It was written to and has not grown: something we have read may have changed."""
        self._verification: Verification | None = None
        self._known_from: Origin = "now"
        self._resting = Resting(desk)

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState, now: float) -> Followed:
        """Of an earlier life; where it is now, nobody knows."""
        facts = state.facts
        file = cls(desk, facts.path, facts.device, facts.inode, facts.birth)
        file.phase = "follows"
        file.session = Session.resumed(desk, number, state)
        file._known_from = "earlier"
        file._resting = Resting(desk, facts.rest)
        file._go_on(file.session.content, facts.member)
        file.lose_path("deleted", now)
        return file

    @property
    def facts(self) -> FileFacts:
        return FileFacts(
            path=spelled(self.path), device=self.device, inode=self.inode, birth=self.birth,
            member=self._member, rest=self._resting.told,
        )  # fmt: skip

    @property
    def taken(self) -> int:
        """Bytes of the file that were read."""
        return self._reader.raw.trail.offset if self._reader else 0

    @property
    def behind(self) -> int:
        """Bytes known and not read."""
        return max(0, self.size - self.taken)

    @property
    def is_blank(self) -> bool:
        """Whether nothing of it was handed on."""
        return self.session.number is None and not self.session.content.offset

    @property
    def has_more(self) -> bool:
        """Whether there is anything to be read, or read once more."""
        return self.behind > 0 or self._verification is not None

    def look(self, now: float) -> bool:
        """See what has changed; whether another file is at its path."""
        found, replaced = self.find(now)
        if found is None:
            return replaced
        signature = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        changed = signature != self._signature
        if changed and not self.taken and self.is_succeeded(now):
            return True  # before the other one's size is taken for its own
        if self._written_at not in {None, found.st_mtime_ns}:
            self._touched |= found.st_size == self.size
        self._written_at = found.st_mtime_ns
        if changed or not self._confirmed:
            # Once more when it has come to rest: its times may be too coarse to tell of a change
            # in the moment of the last look.
            self._signature, self._confirmed, self._head = None, False, None
            self._examine(found.st_size)
            self._signature, self._confirmed = signature, not changed
            if changed:
                self.changed_at = now
                self.undecided = True
            elif self._touched:
                self._touched = False
                self._verify()
        return replaced

    def recognises(self, path: str) -> bool:
        """Whether the file at a path, which has the same device and inode, is this one and not one
        that was made after its end. Raise OSError."""
        if self.is_open:
            return True  # as long as it is open its inode is its own
        fd = self._desk.descriptors.roots.open(path)
        try:
            birth = self._system.birth(fd)
            if birth and self.birth:
                return birth == self.birth
            if path == self.path:
                return True
            known = self.session.content
            if identity.relation(known.head, content.head(fd)) == "other":
                return False
            if not isinstance(self._reader, Plain):
                return True
            head, last = identity.look(fd, known)
            return judge(known, head, last, grown=True).verdict == "same"
        finally:
            os.close(fd)

    def rest(self, now: float) -> None:
        """Say whether it rests: to be called when all of it is read. Raise OSError."""
        if self.changed_at == now or self._written_at is None or self.session.number is None:
            return
        if self._resting.look(self.path, self.birth, self._written_at, now - self.changed_at):
            self.session.tell(self.facts)

    def moved(self, path: str) -> None:
        """It has this path now."""
        if self.find_again(path):
            self.session.tell(self.facts)
        self.session.documents(path)

    def wait(self, reason: str) -> None:
        self.phase = "waits"
        self.reason = reason
        self.undecided = False

    def wait_for_original(self) -> None:
        """It may be a copy of another file; more of both may show that it is none."""
        self.phase = "waits"
        self.reason = "original"

    def step_back(self) -> None:
        """Begin again: it was blank, and another one has content that may be its own."""
        self.phase = "new"
        self.undecided = True
        self._afresh()

    def follow(self, shadowed: Trail | None) -> None:
        """Begin to read it; as the shadow of one that ended if there is one that begins like it."""
        self.phase = "follows"
        if shadowed is not None:
            self.phase = "shadow"
            self._go_on_after(shadowed)

    def take_over(self, original: Followed) -> None:
        """Go on with the session of a file of which it is a copy. Raise OSError."""
        self._go_on_after(original.session.content)
        self.phase = "follows"
        self.session, original.session = original.session, self.session
        self.session.tell(self.facts)
        self.session.documents(self.path)

    def leave(self, reason: str) -> None:
        """Close its session and read no more of it."""
        self.session.end(self.path, reason)
        self.phase = "left"

    def may_have_copy(self, other: Followed, head: bytes) -> bool:
        """Whether another file that begins with `head` may be a copy of this one."""
        known = self.session.content
        if identity.relation(known.head, head) == "other":
            return False
        if other.path == self.path:
            # A file that is begun again in the same place is shorter at first.
            return other.size >= self.taken
        return self.gone is not None or self.behind > 0 or len(head) <= known.offset

    def head(self) -> bytes:
        """The first bytes of its content, as far as they could be had when it changed last. Raise
        OSError."""
        if self._head is None:
            self._head = content.head(self.open())
        return self._head

    def read(self) -> bool:
        """Hand on the next piece; whether there may be more. Raise OSError."""
        fd = self.open()
        if self.phase not in {"follows", "shadow"}:
            return False
        reader = self._reader or self._begin(fd)
        if reader is None:
            return False
        waited = self._desk.clock.monotonic() - self.changed_at
        past_holes = self.final or waited >= self._desk.config.hole_timeout
        piece = reader.next(View(fd, self.size, past_holes, self.final))
        if piece is None:
            return self._verification is not None and self._go_on_verifying(fd, self._verification)
        if piece == "changed":
            self._signature = None
            return False
        if self.phase == "shadow" and not isinstance(piece, Begun) and piece != b"":
            # More than the file that it began like.
            self.phase = "follows"
            self._afresh()
        elif piece == "other":
            self._again("rewritten", 0)
        else:
            self._hand_on(piece)
        return True

    def close(self, reason: str, *, copied: bool) -> None:
        """It is over; what was not read never will be. If nothing was read and there may be a copy, nothing
        is known to be lost."""
        self._end(reason, 0 if copied and self.is_blank else self.behind)
        self.phase = "left"

    def _hand_on(self, piece: bytes | Hole | Begun | Torn | Bad) -> None:
        session = self.session
        self._resting.grows()
        match piece:
            case Begun(member):
                self._reach(member)
            case Torn(after):
                session.lose("torn_member", 0)
                self._reach(after)
            case Bad(size, data, after):
                session.bad(self.path, self.facts, size, data)
                self._reach(after)
            case Hole(size):
                session.hole(self.path, self.facts, size)
            case bytes():
                if piece:
                    session.data(self.path, self.facts, piece)

    def _reach(self, member: Member) -> None:
        """From here on a compressed file can be inflated again."""
        if member != self._member:
            self._member = member
            self.session.tell(self.facts)

    def _examine(self, size: int) -> None:
        """Compare what is there with what was read. Raise OSError."""
        fd = self.open() if self.taken else None
        before, self.size = self.size, size
        if fd is None or self._reader is None:
            if size < before:
                self._again("truncated", before)
            return
        trail = self._reader.raw.trail
        if size < trail.offset:
            if self._known_from != "copied":
                self._again("truncated", max(0, before - trail.offset))
            return
        head, last = identity.look(fd, trail)
        grown = size > trail.offset or self._known_from == "copied"
        verdict, differing = judge(trail, head, last, grown=grown)
        if verdict == "rewritten":
            self._again("rewritten", 0)
        elif verdict == "overwritten":
            trail.head, trail.last, trail.crc = head, last, None
            if isinstance(self._reader, Plain):
                self.session.content = trail.copied()
            if self._known_from == "now":
                self.session.lose("overwritten", differing)
        self._known_from = "now"

    def _verify(self) -> None:
        """See whether all that was read is still what it was, as far as that can be told."""
        reader = self._reader
        if isinstance(reader, Plain) and reader.raw.trail.crc is not None and self.taken:
            self._verification = Verification(reader.raw.trail)

    def _go_on_verifying(self, fd: int, verification: Verification) -> bool:
        """Whether there is more of it to be verified. Raise OSError."""
        same = verification.step(fd)
        if same is None:
            return True
        self._verification = None
        reader = self._reader
        if not same and reader is not None:
            # It may have become another file since the look.
            self._examine(self._system.fstat(fd).st_size)
            if self._reader is reader and reader.raw.trail.crc is not None:
                reader.raw.trail.crc = None  # told once
                self.session.lose("overwritten", 0)
        return False

    def _again(self, reason: str, unread: int) -> None:
        """What is there now is another incarnation."""
        self._end(reason, unread)
        self.phase = "follows" if self.phase == "shadow" else "new"
        self.undecided = True
        self._afresh()

    def _end(self, reason: str, unread: int) -> None:
        """End its session. If bytes are lost before any was read, a session begins that says so; where the
        file may be a copy of another one, these bytes are not known to be lost."""
        waits = self.phase == "waits" and self.reason != "original"
        if unread and (waits or self.phase in {"new", "follows"}):
            self.session.open(self.path, self.facts)
        self.session.end(self.path, reason, unread)

    def _afresh(self) -> None:
        self.session = Session(self._desk)
        self._reader = self._member = self._verification = None
        self._known_from = "now"
        self._resting = Resting(self._desk)

    def _begin(self, fd: int) -> Reader | None:
        """Read from its beginning, once its first bytes tell how. Raise OSError."""
        kind = content.kind(fd, final=self.final)
        if kind is not None:
            self._go_on(Trail(), BEGIN if kind is Compressed else None)
        return self._reader

    def _go_on_after(self, known: Trail) -> None:
        """The content of another file was read so far, and this one's is the same. Raise OSError."""
        kind = content.kind(self.open(), final=True)
        self._known_from = "copied"
        self._signature = None
        self._go_on(known, BEGIN if kind is Compressed else None)

    def _go_on(self, known: Trail, member: Member | None) -> None:
        """Go on after this content, which a compressed file has from this member on."""
        self._member = member
        if member is None:
            self._reader = Plain(known)
        else:
            self._reader = Compressed(member, known, certain=self._known_from != "copied")
