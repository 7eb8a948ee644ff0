"""Read the content of uncompressed and compressed files, part by part, from a given position on.

*Content* means the bytes that a session receives: decompressed and without holes, which are ranges of a sparse file to
which nothing was written. A *trail* has the first and last bytes, the number and the checksum of bytes that were read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail.identity import (
    VERIFY_BYTES,
    ContentCheck,
    Judgement,
    Trail,
    differing,
    follows_on,
    judge,
    relation,
)
from tailrace.sources.tail.inflate import (
    DOUBT_MAX,
    INFLATER_BYTES,
    MAGIC,
    Content,
    Event,
    Inflater,
    InflationBegun,
    LostPart,
)
from tailrace.sources.tail.location import opened
from tailrace.spool.payloads import HEAD, Member, checksum


class ContentView(NamedTuple):
    """The state of an open file, and whether a reader may pass holes.

    Without `past_holes`, a reader stops before each hole, because the writer may still fill it. With `past_holes`, a
    reader passes all holes, except one at the end of a file that may still change (not `final`)."""

    fd: int
    size: int
    past_holes: bool
    final: bool


class SparseRange(NamedTuple):
    """A hole of a sparse file: a range of `size` bytes to which nothing was written."""

    size: int


class RawBytes:
    pending = 0

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self._extent = range(0)
        """Offsets of one range of data between two holes, at or after the reading position."""

    def next(
        self, view: ContentView, limit: int = CHUNK_MAX
    ) -> bytes | SparseRange | Literal["changed"] | None:
        """Return the next bytes of the file (at most `limit`), or a hole; None if no data is available now. Return
        "changed" if bytes that were read have changed, or if the file has shrunk before the first read. Raise OSError on
        failure."""
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
        wanted = min(limit, self._extent.stop - trail.offset)
        data = os.pread(fd, wanted, trail.offset)
        # To detect that the file was written anew meanwhile, read known bytes again, after the data: the bytes just
        # before the data and, because many lines have equal ends, the first bytes of the file.
        before = len(trail.last)
        last = os.pread(fd, before, trail.offset - before) if before else b""
        head = os.pread(fd, len(trail.head), 0) if before < trail.offset else trail.head
        kept = len(last) == before and trail.precedes(last)
        if not kept or differing(trail.head, head, 0):
            return "changed"
        if not before and len(data) < min(limit, size) and os.lseek(fd, 0, os.SEEK_END) < size:
            return "changed"
        trail.add(data)
        return data or None

    def _data(self, fd: int, size: int) -> int:
        """Return the offset at which data begins, from the reading position on; `size` if only a hole is left."""
        offset = self.trail.offset
        if offset in self._extent:
            return offset
        try:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
            self._extent = range(begin, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            # without support for holes, all bytes up to the end count as data
            self._extent = range(offset, size)
        return self._extent.start


BEGINNING = 4096
RAW_MAX = 64 * 1024
"""Maximum number of compressed bytes that are read from a file at a time."""
INFLATING_BYTES = INFLATER_BYTES + RAW_MAX + DOUBT_MAX
"""Maximum memory (bytes) of a decompressor between two reads of its file."""
BEGIN = Member(0, 0)


Piece = bytes | SparseRange | InflationBegun | LostPart | Literal["changed", "other"] | None
"""The result of one read of a file.

Empty bytes mean that the next read may return more; None means that nothing is available now. "changed" means that
bytes that were read have changed in the file. "other" means that a repeated decompression did not give the content that
was read before."""


class Compressed:
    """A reader of a compressed file from the gzip member `member` on. It skips content within `known`, which was passed
    on before. `certain` states that the content `known` was read from this file. Otherwise it was read from another
    file, of which this file may be an unfinished copy."""

    def __init__(self, member: Member, known: Trail, *, certain: bool) -> None:
        self._raw = RawBytes(Trail(member.raw))
        self._again: RawBytes | None = None
        """Reader of the bytes that must be passed again to a new decompressor; None when no such bytes are left."""
        self._inflater: Inflater | None = None
        self._begun = member
        """Position at which decompression can begin again: the last gzip member, or the end of damaged bytes after
        it."""
        self._known = known.copied()
        self._skipped: Trail | None = None
        self._certain = certain
        self.hole: SparseRange | None = None
        """A hole (unwritten range) that was read and has not been reported to the daemon yet. Until it is reported, the
        decompressor must not be dropped."""

    @property
    def trail(self) -> Trail:
        return self._raw.trail

    @property
    def pending(self) -> int:
        """Return the number of bytes read after the last complete gzip member."""
        waits = self._inflater is None or self._inflater.waits
        return self.trail.offset - self._begun.raw if waits else 0

    @property
    def memory(self) -> int:
        """Return the memory (bytes) of the decompressor, at most `INFLATING_BYTES`."""
        return self._inflater.memory if self._inflater is not None else 0

    @property
    def repeated(self) -> tuple[int, int]:
        """Return how many compressed bytes must be read again, and how many bytes of content decompressed again,
        because the decompressor was dropped. Return zeros if there is a decompressor."""
        if self._inflater is not None:
            return 0, 0
        begun = self._begun
        return self.trail.offset - begun.raw, max(0, self._known.offset - begun.content)

    def give_up(self, content: Trail) -> None:
        """Drop the decompressor to free its memory. `content` describes all content that was passed to the daemon so
        far."""
        if content.offset > self._known.offset:
            self._known = content.copied()
        self._certain |= self._skipped is None
        self._inflater = self._again = None

    def next(self, view: ContentView) -> Piece:
        inflater = self._inflater or self._begin()
        event = inflater.next()
        if event is None and self.hole is None:
            taken = self._take(view)
            if isinstance(taken, bytes):
                inflater.feed(taken)
                return b""
            if isinstance(taken, SparseRange):
                at_end = self.trail.offset == view.size and view.final
                if at_end and inflater.pad(taken.size):
                    return b""
                self.hole = taken
            elif taken is None and self._skipped is not None and self._certain:
                return "other"
            elif taken is not None or not view.final:
                return taken
        if event is None:
            event = inflater.next(last=True)
        if event is None and self.hole is not None:
            size, after = self.hole.size, Member(self.trail.offset, inflater.place.content)
            self.hole, self._inflater = None, Inflater(after, expected=False)
            event = LostPart("bad_member", inflater.padding + size, after=after)
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

    def _give(self, event: Event | None) -> Piece:
        if isinstance(event, Content):
            return event.data if self._skipped is None else self._skip(self._skipped, event.data)
        if isinstance(event, InflationBegun):
            self._begun = event.member
        elif event is not None and event.after is not None:
            self._begun = event.after
            if self._skipped is not None:
                return b""  # the loss was reported when the bytes were first decompressed
        return event

    def _skip(self, skipped: Trail, data: bytes) -> Piece:
        left = self._known.offset - skipped.offset
        skipped.add(data[:left])
        if relation(self._known.head, skipped.head) == "other":
            return "other"
        if skipped.offset < self._known.offset:
            return b""
        self._skipped = None
        return data[left:] if follows_on(self._known, skipped) else "other"


def kind(fd: int, *, final: bool) -> type[RawBytes | Compressed] | None:
    """Return the class of a file's reader, or None if the file has too few bytes to decide. Raise OSError if the file
    cannot be read."""
    begin = os.pread(fd, len(MAGIC), 0)
    if begin.startswith(MAGIC):
        return Compressed
    if begin and (begin != MAGIC[:1] or final):
        return RawBytes
    return None


def head(fd: int) -> bytes:
    """Return the first bytes of a file's content. Raise OSError if the file cannot be read."""
    # Take the kind and the bytes of an uncompressed file from one read, because the file may grow between two reads.
    begin = os.pread(fd, HEAD, 0)
    if begin.startswith(MAGIC):
        return inflated(fd, HEAD)
    return begin if begin != MAGIC[:1] else b""


def inflated(fd: int, size: int) -> bytes:
    """Return the first bytes of a compressed file's content, at most `size`. Raise OSError if the file cannot be
    read."""
    inflater = Inflater(BEGIN)
    content = b""
    for at in range(0, RAW_MAX, BEGINNING):
        inflater.feed(os.pread(fd, BEGINNING, at))
        while len(content) < size and (event := inflater.next()) is not None:
            if isinstance(event, Content):
                content += event.data
        if len(content) >= size:
            break
    return content[:size]


class ReadPart:
    """The part of a file that was read, and whether the file still contains it.

    - `known`: the trail (digest) of the bytes of this part; None if nothing was read.
    - `member`: the gzip member from which a compressed file is decompressed; None for an uncompressed file.
    - `origin`: "now" if this run of the daemon read the bytes from this file. "earlier" if an earlier run read them
      from this file; that run may already have reported overwritten bytes. "copied" if the bytes were read from another
      file, so that this file may not contain all of them yet."""

    def __init__(
        self,
        known: Trail | None = None,
        member: Member | None = None,
        *,
        origin: Literal["now", "earlier", "copied"] = "now",
    ) -> None:
        self.reader: RawBytes | Compressed | None = None
        self.member = member
        if known is not None and member is None:
            self.reader = RawBytes(known.copied())
        elif known is not None and member is not None:
            self.reader = Compressed(member, known, certain=origin != "copied")
        self._origin = origin
        self._check: ContentCheck | None = None

    @property
    def trail(self) -> Trail:
        """Return the trail (digest) of the bytes that were read from the file."""
        return self.reader.trail if self.reader else Trail()

    @property
    def is_plain(self) -> bool:
        return isinstance(self.reader, RawBytes)

    @property
    def is_compressed_earlier(self) -> bool:
        """Return whether the file is compressed and an earlier run of the collector has read a part of it. The trail
        (digest of the bytes that were read) then lacks the file's first bytes."""
        return self._origin == "earlier" and isinstance(self.reader, Compressed)

    def compare(self, head: bytes, last: bytes, size: int) -> Judgement:
        """Compare the file, now of `size` bytes, with the bytes that were read from it before. `head` and `last` were
        read again, at the offsets of the first and the last of these bytes, before `size` was determined."""
        trail = self.trail
        if size < trail.offset:
            return Judgement("same" if self._origin == "copied" else "truncated")
        grown = size > trail.offset or self._origin == "copied"
        found = judge(trail, head, last, grown=grown)
        if found.verdict == "rewritten":
            return found
        if found.verdict == "overwritten":
            trail.head, trail.last, trail.crc = head, last, None
        if self._origin != "now":
            found = found._replace(size=0)
        self._origin = "now"
        return found

    @property
    def is_being_checked(self) -> bool:
        return self._check is not None

    def begin_check(self) -> None:
        """Begin to compare an uncompressed file with all bytes that were read, by their checksum, to detect changes
        between the remembered first and last bytes."""
        reader = self.reader
        if isinstance(reader, RawBytes) and reader.trail.crc is not None and reader.trail.offset:
            self._check = ContentCheck(reader.trail)

    def check_more(self, fd: int) -> bool | None:
        """Compare the file's next bytes. Return whether all are unchanged; None while unfinished. Raise OSError on
        failure."""
        same = self._check.step(fd) if self._check else True
        if same is not None:
            self._check = None
        return same

    def distrust(self) -> bool:
        """Record that bytes between the trail's first and last bytes have changed. Return whether this was not known
        before."""
        trail = self.trail
        news, trail.crc = trail.crc is not None, None
        return news


def _whole(fd: int) -> RawBytes | Compressed:
    if kind(fd, final=True) is Compressed:
        return Compressed(BEGIN, Trail(), certain=True)
    return RawBytes(Trail())


class ContentSum:
    """Computes, in steps, the trail (digest) of a file's whole content."""

    def __init__(self, fd: int, take: Callable[[bytes], object] = len) -> None:
        """Pass each part of the content to `take`."""
        self.trail = Trail()
        self._reader = _whole(fd)
        self._take = take

    def step(self, fd: int, size: int) -> bool | None:
        """Read about `VERIFY_BYTES` more bytes. Return None while content is left. At the end, return whether the
        content is undamaged and has no holes and no incomplete gzip member. Raise OSError if the file cannot be
        read."""
        view = ContentView(fd, size, past_holes=False, final=False)
        content, raw = self.trail.offset, self._reader.trail.offset
        while self.trail.offset - content < VERIFY_BYTES > self._reader.trail.offset - raw:
            piece = self._reader.next(view)
            if isinstance(piece, bytes):
                self.trail.add(piece)
                self._take(piece)
            elif not isinstance(piece, InflationBegun):
                whole = self._reader.trail.offset == size and not self._reader.pending
                return piece is None and whole
        return None


class Fingerprint(NamedTuple):
    """The size (holes included) and checksum of a file's content, and checksums of its beginnings by their sizes."""

    size: int
    crc: int
    begins: dict[int, int]

    def begins_with(self, size: int, crc: int) -> bool:
        """Return whether the first `size` bytes have the checksum `crc`. `size` must be a size that was passed to
        `fingerprint`."""
        return self.begins.get(size) == crc


LINE_MAX = 2**20


def beginning(fd: int) -> bytes:
    """Return the first bytes (up to `BEGINNING`) of an open file's content, without NUL bytes at the start, which a log
    rotation may leave. Raise OSError if the file cannot be read."""
    head = os.pread(fd, BEGINNING, 0)
    if head.startswith(MAGIC):
        return inflated(fd, BEGINNING)
    if not head.startswith(b"\0"):
        return head
    try:
        data = os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        # ENXIO means that the file has no data, and EINVAL that the file system does not support holes.
        if error.errno not in {errno.ENXIO, errno.EINVAL}:
            raise
        data = 0
    return os.pread(fd, 2 * BEGINNING, data).lstrip(b"\0")[:BEGINNING] or head


def fingerprint(path: str, sizes: Iterable[int] = ()) -> Fingerprint:
    """Return a file's fingerprint, with the checksum of the first N bytes for each N in `sizes`. Raise OSError on
    failure."""
    stops = sorted({size for size in sizes if size > 0}, reverse=True)
    begins: dict[int, int] = {}
    offset = crc = 0
    for piece in _pieces(path):
        if not isinstance(piece, bytes | SparseRange):
            continue
        data, size = (b"", piece.size) if isinstance(piece, SparseRange) else (piece, len(piece))
        while stops and stops[-1] <= offset + size:
            stop = stops.pop()
            begins[stop] = checksum(crc, data[: stop - offset], offset)
        crc = checksum(crc, data, offset)
        offset += size
    return Fingerprint(offset, crc, begins)


def chunks(path: str) -> Iterator[bytes | None]:
    """Yield a file's content in parts, and None for each hole and each damage. Raise OSError on failure."""
    for piece in _pieces(path):
        yield piece if isinstance(piece, bytes) else None


def lines(path: str) -> Iterator[bytes | None]:
    """Yield the lines of a file's content, in parts of at most `LINE_MAX` bytes, and None for each hole and each damage.
    Raise OSError if the file cannot be read."""
    left = b""
    for piece in chunks(path):
        if piece is not None:
            *whole, last = (left + piece).split(b"\n")
            for line in whole:
                yield from cut(line)
            *full, left = cut(last)
            yield from full
        else:
            yield None
    yield left


def cut(line: bytes) -> list[bytes]:
    """Return a line in parts of at most `LINE_MAX` bytes."""
    return [line[at : at + LINE_MAX] for at in range(0, max(1, len(line)), LINE_MAX)]


def _pieces(path: str) -> Iterator[bytes | SparseRange | LostPart]:
    with opened(path) as fd:
        view = ContentView(fd, os.fstat(fd).st_size, past_holes=True, final=True)
        reader = _whole(fd)
        while (piece := reader.next(view)) is not None and not isinstance(piece, str):
            if not isinstance(piece, InflationBegun):
                yield piece
