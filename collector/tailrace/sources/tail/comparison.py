"""Compare a file with files from which bytes were read, in steps: is it a copy of one of them, or of its beginning?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.sources.tail.content import ContentSum, ReadPart
from tailrace.sources.tail.identity import ContentCheck, Trail
from tailrace.sources.tail.location import FileStamp

if TYPE_CHECKING:
    from tailrace.sources.tail.follow import Followed


class Compared:
    """A comparison of a file with another file, from which bytes were read.

    - `part`: the part of the other file that was read; None if the session of that file has ended.
    - `changed_as`: the size and times that the compared file had at the comparison.
    - `trail`: the bytes that are equal so far.
    - `found`: the result; None while the comparison is unfinished."""

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
        """Return the number of bytes read from the file with which this file is compared."""
        return (self.part or self).trail.offset


class CopyProof:
    """A comparison, in steps, that can prove that an unchanged file is a copy of another file.

    The file is a copy if its checksum equals the checksum of the other file, or of as many bytes at the beginning of a
    longer file."""

    def __init__(self, fd: int) -> None:
        self.is_found = False
        self._content: ContentSum | Trail | None = ContentSum(fd)
        self._checks: dict[ReadPart, ContentCheck | bool] = {}
        """For each read part of another file, the comparison of this file with the part, or later its result."""

    @property
    def is_summing(self) -> bool:
        """Return whether the file's checksum is still being computed, which may need a decompressor."""
        return isinstance(self._content, ContentSum)

    @property
    def content_size(self) -> int | None:
        """Return the content's size (bytes); None until its checksum is computed, and if the content is damaged."""
        return self._content.offset if isinstance(self._content, Trail) else None

    def step(self, fd: int, size: int, other: Followed, part: ReadPart) -> bool | None:
        """Continue the comparison with the read part of `other`. Return whether this file is a copy; None while
        unfinished.

        Raise OSError if a file cannot be read."""
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
    """Return whether the content read from `other` begins with the content `own`. If the checksums known so far do not
    show this, return a check that reads `other` again."""
    read = other.handoff.content
    if other.handoff.lost or own.crc is None or own.offset > read.offset:
        return False
    if own.offset == read.offset and read.crc is not None:
        return own.crc == read.crc
    return ContentCheck(own) if part.is_plain else False
