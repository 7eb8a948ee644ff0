"""Decompress bytes, one gzip member at a time, without performing I/O.

Files may contain many members in sequence, with two kinds of errors:

- A member whose writer was killed is *torn*: it stops in the middle, and the next member follows. Its data may also
  contain bytes that look like the beginning of a member. The inflater tries both explanations, and returns no content
  until one has failed.
- *Bad* bytes lie between members and cannot be decompressed. They end at the next valid member.

NULs behind the last member are *padding* if they fill its last block, as tar, tapes and `dd conv=sync` leave them.

The output does not depend on the division of the bytes into `feed` calls. A file can state which bytes of its original
are lost, by empty gzip members with an extra field. `export --to original` writes such members; other readers skip
them."""

from __future__ import annotations

import re
from struct import pack
from typing import Literal, NamedTuple, Protocol, cast, get_args

from zlib_ng import zlib_ng

from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.payloads import LossDetail, Member

PADDED = 512
"""Programs that pad a file make its size a multiple of this number of bytes."""

PADDING_MAX = 2**20
"""Maximum number of NULs that count as padding: a block of a tape. More NULs are a part of a file that nobody wrote."""

STATED_MAX = 128
_EXTRA = b"\x1f\x8b\x08\x04"
_OURS = b"TR"
_EMPTY = b"\x03\0" + bytes(8)
_MEMBER = re.compile(
    re.escape(_EXTRA) + rb".{8}" + _OURS + rb"..(" + "|".join(get_args(LossDetail)).encode()
    + rb") ([0-9]{1,19})" + re.escape(_EMPTY),
    re.DOTALL,
)  # fmt: skip


class StatedMember(NamedTuple):
    """A loss that an empty gzip member records: the kind of the loss, the number of lost bytes (0 if unknown), and the
    length (bytes) of the gzip member."""

    detail: LossDetail
    lost: int
    size: int


def statement(detail: str, lost: int) -> bytes:
    """Return an empty gzip member that states a loss of bytes; other gzip readers skip it."""
    said = f"{detail} {lost}".encode()
    field = _OURS + pack("<H", len(said)) + said
    return _EXTRA + bytes(5) + b"\xff" + pack("<H", len(field)) + field + _EMPTY


def read_statement(data: bytes, *, last: bool) -> StatedMember | bool:
    """Return the loss that a gzip member at the start of `data` states; False if it states no loss, and True if more
    data is needed."""
    if found := _MEMBER.match(data):
        lost = min(int(found[2]), 2**63 - 1)
        return StatedMember(cast("LossDetail", found[1].decode()), lost, found.end())
    ours = _EXTRA.startswith(data[:4]) and _OURS.startswith(data[12:14])
    return ours and len(data) < STATED_MAX and not last


MAGIC = b"\x1f\x8b"
_BEGIN = MAGIC + b"\x08"
"""The first bytes of a member: the magic number, and the number of the only compression method (deflate)."""
_GZIP = 31
_PROBE = 64
"""Number of bytes that are decompressed on trial to find out whether a gzip member begins."""
DOUBT_MAX = 2 * 65_536
"""If this number of bytes decompresses without an error, the bytes belong to the gzip member.

The number exceeds the length of a stored deflate block, which may contain any bytes."""
_TRIAL_MAX = 2**20
"""Number of decompressed bytes that prove a member to be genuine."""
TRIALS_BLOCK = 64 * 1024
TRIALS_MAX = 16
"""Maximum number of trial decompressions in each block of `TRIALS_BLOCK` bytes of a file.

It limits the work that a malicious file can cause. In random bytes, the first bytes of a member appear once in 16
MiB."""
INFLATER_BYTES = 48 * 1024
"""Memory (bytes) that the decompression of one member takes: a window of 32 KiB, and tables."""


_ERROR = cast("type[Exception]", zlib_ng.error)


class _Decompressor(Protocol):
    """zlib-ng's decompressor for one member. The library's type stubs lack the method `copy`."""

    unused_data: bytes
    unconsumed_tail: bytes
    eof: bool

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...

    def copy(self) -> _Decompressor: ...


def _decompressor() -> _Decompressor:
    return cast("_Decompressor", zlib_ng.decompressobj(_GZIP))


class Content(NamedTuple):
    data: bytes


class InflationBegun(NamedTuple):
    """A decompression event: a gzip member begins."""

    member: Member


class LostPart(NamedTuple):
    """A loss in a file, with the fields of `FileLoss`. In a compressed file, `after` is the position behind the lost
    bytes."""

    detail: LossDetail
    size: int
    data: bytes = b""
    after: Member | None = None
    stated: bool = False


Event = Content | InflationBegun | LostPart


class Inflater:
    """Converts the bytes of a compressed file into events: content, beginnings of gzip members, and errors.

    When `next` returns None, call `feed` with the next bytes."""

    def __init__(self, at: Member, *, expected: bool = True) -> None:
        self._raw = at.raw
        """Offset in the file of the first byte that is not used yet."""
        self._content = at.content
        self._input = b""
        self._member: _Decompressor | None = None
        self._more = False
        self._expected = expected
        """Whether a gzip member must begin at the next byte, because the previous member has ended there."""
        self.padding = 0
        """Number of NULs behind the previous member, while nothing else follows them."""
        self._none_before = 0
        """File offset up to which the search for the next gzip member has found none."""
        self._cleared = 0
        """File offset up to which the current gzip member was searched for the beginning of another member."""
        self._origin = at.raw
        """File offset at which the first block of `TRIALS_BLOCK` bytes begins. The number of trial decompressions in
        each block is limited."""
        self._trials = (0, 0)
        """The index of the last block with a trial decompression, and the number of trials in this block."""
        self._tried = -1

    @property
    def waits(self) -> bool:
        """Return whether the input ends in a gzip member, in a possible beginning of one, or in NULs that do not fill a
        block."""
        return self._member is not None or bool(self._input) or not self._is_padded

    @property
    def memory(self) -> int:
        return INFLATER_BYTES * (self._member is not None) + len(self._input)

    @property
    def place(self) -> Member:
        return Member(self._raw, self._content)

    @property
    def _is_padded(self) -> bool:
        return not self.padding or (self.padding <= PADDING_MAX and not self._raw % PADDED)

    def feed(self, data: bytes) -> None:
        self._input += data

    def pad(self, size: int) -> bool:
        """If the input so far ends between gzip members, take `size` NULs, with which the file ends. Return whether
        they were taken."""
        if (
            self._member is not None
            or self._input
            or not self._expected
            or self.padding + size > PADDING_MAX
            or (self._raw + size) % PADDED
        ):
            return False
        self.padding, self._raw = self.padding + size, self._raw + size
        return True

    def next(self, *, last: bool = False) -> Event | None:
        """Return the next event, or None if more input is needed. `last` means that the file has no more bytes."""
        while True:
            if self._member is None:
                bad = self._pad(last) if self._expected else None
                return bad or self._find(last)
            begin = self._input.find(_BEGIN, max(0, self._cleared - self._raw))
            if begin == 0 and not self._more and not self._may_try(self._raw):
                self._cleared = self._block_end(self._raw)
                continue
            if begin == 0 and not self._more:
                torn = self._is_torn_here(self._member, last)
                if torn is None:
                    return None
                if torn:
                    return self._tear()
                self._cleared = self._raw + 1
                continue
            sure = begin if begin >= 0 else len(self._input) - _unsure(self._input, last)
            if not sure and not self._more:
                return self._tear() if last else None
            if content := self._inflate(self._member, self._input[:sure]):
                self._content += len(content)
                return Content(content)

    def _pad(self, last: bool) -> LostPart | None:
        """Take NULs behind a gzip member. Return them as bad bytes if they cannot be padding."""
        nuls = len(self._input) - len(self._input.lstrip(b"\0"))
        self.padding += nuls
        self._use(nuls)
        if not self.padding or (not self._input and (self._is_padded or not last)):
            return None
        size, self.padding, self._expected = self.padding, 0, False
        return LostPart("bad_member", size, after=self.place)

    def _find(self, last: bool) -> Event | None:
        """Return the next event between two gzip members: the beginning of a member, bad bytes, or a loss that an empty
        member states. Return None if more input is needed."""
        data = self._input
        begin = data.find(_BEGIN, max(0, self._none_before - self._raw))
        while begin >= 0 and not (begin == 0 and self._expected):
            if not self._may_try(self._raw + begin):
                self._none_before = self._block_end(self._raw + begin)
                begin = data.find(_BEGIN, self._none_before - self._raw)
                continue
            inflates = _inflates(data[begin : begin + _PROBE], last)
            if inflates is None:
                self._none_before = self._raw + begin
                return self._bad(begin - 1) if begin > 1 else None
            if inflates:
                break
            begin = data.find(_BEGIN, begin + 1)
        if begin == 0:
            stated = read_statement(data, last=last)
            if stated is True:
                return None
            if stated:
                self._use(stated.size)
                return LostPart(stated.detail, stated.lost, after=self.place, stated=True)
            self._member = _decompressor()
            self._more = self._expected = False
            self._cleared = self._raw + 1
            self._origin, self._trials = self._raw, (0, 0)
            return InflationBegun(self.place)
        size = begin if begin > 0 else len(data) - _unsure(data, last) - (not last)
        return self._bad(size) if size > 0 else None

    def _may_try(self, at: int) -> bool:
        """Return whether a trial decompression at a file offset is allowed; if so, count it."""
        block = (at - self._origin) // TRIALS_BLOCK
        count = self._trials[1] if block == self._trials[0] else 0
        if at != self._tried:
            if count >= TRIALS_MAX:
                return False
            self._trials, self._tried = (block, count + 1), at
        return True

    def _block_end(self, at: int) -> int:
        return at + TRIALS_BLOCK - (at - self._origin) % TRIALS_BLOCK

    def _bad(self, size: int) -> LostPart:
        data = self._input[:size]
        self._expected = False
        self._use(size)
        return LostPart("bad_member", size, data, self.place)

    def _inflate(self, member: _Decompressor, data: bytes) -> bytes:
        before = member.copy()
        try:
            content = member.decompress(data, CHUNK_MAX)
        except _ERROR:
            content, size = _up_to_error(before, data)
            self._use(size)
            self._member = None
            return content
        self._use(len(data) - len(member.unconsumed_tail) - len(member.unused_data))
        # If the output limit was reached, the decompressor may return more content without further input.
        self._more = len(content) == CHUNK_MAX and not member.eof
        if member.eof:
            self._member, self._expected = None, True
        return content

    def _is_torn_here(self, member: _Decompressor, last: bool) -> bool | None:
        """Return whether the current member is torn and another one begins here; None if more input is needed."""
        if (inflates := _inflates(self._input, last)) is False:
            return False
        goes_on = _trial(member.copy(), self._input[:DOUBT_MAX])
        if goes_on == "fails":
            return inflates
        if goes_on == "goes on":
            return True if last else None
        return False

    def _tear(self) -> LostPart:
        self._member = None
        self._more, self._expected = False, True
        return LostPart("torn_member", 0, after=self.place)

    def _use(self, size: int) -> None:
        self._input = self._input[size:]
        self._raw += size


def _inflates(data: bytes, last: bool) -> bool | None:
    """Return whether a valid gzip member begins at the start of `data`, or None if more input is needed."""
    found = _trial(_decompressor(), data[:_PROBE])
    if found == "goes on" and len(data) < _PROBE and not last:
        return None
    return found != "fails"


def _unsure(data: bytes, last: bool) -> int:
    """Return how many bytes at the end of `data` may be the first bytes of a gzip member."""
    if last:
        return 0
    return next((n for n in (2, 1) if data.endswith(_BEGIN[:n])), 0)


def _trial(member: _Decompressor, data: bytes) -> Literal["fails", "ends", "goes on", "far enough"]:
    """Decompress `data` on trial, and return the outcome. "far enough" means that the data must belong to the member."""
    size = 0
    rest = data
    try:
        while True:
            content = member.decompress(rest, CHUNK_MAX)
            size += len(content)
            if member.eof:
                return "ends"
            rest = member.unconsumed_tail
            if size > _TRIAL_MAX or (len(data) >= DOUBT_MAX and not rest):
                return "far enough"
            if not rest and len(content) < CHUNK_MAX:
                return "goes on"
    except _ERROR:
        return "fails"


def _up_to_error(member: _Decompressor, data: bytes) -> tuple[bytes, int]:
    """Return all content before the first byte that cannot be decompressed, and the number of bytes before this byte."""
    content, at = b"", 0
    step = 1 << len(data).bit_length()
    while step := step // 2:
        trial = member.copy()
        try:
            more = trial.decompress(data[at : at + step])
        except _ERROR:
            continue
        member, content, at = trial, content + more, at + len(data[at : at + step])
    return content, at
