"""Follow one file and its reading progress.

A file is in one phase at a time (see `phase`). `watch` decides about waiting files.

`look` checks the file for changes; `read` passes on the next piece of the file. Both methods raise
OSError if a later attempt may succeed, and neither method blocks.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tailrace.model.spelling import spelled
from tailrace.sources.tail import content, identity
from tailrace.sources.tail.content import (
    BEGIN,
    Compressed,
    ContentSum,
    ContentView,
    ReadPart,
    SparseRange,
)
from tailrace.sources.tail.identity import ContentCheck, Trail, judge
from tailrace.sources.tail.inflate import Bad, InflationBegun, StatedLoss, Torn
from tailrace.sources.tail.location import AnotherFileError, FileStamp, Location, signature
from tailrace.sources.tail.phase import NEXT, READ, FileEvent, Phase
from tailrace.sources.tail.session import Desk, Handoff, Resting
from tailrace.spool.payloads import HEAD, FileFacts, FileState, Member

KEPT_OPEN = 60.0
"""Time (seconds) without a change after which a file is closed. While the file is open, bytes that
are written before the file's deletion can still be read."""


class Compared:
    """The state of a comparison of this file with another file.

    `part` is the part of the other file that was read. `changed_as` is the signature of this file
    at the comparison. `trail` covers the equal bytes so far. `found` is the result; None until all
    bytes are compared."""

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
        """Return the number of bytes that were read from the other file."""
        return (self.part or self).trail.offset


class CopyProof:
    """A proof, made in steps, that an unchanged file is a copy of what was read of another file.

    First, the file is summed up once. Its sum is then compared with all that was read of each other
    file or, if that is more and the other file is uncompressed, with as many bytes of the other
    file. The other files may grow meanwhile."""

    def __init__(self, fd: int) -> None:
        self.is_found = False
        """Whether the file is proven to be a copy."""
        self._content: ContentSum | Trail | None = ContentSum(fd)
        """The sum in progress, or the trail of the whole content; None if the content is damaged or
        incomplete."""
        self._checks: dict[ReadPart, ContentCheck | bool] = {}
        """The comparison with each part that was read of another file, or its result. False also
        means that nothing is proven."""

    @property
    def is_summing(self) -> bool:
        """Return whether the proof may hold an inflater."""
        return isinstance(self._content, ContentSum)

    @property
    def content_size(self) -> int | None:
        """Return the size (bytes) of the whole content; None before it is summed up, or if it is
        damaged."""
        return self._content.offset if isinstance(self._content, Trail) else None

    def step(self, fd: int, size: int, other: Followed, part: ReadPart) -> bool | None:
        """Read the next bytes of this file or of the other one. Return whether this file is a copy
        of `part`, which was read of the other one; None while the comparison is unfinished. Raise
        OSError."""
        if isinstance(self._content, ContentSum):
            whole = self._content.step(fd, size)
            if whole is not None:
                self._content = self._content.trail if whole else None
            return None if whole is not False else False
        if self._content is None:
            return False
        check = self._checks.get(part)
        if check is None:
            check = self._checks[part] = _comparison(self._content, other, part)
        if isinstance(check, ContentCheck):
            found = check.step(other.location.open())
            if found is None:
                return None
            check = self._checks[part] = found
        self.is_found |= check
        return check


def _comparison(own: Trail, other: Followed, part: ReadPart) -> ContentCheck | bool:
    """Return whether `own` is the content of a copy of the part that was read of another file, or
    the comparison that decides this."""
    read = other.handoff.content
    if other.handoff.lost or own.crc is None or own.offset > read.offset:
        return False
    if own.offset == read.offset and read.crc is not None:
        return own.crc == read.crc
    return ContentCheck(own) if part.is_plain else False


class Followed:
    """A known file, from its discovery until it is forgotten."""

    def __init__(self, desk: Desk, path: str, device: int, inode: int, birth: int) -> None:
        self.location = Location(desk.descriptors, desk.clock, path, device, inode, birth)
        self.known = 0
        """The file's sequence number in the order of discovery, from 1; 0 before the discovery."""
        self.rank = 0
        """The sequence number (`known`) of the first file that was found at this file's path."""
        self.phase = Phase.NEW
        self.handoff = Handoff(desk)
        self.size = 0
        self.final = False
        """Whether the file is complete and will not change any more."""
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
        """The file's modification time (Unix ns) at the last check."""
        self._touched = False
        """Whether the file was modified without growing, so that bytes already read may have
        changed."""
        self._resting = Resting(desk)
        self._compared: dict[Followed | Trail, Compared] = {}
        """Comparisons with other files, and with contents of ended files, whose copy this file may
        be by its name."""
        self._proof: CopyProof | None = None
        """The proof that this unchanged file is a copy of another file."""
        self.waited_from: float | None = None
        """The time from which the file has waited for possible originals, or from which a proven
        copy was changed."""

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState, now: float) -> Followed:
        """Return a file that an earlier run of the daemon followed. The file's path is unknown
        until a search finds the file again."""
        facts = state.facts
        file = cls(desk, facts.path, facts.device, facts.inode, facts.birth)
        file.phase = Phase.FOLLOWED
        file.handoff = Handoff.resumed(desk, number, state)
        file._part = ReadPart(file.handoff.content, facts.member, origin="earlier")
        file._resting = Resting(desk, facts.rest)
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
        """Return the number of bytes that were read from the file."""
        reader = self._part.reader
        return reader.trail.offset if reader else 0

    @property
    def behind(self) -> int:
        """Return the number of unread bytes according to the last check."""
        return max(0, self.size - self.taken)

    @property
    def compressed(self) -> Compressed | None:
        """Return the reader of a compressed file, or None."""
        reader = self._part.reader
        return reader if isinstance(reader, Compressed) else None

    @property
    def passed(self) -> int:
        """Return the sum of the file bytes that were read and the content bytes that were passed
        on."""
        return self.taken + self.handoff.content.offset

    def give_up_inflater(self) -> None:
        if (reader := self.compressed) is not None:
            reader.give_up(self.handoff.content)

    @property
    def is_blank(self) -> bool:
        """Return whether no content of the file was passed on."""
        return self.handoff.number is None and not self.handoff.content.offset

    @property
    def has_more(self) -> bool:
        """Return whether the file has unread bytes, or bytes to check again."""
        return self.behind > 0 or self._part.is_being_checked

    def look(self, now: float) -> bool:
        """Check the file for changes; return whether another file exists at its path. Raise
        OSError."""
        found, replaced = self.location.find(now)
        if found is None:
            return replaced
        now_as = signature(found)
        changed = now_as != self._signature
        if changed and not self.taken and self.location.is_succeeded(now):
            return True  # the size belongs to the other file
        if self._written_at not in {None, found.st_mtime_ns}:
            self._touched |= found.st_size == self.size
        self._written_at = found.st_mtime_ns
        if changed or not self._confirmed:
            # Examine the file once more after it has stopped changing, because coarse file times
            # may hide a change during the last check.
            self._signature, self._confirmed, self._head = None, False, None
            try:
                self._examine(found.st_size)
            except AnotherFileError:
                return True  # without a free descriptor, the replacement was not detected earlier
            self._signature, self._confirmed = now_as, not changed
            if changed:
                self.location.changed_at = now
                if self.is_proven:
                    self.waited_from = now
                self._proof = None
            elif self._touched:
                self._touched = False
                self._part.begin_check()
        return replaced

    def recognises(self, path: str) -> bool:
        """Return whether the file at a path is this file, and not a later file with the same device
        and inode. Raise OSError."""
        at = self.location
        if at.is_open:
            return True  # no other file can have the inode of an open file
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
        """Report to the intake whether the file rests: its writer has ended, or the file was not
        written for a long time. Call this method after the whole file is read. Raise OSError."""
        at = self.location
        if at.changed_at == now or self._written_at is None or self.handoff.number is None:
            return
        unchanged, pending = now - at.changed_at, self._part.pending
        if self._resting.look(at.path, at.birth, self._written_at, unchanged, pending):
            self.handoff.tell(self.facts)

    def let_rest(self, now: float) -> None:
        """Close the file until its next change. The whole file must be read, and must rest or be
        unchanged for `KEPT_OPEN` seconds."""
        rests = self._resting.told is not None or now - self.location.changed_at >= KEPT_OPEN
        if rests and self._confirmed and self._signature:
            self.location.close_until(self._signature)

    def moved(self, path: str) -> None:
        """Record that the file is followed, and that its path is `path` now."""
        if self.location.find_again(path) | self._resting.is_followed():
            self.handoff.tell(self.facts)
        self.handoff.documents(path)

    def wait_for(self, event: FileEvent) -> None:
        """Let the file wait, because it may be a copy of another file, or another source follows
        it. A later check may end the wait."""
        self.phase = NEXT[event][self.phase]
        if event is not FileEvent.MAY_BE_COPY:
            self._forget_originals()
        elif self.waited_from is None:
            self.waited_from = self._desk.clock.monotonic()

    def unchanged(self, now: float) -> float:
        """Return the time (seconds) for which the file was not seen to change."""
        return now - self.location.changed_at

    def shadow(self, ended: Trail) -> None:
        """Begin to read the file as a shadow of an ended file. Raise OSError."""
        self._go_on_after(ended)
        self.phase = NEXT[FileEvent.CHOSEN_AS_SHADOW][self.phase]

    def take_over(self, original: Followed) -> None:
        """Continue the session of the original that this file is a copy of. Raise OSError."""
        self._go_on_after(original.handoff.content)
        self.phase = NEXT[FileEvent.CHOSEN][self.phase]
        self.handoff, original.handoff = original.handoff, self.handoff
        self.handoff.tell(self.facts)
        self.handoff.documents(self.location.path)

    def leave(self, reason: str) -> None:
        """Close the file's session and stop reading the file."""
        self.handoff.end(self.location.path, reason)
        self.phase = NEXT[FileEvent.ENDED][self.phase]

    def may_have_copy(self, other: Followed, head: bytes) -> bool:
        """Return whether another file, which begins with `head`, may be a copy of this file."""
        known = self.handoff.content
        if identity.relation(known.head, head) == "other":
            return False
        if other.location.path == self.location.path:
            # A file that is started again at its path is shorter at first.
            return other.size >= self.taken
        return self.location.gone is not None or self.behind > 0 or len(head) <= known.offset

    @property
    def was_part(self) -> bool:
        """Return whether the unchanged file is contained in another file: all bytes of this file
        are part of the bytes that were read from the other file."""
        return self.is_proven or any(
            each.found and each.changed_as == self._signature and self._suffices(each.taken)
            for each in self._compared.values()
        )

    def _suffices(self, whole: int) -> bool:
        """Return whether this file is long enough to count as a part of another file with `whole`
        bytes. Many files begin with the same header."""
        return self.size == whole or HEAD <= self.size < whole

    @property
    def is_summing(self) -> bool:
        """Return whether a proof (`proves`) of this file makes progress and may hold an inflater."""
        waits = self.phase in {Phase.NEW, Phase.COPY}
        return waits and self._proof is not None and self._proof.is_summing

    def give_up_sum(self) -> None:
        """Release the inflater of an unfinished proof."""
        if self._proof is not None and self._proof.is_summing:
            self._proof = None

    def is_ahead_of(self, other: Followed) -> bool:
        """Return whether this file is known to have more content than was read of another file, and
        the other file has unread bytes."""
        own = self._proof.content_size if self._proof else None
        unread = other.has_more or other.queued
        return own is not None and own > other.handoff.content.offset and unread

    @property
    def is_proven(self) -> bool:
        """Return whether the unchanged file is proven to be a copy of another file."""
        return self._proof is not None and self._proof.is_found

    def proves(self, other: Followed) -> bool | None:
        """Return whether the part that was read of another file is proven to begin with this file's
        whole content, or None while the proof is unfinished. Raise OSError."""
        try:
            fd = self.location.open()
            if self._proof is None:
                self._proof = CopyProof(fd)
            return self._proof.step(fd, self.size, other, other._part)
        except OSError:
            self._proof = None  # release the inflater; a later check begins again
            raise

    def is_part_of(self, other: Followed) -> bool | None:
        """Return whether another file begins with all bytes of this file, or None while the
        comparison is unfinished. Raise OSError if this file cannot be read."""
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
            with suppress(OSError):  # the other file's own check reports the error
                theirs = os.pread(other.location.open(), len(data), trail.offset)
                if not identity.differing(data, theirs, trail.offset):
                    trail.add(data)
                    known.found = trail.offset >= self.size or (None if data else False)
        return known.found

    def was_read_as(self, content: Trail) -> bool | None:
        """Return whether this file has the content of an ended uncompressed file, or None while the
        comparison is unfinished. Raise OSError."""
        if content.offset != self.size or content.crc is None:
            return False
        known = self._compared.get(content)
        if known is None or known.changed_as != self._signature:
            known = self._compared[content] = Compared(None, self._signature, content)
        if known.found is None:
            known.found = known.check.step(self.location.open())
        return known.found

    def head(self) -> bytes:
        """Return the first bytes of the file's content, as found after its last change. Raise
        OSError."""
        if self._head is None:
            self._head = content.head(self.location.open())
        return self._head

    def read(self) -> bool:
        """Read the next piece of the file and pass it on; return whether there may be more pieces.
        Raise OSError."""
        fd = self.location.open()
        if self.phase not in READ:
            return False
        if self._part.reader is None and (kind := content.kind(fd, final=self.final)):
            self._forget_originals()
            self._part = ReadPart(Trail(), BEGIN if kind is Compressed else None)
            if kind is Compressed:
                return True  # the file's inflater waits for its turn
        part = self._part
        if part.reader is None:
            return False  # the file has too few bytes to determine its type
        waited = self._desk.clock.monotonic() - self.location.changed_at
        past_holes = self.final or waited >= self._desk.config.hole_timeout
        piece = part.reader.next(ContentView(fd, self.size, past_holes, self.final))
        if piece is None:
            return part.is_being_checked and self._go_on_checking(fd)
        if piece == "changed":
            self._signature = None
            return False
        if self.phase is Phase.SHADOW and not isinstance(piece, InflationBegun) and piece != b"":
            self.reset(FileEvent.LONGER)
        elif piece == "other":
            self._begin_incarnation("rewritten", 0)
        else:
            self._hand_on(piece)
        return True

    def close(self, reason: str, *, copied: bool) -> None:
        """End the file. Unread bytes count as lost, unless nothing was read and a copy may exist."""
        self._end(reason, 0 if copied and self.is_blank else self.behind)
        self.phase = NEXT[FileEvent.ENDED][self.phase]

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
                handoff.open(path, self.facts)
                handoff.lose("bad_member", size, data)
                self._reach(after)
            case StatedLoss(detail, size, after):
                handoff.open(path, self.facts)
                handoff.lose(detail, size, stated=True)
                self._reach(after)
            case SparseRange(size):
                handoff.open(path, self.facts)
                handoff.lose("hole", size)
                handoff.content.pass_over(size)
            case bytes():
                if piece:
                    handoff.data(path, self.facts, piece)

    def _reach(self, member: Member) -> None:
        """Record that the compressed file can be decompressed again from `member` on."""
        if member != self._part.member:
            self._part.member = member
            self.handoff.tell(self.facts)

    def _examine(self, found: int) -> None:
        """Compare the file with the bytes that were read from it. `found` is the file's size at
        this check. Raise OSError."""
        fd = self.location.open() if self.taken else None
        before, self.size = self.size, found
        if fd is None:
            if found < before:
                self._begin_incarnation("truncated", before)
            return
        part = self._part
        head, last = identity.look(fd, part.trail)
        # Read the size after these bytes, so that both belong to the same version of the file: the
        # file may have been replaced since the check.
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
        """Return whether a compressed file from an earlier run has different content now. Raise
        OSError."""
        if not self._part.is_compressed_earlier:
            return False
        return identity.relation(self.handoff.content.head, self.head()) == "other"

    def _go_on_checking(self, fd: int) -> bool:
        """Check more of the file's bytes; return whether bytes are left to check. Raise OSError."""
        part = self._part
        same = part.check_more(fd)
        if same is False:
            # The file may have been replaced since the last check.
            self._examine(self._system.fstat(fd).st_size)
            if self._part is part and part.distrust():
                self.handoff.lose("overwritten", 0)
        return same is None

    def _begin_incarnation(self, reason: str, unread: int) -> None:
        """End the session, because the file was replaced, truncated or rewritten."""
        self._end(reason, unread)
        self.reset(FileEvent.REWRITTEN)

    def _end(self, reason: str, unread: int) -> None:
        """End the file's session. If bytes are lost before any byte was read, open a session that
        reports the loss. No loss is reported if the file may be a copy of another file, or if
        another source follows the file."""
        if unread and self.phase in {Phase.NEW, Phase.CROWDED, Phase.FOLLOWED}:
            self.handoff.open(self.location.path, self.facts)
        self.handoff.end(self.location.path, reason, unread)

    def reset(self, event: FileEvent) -> None:
        """Forget what was read, after an event that begins a new session or withdraws the decision."""
        self.phase = NEXT[event][self.phase]
        self.handoff = Handoff(self._desk)
        self._part = ReadPart()
        self._resting = Resting(self._desk)
        self._forget_originals()

    def _forget_originals(self) -> None:
        self._compared.clear()
        self._proof = self.waited_from = None

    def _go_on_after(self, known: Trail) -> None:
        """Continue after content that was read from another file and is equal in this file. Raise
        OSError."""
        kind = content.kind(self.location.open(), final=True)
        self._signature = None
        self._forget_originals()
        self._part = ReadPart(known, BEGIN if kind is Compressed else None, origin="copied")
