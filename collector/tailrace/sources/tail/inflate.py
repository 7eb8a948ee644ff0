"""Compressed bytes to content, gzip member by member. Sans-IO.

A file may have many members, one after the other. Two things go wrong in real files:

- A member whose writer was killed is *torn*: the next member begins inside it. Inflating on would make
  content out of the next member's header. Where the first bytes of a member appear inside another
  one, nothing is handed on until it is known which of the two goes on: bytes that are no member
  cannot be inflated far.
- Bytes that cannot be inflated are *bad*, up to the next member that can be.

How the bytes are cut into `feed` calls never changes the whole output.

Gzip members without content state losses that no bytes of a copy show: their extra field says what is missing. `export --to original` writes them; other readers of gzip pass over them.
"""

from __future__ import annotations

import re
from struct import pack
from typing import Literal, NamedTuple, Protocol, cast, get_args

from zlib_ng import zlib_ng

from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.payloads import LossDetail, Member

STATED_MAX = 128
"""Bytes within which such a member ends."""

_EXTRA = b"\x1f\x8b\x08\x04"
_OURS = b"TR"
_EMPTY = b"\x03\0" + bytes(8)
_MEMBER = re.compile(
    re.escape(_EXTRA) + rb".{8}" + _OURS + rb"..(" + "|".join(get_args(LossDetail)).encode()
    + rb") ([0-9]{1,19})" + re.escape(_EMPTY),
    re.DOTALL,
)  # fmt: skip


class StatedMember(NamedTuple):
    """A loss of so many bytes, 0 if that is unknown, and how many bytes say so."""

    detail: LossDetail
    lost: int
    size: int


def statement(detail: str, lost: int) -> bytes:
    """Return a member that states a loss."""
    said = f"{detail} {lost}".encode()
    field = _OURS + pack("<H", len(said)) + said
    return _EXTRA + bytes(5) + b"\xff" + pack("<H", len(field)) + field + _EMPTY


def read_statement(data: bytes, *, last: bool) -> StatedMember | bool:
    """Return the loss that the member at the beginning of `data` states, False if it states none, True if that takes more
    bytes."""
    if found := _MEMBER.match(data):
        lost = min(int(found[2]), 2**63 - 1)
        return StatedMember(cast("LossDetail", found[1].decode()), lost, found.end())
    ours = _EXTRA.startswith(data[:4]) and _OURS.startswith(data[12:14])
    return ours and len(data) < STATED_MAX and not last


MAGIC = b"\x1f\x8b"
_BEGIN = MAGIC + b"\x08"
"""The first bytes of a member: the magic number, and deflate, the only method."""
_GZIP = 31
_PROBE = 64
"""Bytes after which random bytes have failed to inflate."""
DOUBT_MAX = 2 * 65_536
"""Bytes of input that no accident inflates: more than a stored block, which accepts any bytes."""
_TRIAL_MAX = 2**20
"""Bytes of content that prove a member genuine: random bytes never inflate to as many."""
TRIALS_BLOCK = 64 * 1024
TRIALS_MAX = 16
"""The most trials in each block of `TRIALS_BLOCK` bytes after the beginning of a member. The first bytes of a member appear
by accident once in 16 MiB, but an attacker may write nothing else, and a trial takes as long as inflating some KiB. A
member that begins in the rest of a block counts as bad bytes."""
INFLATER_BYTES = 48 * 1024
"""Memory of an unfinished member: a window of 32 KiB, and tables."""


_ERROR = cast("type[Exception]", zlib_ng.error)


class _Decompressor(Protocol):
    """zlib-ng's decompressor of one member; the types that come with zlib-ng leave `copy` out."""

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
    """A member begins here."""

    member: Member


class Torn(NamedTuple):
    """A member stopped before its end; `after` is the place behind it."""

    after: Member


class Bad(NamedTuple):
    """Bytes that cannot be inflated; `after` is the place behind them."""

    size: int
    data: bytes
    after: Member


class StatedLoss(NamedTuple):
    """A member says that bytes were lost here; `after` is the place behind it."""

    detail: LossDetail
    size: int
    after: Member


Event = Content | InflationBegun | Torn | Bad | StatedLoss


class Inflater:
    """Turns bytes into events, from a member on, or from the place behind a bad piece. Feed it when
    `next` returns None."""

    def __init__(self, at: Member) -> None:
        self._raw = at.raw
        """Where `_input` begins in the file."""
        self._content = at.content
        self._input = b""
        self._member: _Decompressor | None = None
        self._more = False
        """Whether the member has more content that needs no more input."""
        self._expected = True
        """Whether a member should begin here, because one ended."""
        self._none_before = 0
        """Offset in the file up to which the bytes between members are known to begin no member."""
        self._cleared = 0
        """Offset in the file up to which no other member begins inside this one."""
        self._origin = at.raw
        """The offset in the file where the blocks of `TRIALS_BLOCK` bytes begin."""
        self._trials = (0, 0)
        """The index of the last block with a trial, and the count of its trials."""
        self._tried = -1
        """The offset in the file of the last trial."""

    @property
    def waits(self) -> bool:
        """Return whether a member has begun that is not over, or bytes wait that may begin one."""
        return self._member is not None or bool(self._input)

    @property
    def memory(self) -> int:
        """Return the memory that the member and unused input take (bytes)."""
        return INFLATER_BYTES * (self._member is not None) + len(self._input)

    @property
    def place(self) -> Member:
        return Member(self._raw, self._content)

    def feed(self, data: bytes) -> None:
        self._input += data

    def next(self, *, last: bool = False) -> Event | None:
        """Return the next event, None if that takes more input. With `last`, there will be no more."""
        while True:
            if self._member is None:
                return self._find(last)
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

    def _find(self, last: bool) -> Event | None:
        """Find what stands between members: the beginning of one, or bad bytes.

        A bad piece never ends where an unproven member begins, because an inflater that starts behind
        the piece takes that member for proven."""
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
                return StatedLoss(stated.detail, stated.lost, self.place)
            self._member = _decompressor()
            self._more = self._expected = False
            self._cleared = self._raw + 1
            self._origin, self._trials = self._raw, (0, 0)
            return InflationBegun(self.place)
        size = begin if begin > 0 else len(data) - _unsure(data, last) - (not last)
        return self._bad(size) if size > 0 else None

    def _may_try(self, at: int) -> bool:
        """Count a trial at an offset in the file; return whether it is one of the first in its block."""
        block = (at - self._origin) // TRIALS_BLOCK
        count = self._trials[1] if block == self._trials[0] else 0
        if at != self._tried:
            if count >= TRIALS_MAX:
                return False
            self._trials, self._tried = (block, count + 1), at
        return True

    def _block_end(self, at: int) -> int:
        return at + TRIALS_BLOCK - (at - self._origin) % TRIALS_BLOCK

    def _bad(self, size: int) -> Bad:
        data = self._input[:size]
        self._expected = False
        self._use(size)
        return Bad(size, data, self.place)

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
        # At the limit, content may be left whose input is already used.
        self._more = len(content) == CHUNK_MAX and not member.eof
        if member.eof:
            self._member, self._expected = None, True
        return content

    def _is_torn_here(self, member: _Decompressor, last: bool) -> bool | None:
        """Return whether the member is over where another one seems to begin, None if that takes more
        input."""
        if (inflates := _inflates(self._input, last)) is False:
            return False
        goes_on = _trial(member.copy(), self._input[:DOUBT_MAX])
        if goes_on == "fails":
            return inflates
        if goes_on == "goes on":
            return True if last else None
        return False

    def _tear(self) -> Torn:
        self._member = None
        self._more, self._expected = False, True
        return Torn(self.place)

    def _use(self, size: int) -> None:
        self._input = self._input[size:]
        self._raw += size


def _inflates(data: bytes, last: bool) -> bool | None:
    """Return whether a member really begins here, None if that takes more input."""
    found = _trial(_decompressor(), data[:_PROBE])
    if found == "goes on" and len(data) < _PROBE and not last:
        return None
    return found != "fails"


def _unsure(data: bytes, last: bool) -> int:
    """Return how many bytes at the end may be the first ones of a member."""
    if last:
        return 0
    return next((n for n in (2, 1) if data.endswith(_BEGIN[:n])), 0)


def _trial(member: _Decompressor, data: bytes) -> Literal["fails", "ends", "goes on", "far enough"]:
    """Inflate these bytes on trial; return what comes of it."""
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
    """Return all content before the byte that cannot be inflated, and the number of bytes before it."""
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
