"""Follow one file and its reading progress.

A file is in one phase at a time (see `phase`). `look` checks the file for changes; `read` passes the next part of its
content to the daemon. Neither method blocks. Both raise OSError if a system call fails; the caller then calls them
again later."""

from __future__ import annotations

import os
from contextlib import suppress

from tailrace.decoding.formats import FORMATS
from tailrace.filesystem import spelled
from tailrace.sources.tail import content, identity
from tailrace.sources.tail.comparison import Compared, CopyProof
from tailrace.sources.tail.content import (
    BEGIN,
    Compressed,
    ContentView,
    ReadPart,
    SparseRange,
)
from tailrace.sources.tail.identity import FormatCheck, Judgement, Trail, judge
from tailrace.sources.tail.inflate import InflationBegun, LostPart
from tailrace.sources.tail.location import AnotherFileError, FileStamp, Location, signature
from tailrace.sources.tail.phase import NEXT, READ, FileEvent, Phase
from tailrace.sources.tail.session import Desk, Handoff, Resting
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import HEAD, LAST, FileFacts, FileState, Member

KEPT_OPEN = 60.0
"""Time (seconds) without a change after which a file is closed. Until then it stays open, because an open file can be
read even after its deletion."""


class Followed:
    """A known file, from its discovery until it is forgotten."""

    def __init__(self, desk: Desk, path: str, device: int, inode: int, birth: int) -> None:
        self.location = Location(desk.descriptors, desk.clock, path, device, inode, birth)
        self.known = 0
        """The file's sequence number in the order of discovery, from 1; 0 before the discovery."""
        self.rank = 0
        """The sequence number of the first file that was found at this path. Files that may be copies of each other are
        sorted by this number."""
        self.phase = Phase.NEW
        self.handoff = Handoff(desk)
        self.size = 0
        self.final = False
        """Whether the file will not change any more, so that it is read to its end and closed."""
        self.interval = 0.0
        self.due = 0.0
        self.queued = False
        self._desk = desk
        self._system = desk.descriptors.roots.system
        self._part = ReadPart()
        self._head: bytes | None = None
        self.format = FormatCheck()
        self._signature: FileStamp | None = None
        self._confirmed = False
        self._written_at: int | None = None
        self._touched = False
        """Whether the modification time has changed but not the size, so that bytes may have been overwritten."""
        self._resting = Resting(desk)
        self.copied_in: tuple[str, ...] = ()
        """Ids of other sessions whose files together have all content of this file, as the source has reported to the
        daemon."""
        self._compared: dict[Followed | Trail, Compared] = {}
        """Comparisons of this file with its possible originals: known files, or the content of files whose sessions
        have ended."""
        self._proof: CopyProof | None = None
        """The comparison that proves whether this file is a copy; None after this file has changed."""
        self.waited_from: float | None = None
        """Time since which the file has waited as a possible copy: the begin of the wait, or the last change of a file
        that was proven to be a copy. None if the file does not wait."""

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState, now: float) -> Followed:
        """Return the file of a session that an earlier run of the daemon left open. The file's path is unknown until
        the next search of the directories."""
        facts = state.facts
        file = cls(desk, facts.path, facts.device, facts.inode, facts.birth)
        file.phase = Phase.FOLLOWED
        file.handoff.number, file.handoff.sent = number, state.documents.copy()
        file.handoff.content = Trail(state.offset, state.head, state.last)
        if state.offset or (facts.member or BEGIN) != BEGIN:
            file._part = ReadPart(file.handoff.content, facts.member, origin="earlier")
            file.handoff.content.crc = state.crc
        file._resting = Resting(desk, facts.rest)
        file.copied_in = facts.copied_in
        file.location.lose_path("deleted", now)
        return file

    @property
    def facts(self) -> FileFacts:
        at = self.location
        return FileFacts(
            path=spelled(at.path), device=at.device, inode=at.inode, birth=at.birth,
            member=self._part.member, rest=self._resting.told, copied_in=self.copied_in,
        )  # fmt: skip

    @property
    def taken(self) -> int:
        """Return the number of bytes that were read from the file so far."""
        reader = self._part.reader
        return reader.trail.offset if reader else 0

    @property
    def behind(self) -> int:
        """Return the number of unread bytes that the file had at its last check."""
        return max(0, self.size - self.taken)

    @property
    def compressed(self) -> Compressed | None:
        reader = self._part.reader
        return reader if isinstance(reader, Compressed) else None

    @property
    def passed(self) -> int:
        """Return the number of bytes read from the file plus the number of (decompressed) bytes of content passed to
        the daemon."""
        return self.taken + self.handoff.content.offset

    def give_up_inflater(self) -> None:
        if (reader := self.compressed) is not None:
            reader.give_up(self.handoff.content)

    @property
    def is_blank(self) -> bool:
        return self.handoff.number is None and not self.handoff.content.offset

    @property
    def has_more(self) -> bool:
        """Return whether the file has unread bytes, or bytes that must be compared with the bytes read before."""
        return self.behind > 0 or self._part.is_being_checked

    def look(self, now: float) -> bool:
        """Check the file for changes; return whether another file is at its path now. Raise OSError if that fails."""
        replaced = self._look(now)
        if replaced:
            # From now on, the documents (metadata files) beside the path belong to the file that has replaced the
            # followed one.
            self._desk.documents.forget(self.handoff)
        return replaced

    def _look(self, now: float) -> bool:
        found, replaced = self.location.find(now)
        if found is None:
            return replaced
        now_as = signature(found)
        changed = now_as != self._signature
        if changed and not self.taken and self.location.is_succeeded(now):
            return True  # the size differs because another file is at the path now
        if self._written_at not in {None, found.st_mtime_ns}:
            self._touched |= found.st_size == self.size
        self._written_at = found.st_mtime_ns
        if changed or not self._confirmed:
            # The file's times have a limited resolution, so compare the file once more when it has stopped changing.
            self._signature, self._confirmed, self._head = None, False, None
            try:
                self._examine(found.st_size)
            except AnotherFileError:
                return True  # opening the file has shown that another file is at the path
            self._signature, self._confirmed = now_as, not changed
            if changed:
                self.location.changed_at = now
                if self.is_proven:
                    self.waited_from = now
                self._proof = None
            elif self._touched:
                self._touched = False
                self._part.begin_check()
        if self.handoff.is_moved and self.location.gone is None:
            # Pass on the documents (metadata files beside this file) only after the checks above. If other content is
            # at the path, the documents do not belong to this session.
            self.handoff.documents(self.location.path)
        return replaced

    def recognises(self, path: str) -> bool:
        """Return whether the file at a path is this file, not a later file with the same inode. Raise OSError on
        failure."""
        if self.location.is_open:
            return True  # while a file is open, no other file can have its inode
        fd = self._desk.descriptors.roots.open(path)
        try:
            return self._has_read(fd, path)
        finally:
            os.close(fd)

    def has_read(self, other: Followed) -> bool:
        """Return whether this session has already read the file `other`, which waits to be read and has the same device
        and inode."""
        # If neither creation times nor contents decide, return True, so that no file is read twice.
        at, birth = other.location, self.location.birth
        if birth and at.birth:
            return birth == at.birth
        try:
            return not at.is_readable or self._has_read(at.open(), at.path)
        except OSError:
            # The next check of `other` compares the contents, or reports its own error.
            return True

    def become(self, other: Followed) -> None:
        """Continue this file's session with the path, descriptor and size of `other`, which is the same file."""
        self.location, self.size = other.location, other.size
        self._resting.is_followed()
        self.handoff.tell(self.facts)
        self.handoff.moved()

    def _has_read(self, fd: int, path: str) -> bool:
        """Return whether the open file `fd` at the path `path` is the file that this session has read."""
        at, birth = self.location, self._system.birth(fd)
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

    def has(self, data: bytes, at: int) -> bool:
        """Return whether the file has the given bytes at an offset. Return True for a compressed file without reading
        it. Raise OSError if the file cannot be read."""
        return not self._part.is_plain or os.pread(self.location.open(), len(data), at) == data

    def rest(self, now: float) -> None:
        at = self.location
        if at.changed_at == now or self._written_at is None or self.handoff.number is None:
            return
        unchanged = now - at.changed_at
        pending = self._part.reader.pending if self._part.reader else 0
        if self._resting.look(at.path, at.birth, self._written_at, unchanged, pending):
            self.handoff.tell(self.facts)

    def repeats(self, sessions: tuple[str, ...]) -> None:
        """Report to the daemon that the files of the given sessions together have all content of this file."""
        self.copied_in = sessions
        self.handoff.tell(self.facts)

    def let_rest(self, now: float) -> None:
        """Close the file until it changes, if it rests (has stopped growing) or has not changed for `KEPT_OPEN`
        seconds. Call this only if all its bytes were read."""
        rests = self._resting.told is not None or now - self.location.changed_at >= KEPT_OPEN
        if rests and self._confirmed and self._signature:
            self.location.close_until(self._signature)

    def moved(self, path: str) -> None:
        """Record that a search has found the file at `path`. Report the path to the daemon if it is new."""
        if self.location.find_again(path) | self._resting.is_followed():
            self.handoff.tell(self.facts)
        self.handoff.moved()

    def wait_for(self, event: FileEvent) -> None:
        """Move the file to a phase in which it waits and is not read. `event` is the reason."""
        self.phase = NEXT[event][self.phase]
        if event is FileEvent.OF_OTHER_FORMAT and self._signature:
            self.location.close_until(self._signature)
        if event is not FileEvent.MAY_BE_COPY:
            self._forget_originals()
        elif self.waited_from is None:
            self.waited_from = self._desk.clock.monotonic()

    def shadow(self, ended: Trail) -> None:
        """Begin to read the file only to compare it with the content of a file whose session has ended. Raise OSError
        if that fails."""
        self._go_on_after(ended)
        self.phase = NEXT[FileEvent.CHOSEN_AS_SHADOW][self.phase]

    def take_over(self, original: Followed) -> None:
        """Continue the session of `original` with this file, its copy. Raise OSError if this file cannot be read."""
        self._go_on_after(original.handoff.content)
        self.phase = NEXT[FileEvent.CHOSEN][self.phase]
        self.handoff, original.handoff = original.handoff, self.handoff
        self.handoff.tell(self.facts)
        self.handoff.moved()

    def may_have_copy(self, other: Followed, head: bytes) -> bool:
        """Return whether another file, which begins with `head`, may be a copy of this file."""
        known = self.handoff.content
        if identity.relation(known.head, head) == "other":
            return False
        if other.location.path == self.location.path:
            # A shorter file at the same path is no copy: the program is writing its file anew.
            return other.size >= self.taken
        return self.location.gone is not None or self.behind > 0 or len(head) <= known.offset

    @property
    def was_part(self) -> bool:
        """Return whether this unchanged file was found to be a copy of another file, or of the beginning of another
        file."""
        return self.is_proven or any(
            each.found and each.changed_as == self._signature and self._suffices(each.taken)
            for each in self._compared.values()
        )

    def _suffices(self, whole: int) -> bool:
        """Return whether this file's size permits that the file is a copy of a file of `whole` bytes or of that file's
        beginning."""
        # A shorter file counts as a copy only from `HEAD` bytes on, because many files begin with the same header.
        return self.size == whole or HEAD <= self.size < whole

    @property
    def is_summing(self) -> bool:
        waits = self.phase in {Phase.NEW, Phase.COPY}
        return waits and self._proof is not None and self._proof.is_summing

    def give_up_sum(self) -> None:
        """Stop computing this file's checksum, to release the decompressor."""
        if self._proof is not None and self._proof.is_summing:
            self._proof = None

    def is_ahead_of(self, other: Followed) -> bool:
        """Return whether this file has more content than was read from `other`, and `other` has unread bytes."""
        own = self._proof.content_size if self._proof else None
        unread = other.has_more or other.queued
        return own is not None and own > other.handoff.content.offset and unread

    @property
    def is_proven(self) -> bool:
        """Return whether this file is proven to be a copy of another file and has not changed since the proof."""
        return self._proof is not None and self._proof.is_found

    def proves(self, other: Followed) -> bool | None:
        """Continue the comparison with `other`. Return whether this file is a copy of what was read from `other`; None
        while unfinished. Raise OSError if a file cannot be read."""
        try:
            fd = self.location.open()
            if self._proof is None:
                self._proof = CopyProof(fd)
            return self._proof.step(fd, self.size, other, other._part)
        except OSError:
            self._proof = None  # release the decompressor; a later call begins the comparison anew
            raise

    def is_part_of(self, other: Followed) -> bool | None:
        """Return whether the bytes of this file are the beginning of `other`; None while the comparison is unfinished.
        Raise OSError on failure."""
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
            # If `other` cannot be read, its next check reports the error.
            with suppress(OSError):
                theirs = os.pread(other.location.open(), len(data), trail.offset)
                if not identity.differing(data, theirs, trail.offset):
                    trail.add(data)
                    known.found = trail.offset >= self.size or (None if data else False)
        return known.found

    def was_read_as(self, content: Trail) -> bool | None:
        """Return whether this file has the content of a file whose session has ended; None while the comparison is
        unfinished. Raise OSError on failure."""
        if content.offset != self.size or content.crc is None:
            return False
        known = self._compared.get(content)
        if known is None or known.changed_as != self._signature:
            known = self._compared[content] = Compared(None, self._signature, content)
        if known.found is None:
            known.found = known.check.step(self.location.open())
        return known.found

    def head(self) -> bytes:
        """Return the first bytes of the file's content. Raise OSError if the file cannot be read."""
        if self._head is None:
            self._head = content.head(self.location.open())
        return self._head

    def unread_trail(self) -> Trail | None:
        """Return a trail (digest) of the unread file from only its first and last bytes; None for a compressed file.
        Raise OSError on failure."""
        fd = self.location.open()
        if content.kind(fd, final=True) is Compressed:
            return None
        last = os.pread(fd, LAST, max(0, self.size - LAST))
        return Trail(self.size, os.pread(fd, HEAD, 0), last)

    def other_format(self) -> str | None:
        """Return the name of the format that the file's first bytes show, if it is not the source's format. Return ""
        if they show no other format, and None if they are too few to tell. Raise OSError if the file cannot be read."""
        check = self.format
        if check.is_due(self._signature):
            head, own = content.beginning(self.location.open()), FORMATS[self._desk.config.format]
            check.make(self.location.path, head, own, self._signature)
        return check.found

    @property
    def is_undecided(self) -> bool:
        """Return whether the file is read although its first bytes could not show their format yet."""
        read = self.handoff.content.offset
        return (
            self.phase is Phase.FOLLOWED and self.format.found is None and read < content.BEGINNING
        )

    def read(self) -> bool:
        """Read the next part of the file and pass it to the daemon. Return whether more parts may follow. Raise OSError
        on failure."""
        fd = self.location.open()
        if self.phase not in READ:
            return False
        if self._part.reader is None and (kind := content.kind(fd, final=self.final)):
            self._forget_originals()
            self._part = ReadPart(Trail(), BEGIN if kind is Compressed else None)
            # The file may have become compressed since the session was opened.
            self.handoff.tell(self.facts)
            if kind is Compressed:
                return True  # the file must wait until it may have an inflater (decompressor)
        part = self._part
        if part.reader is None:
            return False  # the file has too few bytes to know whether it is compressed
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
            self.begin_anew("rewritten", 0)
        else:
            self._hand_on(piece)
        return True

    def close(self, reason: str, *, copied: bool) -> None:
        """Close the session, and report unread bytes to the daemon as lost. Report no loss if nothing was read and
        another file may be a copy of this file (`copied`)."""
        self._end(reason, 0 if copied and self.is_blank else self.behind)

    def _hand_on(self, piece: bytes | SparseRange | InflationBegun | LostPart) -> None:
        """Pass the next part of the file to the file's session. Open the session if necessary."""
        handoff, desk = self.handoff, self._desk
        self._resting.grows()
        self.copied_in = ()
        if isinstance(piece, InflationBegun):
            self._reach(piece.member)
            return
        if isinstance(piece, LostPart) and piece.detail == "torn_member" and not piece.stated:
            handoff.lose("torn_member", 0)  # does not open a session
            self._reach(piece.after)
            return
        if piece == b"":
            return
        if handoff.number is None:
            path, facts = self.location.path, self.facts
            handoff.number = desk.intake.open_file(
                facts, desk.files.group(facts.path), record_max=desk.config.record_max,
                dialect=desk.config.dialect, replaces=desk.replaces.get(path, ()),
            )  # fmt: skip
            if self.location.gone is None:
                handoff.documents(path)
        match piece:
            case bytes():
                desk.intake.append(EntryKind.DATA, handoff.number, piece)
                handoff.content.add(piece)
                desk.figures.count_chunk(len(piece))
            case SparseRange(size):
                handoff.lose("hole", size)
                handoff.content.pass_over(size)
            case LostPart(detail, size, data, after, stated):
                handoff.lose(detail, size, data, stated=stated)
                self._reach(after)

    def _reach(self, member: Member | None) -> None:
        """Record that a restarted daemon must begin to decompress the file at the gzip member `member`."""
        if member is not None and member != self._part.member:
            self._part.member = member
            self.handoff.tell(self.facts)

    def _examine(self, found: int) -> None:
        """Find out whether the file, whose size is now `found`, still has the bytes that were read. If not, end its
        session. Raise OSError if the file cannot be read."""
        fd = self.location.open() if self.taken else None
        before, self.size = self.size, found
        if fd is None:
            if found < before:
                self.begin_anew("truncated", before)
            return
        part = self._part
        head, last = identity.look(fd, part.trail)
        # Read the size last, because the file may have been truncated or rewritten meanwhile.
        self.size = self._system.fstat(fd).st_size
        if (
            part.is_compressed_earlier
            and self.size >= part.trail.offset
            and identity.relation(self.handoff.content.head, self.head()) == "other"
        ):
            verdict, differing = Judgement("rewritten")
        else:
            verdict, differing = part.compare(head, last, self.size)
        if verdict in {"truncated", "rewritten"}:
            known = max(before, found)
            self.begin_anew(verdict, max(0, known - self.taken) if self.size < known else 0)
        elif verdict == "overwritten":
            if part.is_plain:
                self.handoff.content = part.trail.copied()
            if differing:
                self.handoff.lose("overwritten", differing)

    def _go_on_checking(self, fd: int) -> bool:
        """Read more bytes of the file a second time, and compare them with those that were read before. Return whether
        bytes are left. Raise OSError if that fails."""
        part = self._part
        same = part.check_more(fd)
        if same is False:
            # Check the file again, because it may have been replaced or rewritten since the last check.
            self._examine(self._system.fstat(fd).st_size)
            if self._part is part and part.distrust():
                self.handoff.lose("overwritten", 0)
        return same is None

    def begin_anew(self, reason: str, unread: int) -> None:
        """End the session with `unread` lost bytes, because the file has new content, or shows another format now."""
        self._end(reason, unread)
        self.reset(FileEvent.REWRITTEN)

    def _end(self, reason: str, unread: int) -> None:
        """End the session. If `unread` bytes were lost, report this first, and open the session for the report if
        necessary."""
        # Report nothing for a file that may be a copy or that another source follows.
        if unread and self.phase in {Phase.NEW, Phase.CROWDED, Phase.FOLLOWED}:
            self._hand_on(LostPart("unread", unread))
        self.handoff.end(self.location.path, reason)

    def reset(self, event: FileEvent) -> None:
        """Forget what was read from the file, and its comparisons. Set the phase that `NEXT` states for `event`."""
        self.phase = NEXT[event][self.phase]
        self.handoff = Handoff(self._desk)
        self._part = ReadPart()
        self._resting = Resting(self._desk)
        self.copied_in = ()
        self._forget_originals()

    def _forget_originals(self) -> None:
        self._compared.clear()
        self._proof = self.waited_from = None

    def _go_on_after(self, known: Trail) -> None:
        """Continue reading after the content `known`, which was read from another file. Raise OSError if that fails."""
        kind = content.kind(self.location.open(), final=True)
        self._signature = None
        self._forget_originals()
        self._part = ReadPart(known, BEGIN if kind is Compressed else None, origin="copied")
