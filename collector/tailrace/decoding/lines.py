"""Cut a stream of bytes into lines, for all formats that consist of lines.

A *line* is the bytes up to and including a newline (LF), with the blank lines (space, tab, CR) before it. A *mark* is
not part of a line: the byte order mark that Windows editors write at the beginning of a text, and the Ctrl-Z that DOS
writes at its end. In texts that were joined, Ctrl-Zs stand before a line (`marks_before`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

PIECE = 64 * 1024
"""Unreadable bytes are divided into records of at most this size (bytes), which is the maximum size of a datagram."""

BLOCK = 16 * 1024
"""Whole lines are passed on in pieces of about this size (bytes), whose records fit into the processor's cache."""

WHITE = b" \t\r\n"

BYTE_ORDER_MARK, CTRL_Z = b"\xef\xbb\xbf", b"\x1a"

BLANK_MAX = 2**20
"""Maximum number of blank bytes that an encoder writes for one record. If the next record is farther away, bytes
between the two records were lost."""


PieceKind = Literal["lines", "tail", "blank", "mark", "too_long"]


class Piece(NamedTuple):
    """A piece of the input that begins at `offset`. Its kinds:

    lines: one or more whole lines, each at most `limit` bytes
    tail: an incomplete last line
    blank: blank lines that are not followed by a line within `limit` bytes
    mark: the byte order mark at the beginning of the input, or the Ctrl-Zs at its end
    too_long: a part of a line longer than `limit`"""

    kind: PieceKind
    offset: int
    data: bytes

    @property
    def name(self) -> str:
        """Name of the session record for this piece of the input, if it is blank lines or a mark (byte order mark or
        Ctrl-Zs)."""
        if self.kind == "blank":
            return "blank_lines"
        return "byte_order_mark" if self.data == BYTE_ORDER_MARK else "ctrl_z"


class LinesState(msgspec.Struct):
    """The state of `Lines`: the bytes that wait for a newline, and their offset."""

    offset: int = 0
    waiting: bytes = b""
    too_long: bool = False  # Whether the waiting bytes belong to a line larger than `Lines.limit`.
    settled: bool = False  # Whether `settle` has returned a line whose newline may still arrive.


class Lines:
    """Cuts bytes into pieces (`Piece`). `limit` is the maximum size (bytes) of a line, with the blank lines before it.

    Each byte is in exactly one piece, and at most `limit` bytes wait. If `marked` is true, a byte order mark stays in
    the first line."""

    def __init__(
        self, limit: int, state: LinesState | None = None, *, marked: bool = False
    ) -> None:
        state = state or LinesState()
        self.limit = limit
        self._marked = marked
        self._piece = min(PIECE, limit)
        # Offset of the first byte that has not been returned in a `Piece`.
        self.offset = state.offset
        self._waiting = bytearray(state.waiting)
        self._too_long, self._settled = state.too_long, state.settled
        self._blank = not self._waiting.strip(WHITE)

    @property
    def state(self) -> LinesState:
        return LinesState(self.offset, bytes(self._waiting), self._too_long, self._settled)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def between(self) -> bool:
        """Whether no bytes wait, and the next byte begins a line."""
        return not (self._waiting or self._too_long or self._settled)

    @property
    def after_blank(self) -> bool:
        """Whether the next byte begins a line, and all waiting bytes, if any, are blank lines."""
        if self._too_long:
            return False
        return not self._waiting or (self._blank and self._waiting.endswith(b"\n"))

    def take_back(self) -> bytes:
        """Remove and return the waiting bytes of an unfinished line. The caller must put these bytes before the next
        input."""
        if self._too_long:
            return b""
        taken, self._waiting, self._blank = bytes(self._waiting), bytearray(), True
        return taken

    def skip(self, size: int) -> None:
        """Count `size` bytes as read, because another reader has read these whole lines. No bytes may wait."""
        self.offset += size

    def feed(self, data: bytes) -> list[Piece]:
        if self._settled and data:
            self._settled = False
            if data.startswith(b"\n"):
                self.offset += 1
                return [Piece("blank", self.offset - 1, data[:1]), *self.feed(data[1:])]
        if not (self.offset or self._marked or self._too_long):
            begin = bytes(self._waiting[:3]) + data[:3]
            if begin[:3] == BYTE_ORDER_MARK:
                rest = (bytes(self._waiting) + data)[3:]
                self.offset, self._waiting, self._blank = 3, bytearray(), True
                return [Piece("mark", 0, BYTE_ORDER_MARK), *self.feed(rest)]
        # If `data` completes no piece, only append it. The run time is then linear, even if the input arrives byte by
        # byte.
        room = self._piece if self._too_long else self.limit
        if len(self._waiting) + len(data) < room:
            blank = self._blank and not data.strip(WHITE)
            if b"\n" not in data or (blank and not self._too_long):
                self._waiting += data
                self._blank = blank
                return []
        if self._waiting:
            data = bytes(self._waiting) + data
        pieces: list[Piece] = []
        at = 0
        while stop := self._next(data, at, pieces):
            at = stop
        self.offset += at
        self._waiting = bytearray(data[at:])
        self._blank = not self._waiting.strip(WHITE)
        return pieces

    def end(self) -> list[Piece]:
        """Return the waiting bytes at the end of the input as pieces. `feed` may be called later; offsets continue."""
        data = bytes(self._waiting)
        # Return the blank lines before an unfinished line as a separate piece. If the line continues later, it might
        # otherwise exceed `limit` because of its blank lines.
        blank = 0 if self._too_long else data.rfind(b"\n") + 1
        text = data if self._too_long else data.rstrip(CTRL_Z)
        kind: PieceKind = "too_long" if self._too_long else "tail" if text.strip(WHITE) else "blank"
        pieces = [
            Piece("blank", self.offset, data[:blank]),
            Piece(kind, self.offset + blank, text[blank:]),
            Piece("mark", self.offset + len(text), data[len(text) :]),
        ]
        self.offset += len(data)
        self._waiting, self._too_long, self._blank = bytearray(), False, True
        return [piece for piece in pieces if piece.data]

    def cut(self) -> list[Piece]:
        """Return the waiting bytes as a whole line without a newline: the next record begins behind them."""
        kind: PieceKind = "too_long" if self._too_long else "lines"
        piece = Piece(kind, self.offset, bytes(self._waiting))
        self.offset += len(piece.data)
        self._waiting, self._too_long, self._blank = bytearray(), False, True
        return [piece] if piece.data else []

    def settle(self, whole: Callable[[bytes], bool]) -> list[Piece]:
        """Return the waiting bytes if they are blank, or if `whole` says that they lack only the newline."""
        if not self._waiting or self._too_long:
            return []
        text = bytes(self._waiting).rstrip(CTRL_Z)
        if text.strip(WHITE) and not whole(text):
            return []
        self._settled = not self._blank
        return self.end()

    def give_up(self) -> list[Piece]:
        """Return the waiting bytes because memory is short. All bytes of an unfinished line count as part of a line
        that is too long."""
        data = bytes(self._waiting)
        self._too_long = self._too_long or not self._blank
        kind: PieceKind = "too_long" if self._too_long else "blank"
        starts = range(0, len(data), self._piece)
        pieces = [Piece(kind, self.offset + at, data[at : at + self._piece]) for at in starts]
        self.offset += len(data)
        self._waiting, self._blank = bytearray(), True
        return pieces

    def _next(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        """Append the piece of `data` (see `Piece`) that begins at `at`. Return the position after the piece, or 0 if
        more input is needed."""
        if self._too_long:
            return self._continue_too_long(data, at, pieces)
        window = at + self.limit
        stop = _last_line_end(data, at, min(at + BLOCK, window)) or _last_line_end(data, at, window)
        if stop:
            pieces.append(Piece("lines", self.offset + at, data[at:stop]))
            return stop
        if len(data) < window:
            return 0
        if stop := data.rfind(b"\n", at, window) + 1:
            pieces.append(Piece("blank", self.offset + at, data[at:stop]))
            return stop
        self._too_long = True
        return self._continue_too_long(data, at, pieces)

    def _continue_too_long(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        window = at + self._piece
        stop = data.find(b"\n", at, window) + 1
        if stop:
            self._too_long = False
        elif len(data) < window:
            return 0
        stop = stop or window
        pieces.append(Piece("too_long", self.offset + at, data[at:stop]))
        return stop


def _last_line_end(data: bytes, at: int, stop: int) -> int:
    """Return the position after the newline of the last non-blank line in `data[at:stop]`, or 0 if there is none."""
    newline = data.rfind(b"\n", at, stop)
    if newline < 0:
        return 0
    if data[max(at, data.rfind(b"\n", at, newline) + 1) : newline].strip(WHITE):
        return newline + 1
    content = len(data[at:newline].rstrip(WHITE))
    return data.index(b"\n", at + content) + 1 if content else 0


def marks_before(line: bytes) -> list[Piece]:
    """Return the Ctrl-Zs at the beginning of a line, and blanks before them, as pieces whose offsets count from the
    line's beginning."""
    blank = len(line) - len(line.lstrip(WHITE))
    stop = len(line) - len(line[blank:].lstrip(CTRL_Z))
    if stop == blank:
        return []
    mark = Piece("mark", blank, line[blank:stop])
    return [Piece("blank", 0, line[:blank]), mark] if blank else [mark]


def split_lines(data: bytes) -> list[bytes]:
    """Split whole lines. Return each line with its newline and the blank lines before it."""
    lines: list[bytes] = []
    begun = at = 0
    while at < len(data):
        stop = data.index(b"\n", at) + 1
        if data[at:stop].strip(WHITE):
            lines.append(data[begun:stop])
            begun = stop
        at = stop
    return lines


def without_content(name: str, size: int) -> bytes | None:
    """Return the bytes for which a session record without content stands: blank lines, a byte order mark or Ctrl-Zs.
    Return None for a record with any other name."""
    blank = b" " * min(size - 1, BLANK_MAX) + b"\n"
    marks = {"blank_lines": blank, "byte_order_mark": BYTE_ORDER_MARK}
    return CTRL_Z * min(size, BLANK_MAX) if name == "ctrl_z" else marks.get(name)
