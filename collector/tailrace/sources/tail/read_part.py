"""The part of a file that was read: by which reader, and whether the file still has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tailrace.ingest.payloads import Member
from tailrace.sources.tail.content import Compressed, Reader
from tailrace.sources.tail.identity import ContentCheck, Judgement, Trail, judge
from tailrace.sources.tail.raw import RawBytes

Origin = Literal["now", "earlier", "copied"]
"""Where the part was read: in this life of the daemon; in an earlier life, which may have reported its changes
already; or in another file, so that this file has yet to show it."""


class ReadPart:
    """The part of one file that was read."""

    def __init__(self, origin: Origin = "now") -> None:
        self.reader: Reader | None = None
        self.member: Member | None = None
        """The member from which a compressed file is inflated again."""
        self._origin = origin
        self._check: ContentCheck | None = None

    @property
    def trail(self) -> Trail:
        """Return the trail of the bytes that were read."""
        return self.reader.trail if self.reader else Trail()

    @property
    def pending(self) -> int:
        """Return how many bytes at the end of a compressed file are no whole member."""
        return self.reader.pending if isinstance(self.reader, Compressed) else 0

    @property
    def is_plain(self) -> bool:
        return isinstance(self.reader, RawBytes)

    @property
    def is_compressed_earlier(self) -> bool:
        """Return whether an earlier life read it from a compressed file. Bytes before the member from which that file
        is inflated again are not compared."""
        return self._origin == "earlier" and isinstance(self.reader, Compressed)

    def go_on(self, known: Trail, member: Member | None) -> None:
        """Continue after this content. A compressed file is inflated from this member on."""
        self.member = member
        if member is None:
            self.reader = RawBytes(known.copied())
        else:
            self.reader = Compressed(member, known, certain=self._origin != "copied")

    def compare(
        self, head: bytes, last: bytes, size: int, begins_otherwise: Callable[[], bool]
    ) -> Judgement:
        """Judge whether a file still has the part. Raise OSError.

        `head` and `last` are the file's bytes now at the places of the part's head and last. `size` is the size
        of the file, taken after these bytes were read.

        Bytes that were overwritten in an earlier life, or before a copy was made, are not counted."""
        trail = self.trail
        if size < trail.offset:
            return Judgement("same" if self._origin == "copied" else "truncated")
        grown = size > trail.offset or self._origin == "copied"
        found = judge(trail, head, last, grown=grown)
        if found.verdict == "rewritten" or begins_otherwise():
            return Judgement("rewritten")
        if found.verdict == "overwritten":
            trail.head, trail.last, trail.crc = head, last, None
        if self._origin != "now":
            found = found._replace(size=0)
        self._origin = "now"
        return found

    # Whether bytes in the middle have changed

    @property
    def is_being_checked(self) -> bool:
        return self._check is not None

    def begin_check(self) -> None:
        """Start a check whether all that was read is unchanged, as far as that can be told."""
        reader = self.reader
        if isinstance(reader, RawBytes) and reader.trail.crc is not None and reader.trail.offset:
            self._check = ContentCheck(reader.trail)

    def check_more(self, fd: int) -> bool | None:
        """Check some more. Return whether all is unchanged, None while more is left to check. Raise OSError."""
        same = self._check.step(fd) if self._check else True
        if same is not None:
            self._check = None
        return same

    def distrust(self) -> bool:
        """Note that bytes in the middle have changed. Return whether that is news."""
        trail = self.trail
        news, trail.crc = trail.crc is not None, None
        return news
