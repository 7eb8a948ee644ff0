"""Read the content of plain and compressed files in pieces, from a given position on.

`RawBytes` reads an uncompressed file and reports its holes. `Compressed` decompresses a compressed
file. `ReadPart` represents the part of a file that was read: its reader, and whether the file still
contains the part. `fingerprint` computes the size and checksum of a file's current content, for a
comparison with content read earlier. *Content* means the bytes that a session receives:
decompressed and without holes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail.identity import (
    VERIFY_BYTES,
    ContentCheck,
    Judgement,
    Trail,
    follows_on,
    judge,
)
from tailrace.sources.tail.inflate import (
    DOUBT_MAX,
    INFLATER_BYTES,
    MAGIC,
    Bad,
    Content,
    Event,
    Inflater,
    InflationBegun,
    StatedLoss,
    Torn,
)
from tailrace.sources.tail.location import OPEN
from tailrace.spool.payloads import HEAD, Member, checksum


class ContentView(NamedTuple):
    """The current state of an open file, and which of its holes are read.

    A hole is read only with `past_holes`. A hole at the end of the file is read only if the file is
    also `final`, because a writer may still fill the hole."""

    fd: int
    size: int
    past_holes: bool
    final: bool


class SparseRange(NamedTuple):
    """A hole in a sparse file."""

    size: int


class RawBytes:
    """A reader of an uncompressed file. `trail` records the reading progress."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self._extent = range(0)
        """The range of data that contains the reading position, or that follows the hole at the
        reading position."""

    def next(
        self, view: ContentView, limit: int = CHUNK_MAX
    ) -> bytes | SparseRange | Literal["changed"] | None:
        """Return the next bytes of the file (at most `limit`), or a hole; None if no data is
        available now. Raise OSError.

        Return "changed" if the bytes before the reading position differ from the bytes that were
        read, or if the file is smaller than expected and nothing was read."""
        fd, size, past_holes, final = view
        trail = self.trail
        if trail.offset >= size:
            return None
        begin = self._data(fd, size)
        if begin > trail.offset:
            if not past_holes or (begin == size and not final):
                return None
            hole = SparseRange(begin - trail.offset)
            trail.pass_over(hole.size)
            return hole
        before = len(trail.last)
        wanted = min(limit, self._extent.stop - trail.offset)
        data = os.pread(fd, before + wanted, trail.offset - before)
        if len(data) < before or not trail.precedes(data[:before]):
            return "changed"
        if not before and len(data) < min(limit, size) and os.lseek(fd, 0, os.SEEK_END) < size:
            return "changed"
        data = data[before:]
        trail.add(data)
        return data or None

    def _data(self, fd: int, size: int) -> int:
        """Return the offset at which data begins, from the reading position on; `size` if only a
        hole is left."""
        offset = self.trail.offset
        if offset in self._extent:
            return offset
        try:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
            self._extent = range(begin, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            self._extent = range(offset, size)  # the file system does not support holes
        return self._extent.start


RAW_MAX = 64 * 1024
"""Maximum number of compressed bytes read at a time."""
INFLATING_BYTES = INFLATER_BYTES + RAW_MAX + DOUBT_MAX
"""Maximum memory (bytes) of an inflater between two pieces."""
BEGIN = Member(0, 0)


Piece = (
    bytes
    | SparseRange
    | InflationBegun
    | Torn
    | Bad
    | StatedLoss
    | Literal["changed", "other"]
    | None
)
"""The result of reading a piece. Empty bytes mean that reading must continue; None means that no
data is available now. "changed" is explained in `RawBytes.next`. "other" means that the skipped
content differs from the content read before."""


class Reader(Protocol):
    @property
    def trail(self) -> Trail:
        """Return the reading progress in the file's bytes."""
        ...

    def next(self, view: ContentView) -> Piece:
        """Return the next piece of the file's content. Raise OSError."""
        ...


class Compressed:
    """A reader of a compressed file's content, from a member on. Content that is `known` is
    decompressed again and skipped.

    `certain` is whether the file is known to have contained all the known content; otherwise the
    file may still receive content. The first call of `next` creates the inflater. After `give_up`
    has dropped the inflater, the next call of `next` decompresses the last member again."""

    def __init__(self, member: Member, known: Trail, *, certain: bool) -> None:
        self._raw = RawBytes(Trail(member.raw))
        self._again: RawBytes | None = None
        """The reader that repeats the bytes of a dropped inflater for a new inflater; None if no
        bytes are repeated."""
        self._inflater: Inflater | None = None
        self._begun = member
        """The beginning of the last gzip member, or of the last bad bytes."""
        self._known = known.copied()
        self._skipped: Trail | None = None
        self._certain = certain
        self._hole: SparseRange | None = None

    @property
    def trail(self) -> Trail:
        return self._raw.trail

    @property
    def pending(self) -> int:
        """Return the number of bytes after the file's last complete gzip member."""
        waits = self._inflater is None or self._inflater.waits
        return self.trail.offset - self._begun.raw if waits else 0

    @property
    def in_hole(self) -> bool:
        """Return whether a hole was read that is not yet reported. The inflater cannot be dropped
        in this state."""
        return self._hole is not None

    @property
    def memory(self) -> int:
        """Return the inflater's memory (bytes), at most `INFLATING_BYTES`."""
        return self._inflater.memory if self._inflater is not None else 0

    @property
    def repeated(self) -> tuple[int, int]:
        """Return the number of file bytes and the number of content bytes that `next` must process
        again before new content."""
        if self._inflater is not None:
            return 0, 0
        begun = self._begun
        return self.trail.offset - begun.raw, max(0, self._known.offset - begun.content)

    def give_up(self, content: Trail) -> None:
        """Drop the inflater. `content` is the trail of all content that was passed on."""
        if content.offset > self._known.offset:
            self._known = content.copied()
        self._certain |= self._skipped is None
        self._inflater = self._again = None

    def next(self, view: ContentView) -> Piece:
        inflater = self._inflater or self._begin()
        event = inflater.next()
        if event is None and self._hole is None:
            taken = self._take(view)
            if isinstance(taken, bytes):
                inflater.feed(taken)
                return b""
            if isinstance(taken, SparseRange):
                self._hole = taken
            elif taken is None and self._skipped is not None and self._certain:
                return "other"
            elif taken is not None or not view.final:
                return taken
        if event is None:
            event = inflater.next(last=True)
        if event is None and self._hole is not None:
            event = self._past_hole(self._hole, inflater.place.content)
        return self._give(event)

    def _begin(self) -> Inflater:
        begun = self._begun
        inflater = self._inflater = Inflater(begun)
        self._again = RawBytes(Trail(begun.raw)) if self.trail.offset > begun.raw else None
        self._skipped = Trail(begun.content) if self._known.offset != begun.content else None
        return inflater

    def _take(self, view: ContentView) -> bytes | SparseRange | Literal["changed", "other"] | None:
        if self._again is None:
            return self._raw.next(view, RAW_MAX)
        left = self.trail.offset - self._again.trail.offset
        taken = self._again.next(view, min(RAW_MAX, left))
        if not isinstance(taken, bytes):
            return "other"
        if len(taken) == left:
            self._again = None
        return taken

    def _past_hole(self, hole: SparseRange, content: int) -> Bad:
        self._hole = None
        after = Member(self.trail.offset, content)
        self._inflater = Inflater(after)
        return Bad(hole.size, b"", after)

    def _give(self, event: Event | None) -> Piece:
        if isinstance(event, InflationBegun):
            self._begun = event.member
        elif isinstance(event, Torn | Bad | StatedLoss):
            self._begun = event.after
        if isinstance(event, Content):
            return event.data if self._skipped is None else self._skip(self._skipped, event.data)
        if self._skipped is not None and isinstance(event, Torn | Bad | StatedLoss):
            return b""  # the event was reported when it was first read
        return event

    def _skip(self, skipped: Trail, data: bytes) -> Piece:
        left = self._known.offset - skipped.offset
        skipped.add(data[:left])
        if skipped.offset < self._known.offset:
            return b""
        self._skipped = None
        return data[left:] if follows_on(self._known, skipped) else "other"


def kind(fd: int, *, final: bool = False) -> type[RawBytes | Compressed] | None:
    """Return the reader class for a file, or None if the file has too few bytes to decide. Raise
    OSError."""
    return _kind(os.pread(fd, len(MAGIC), 0), final=final)


def _kind(begin: bytes, *, final: bool) -> type[RawBytes | Compressed] | None:
    if begin.startswith(MAGIC):
        return Compressed
    if begin and (begin != MAGIC[:1] or final):
        return RawBytes
    return None


def head(fd: int) -> bytes:
    """Return the first bytes of a file's current content. Raise OSError."""
    begin = os.pread(fd, HEAD, 0)  # one call, because the file may be growing
    kind = _kind(begin, final=False)
    if kind is not Compressed:
        return begin if kind is RawBytes else b""
    return inflated(fd, HEAD)


def inflated(fd: int, size: int) -> bytes:
    """Return the first bytes of a compressed file's content: up to `size` bytes from the first
    `RAW_MAX` bytes of the file. Raise OSError."""
    inflater = Inflater(BEGIN)
    inflater.feed(os.pread(fd, RAW_MAX, 0))
    content = b""
    while len(content) < size and (event := inflater.next()) is not None:
        if isinstance(event, Content):
            content += event.data
    return content[:size]


ContentOrigin = Literal["now", "earlier", "copied"]
"""The origin of a part that was read.

- now: read in this run of the daemon.
- earlier: read in an earlier run, which may already have reported the part's changes.
- copied: read in another file, so this file may not contain the whole part yet."""


class ReadPart:
    """The part of a file that was read: the `known` content. Reading continues after this content;
    None means that the file's type is not determined yet. A compressed file is decompressed from
    `member` on."""

    def __init__(
        self,
        known: Trail | None = None,
        member: Member | None = None,
        *,
        origin: ContentOrigin = "now",
    ) -> None:
        self.reader: Reader | None = None
        self.member = member
        """The gzip member from which a compressed file is decompressed again; None for an
        uncompressed file."""
        if known is not None and member is None:
            self.reader = RawBytes(known.copied())
        elif known is not None and member is not None:
            self.reader = Compressed(member, known, certain=origin != "copied")
        self._origin = origin
        self._check: ContentCheck | None = None

    @property
    def trail(self) -> Trail:
        """Return the trail of the bytes that were read."""
        return self.reader.trail if self.reader else Trail()

    @property
    def pending(self) -> int:
        """Return the number of bytes after the last complete member of a compressed file."""
        return self.reader.pending if isinstance(self.reader, Compressed) else 0

    @property
    def is_plain(self) -> bool:
        return isinstance(self.reader, RawBytes)

    @property
    def is_compressed_earlier(self) -> bool:
        """Return whether an earlier run read the part from a compressed file. Bytes before the
        member from which decompression restarts are not compared."""
        return self._origin == "earlier" and isinstance(self.reader, Compressed)

    def compare(
        self, head: bytes, last: bytes, size: int, begins_otherwise: Callable[[], bool]
    ) -> Judgement:
        """Compare a file with the part that was read; return the result. Raise OSError.

        `head` and `last` are the file's current bytes at the positions of the part's head and last
        bytes. `size` is the file's size, determined after reading these bytes.

        Bytes that were overwritten in an earlier run, or before a copy was created, are not
        counted."""
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

    # Checks for changed bytes in the middle of the part

    @property
    def is_being_checked(self) -> bool:
        return self._check is not None

    def begin_check(self) -> None:
        """Start a check whether all bytes that were read are unchanged, if the reader has a
        checksum."""
        reader = self.reader
        if isinstance(reader, RawBytes) and reader.trail.crc is not None and reader.trail.offset:
            self._check = ContentCheck(reader.trail)

    def check_more(self, fd: int) -> bool | None:
        """Check the next bytes. Return whether all bytes are unchanged, or None while the check is
        unfinished. Raise OSError."""
        same = self._check.step(fd) if self._check else True
        if same is not None:
            self._check = None
        return same

    def distrust(self) -> bool:
        """Record that bytes in the middle of the part have changed. Return whether this change is
        new."""
        trail = self.trail
        news, trail.crc = trail.crc is not None, None
        return news


class ContentSum:
    """The trail of a file's whole content, made in steps from the file's beginning on."""

    def __init__(self, fd: int) -> None:
        self.trail = Trail()
        self._reader: Reader = (
            Compressed(BEGIN, Trail(), certain=True)
            if kind(fd, final=True) is Compressed
            else RawBytes(Trail())
        )

    def step(self, fd: int, size: int) -> bool | None:
        """Read about `VERIFY_BYTES` more. Return None while content is left; then return whether
        the whole file was read, without a hole, a damaged byte or an incomplete member. Raise
        OSError."""
        view = ContentView(fd, size, past_holes=False, final=False)
        content, raw = self.trail.offset, self._reader.trail.offset
        while self.trail.offset - content < VERIFY_BYTES > self._reader.trail.offset - raw:
            piece = self._reader.next(view)
            if isinstance(piece, bytes):
                self.trail.add(piece)
            elif not isinstance(piece, InflationBegun):
                pending = self._reader.pending if isinstance(self._reader, Compressed) else 0
                return piece is None and not pending and self._reader.trail.offset == size
        return None


class Fingerprint(NamedTuple):
    """The size and checksum of a file's content; the size includes holes. `begins` maps smaller
    sizes to the checksum of the content up to each size."""

    size: int
    crc: int
    begins: dict[int, int]

    def begins_with(self, size: int, crc: int) -> bool:
        """Return whether the first `size` bytes of the content have the checksum `crc`. The size
        must have been requested."""
        return self.begins.get(size) == crc


BEGINNING = 4096
LINE_MAX = 2**20


def beginning(fd: int) -> bytes:
    """Return the first bytes of an open file's content (up to `BEGINNING`), without damaged bytes.
    Skip a hole at the start of the file, which a log rotation may leave. Raise OSError."""
    head = os.pread(fd, BEGINNING, 0)
    if head.startswith(b"\0"):
        return _behind_hole(fd) or head
    return inflated(fd, BEGINNING) if head.startswith(MAGIC) else head


def _behind_hole(fd: int) -> bytes:
    """Return the first bytes after leading NUL bytes, if the file's first block of data contains
    such bytes."""
    try:
        data = os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno not in {
            errno.ENXIO,
            errno.EINVAL,
        }:  # the file has no data, or the file system does not support holes
            raise
        data = 0
    return os.pread(fd, 2 * BEGINNING, data).lstrip(b"\0")[:BEGINNING]


def fingerprint(path: str, sizes: Iterable[int] = ()) -> Fingerprint:
    """Read a file once; return its fingerprint, including the checksums up to the given sizes.
    Raise OSError."""
    stops = sorted({size for size in sizes if size > 0}, reverse=True)
    begins: dict[int, int] = {}
    offset = crc = 0
    for piece in _pieces(path):
        while stops and stops[-1] <= offset + _size(piece):
            stop = stops.pop()
            begins[stop] = (
                crc
                if isinstance(piece, SparseRange)
                else checksum(crc, piece[: stop - offset], offset)
            )
        if not isinstance(piece, SparseRange):
            crc = checksum(crc, piece, offset)
        offset += _size(piece)
    return Fingerprint(offset, crc, begins)


def lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file's content without line terminators. Split lines longer than
    `LINE_MAX` into parts of this size. Raise OSError."""
    left = b""
    for piece in _pieces(path):
        if isinstance(piece, bytes):
            *whole, last = (left + piece).split(b"\n")
            for line in whole:
                yield from _cut(line)
            *full, left = _cut(last)
            yield from full
    yield left


def _cut(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_MAX] for at in range(0, max(1, len(line)), LINE_MAX)]


def _pieces(path: str) -> Iterator[bytes | SparseRange]:
    fd = os.open(path, OPEN)
    try:
        view = ContentView(fd, os.fstat(fd).st_size, past_holes=True, final=True)
        reader: Reader
        if kind(view.fd, final=True) is Compressed:
            reader = Compressed(BEGIN, Trail(), certain=True)
        else:
            reader = RawBytes(Trail())
        while (piece := reader.next(view)) is not None and not isinstance(piece, str):
            if isinstance(piece, bytes | SparseRange):
                yield piece
    finally:
        os.close(fd)


def _size(piece: bytes | SparseRange) -> int:
    return piece.size if isinstance(piece, SparseRange) else len(piece)
