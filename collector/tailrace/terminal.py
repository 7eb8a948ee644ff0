"""Escape text for a terminal, so that only printable text and Tailrace's own colours pass.

Names, attributes, paths and error messages come from outside. A control character may clear the screen, change the
window title, or make the terminal send input. A character that changes the direction of text makes one name look like
another. The module escapes such characters as Python does.

`waiting` shows on a terminal that a command works."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from threading import Event

T = TypeVar("T")

FIRST_SECONDS = 2.0
"""Time (seconds) after which `waiting` first shows a line."""
EVERY_SECONDS = 0.5
_CLEAR = "\r\x1b[K"

COLOUR = re.compile("\x1b\\[(?:[01]|3[1-7]|9[0-7])?m")
"""Escape sequences that may pass to the terminal: the colours and the bold type of Tailrace's own output."""

_OBEYED = re.compile(
    f"({COLOUR.pattern})|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Pattern for the text to escape: control characters except newline and tab, direction marks, invisible characters,
and lone surrogates. Group 1 matches Tailrace's own colours, which are not escaped."""


def in_colour(stream: TextIO) -> bool:
    """Return whether a stream writes to a terminal and may have colours: NO_COLOR is not set, or is empty."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """Return text on one line, with control characters and invisible characters escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """Return text with all control characters escaped except newlines, tabs and colours."""
    return _OBEYED.sub(lambda match: match[1] or printable(match[0]), text)


def lines(text: str) -> str:
    """Return text with all control characters escaped except newlines."""
    return "\n".join(map(printable, text.split("\n")))


def guard() -> None:
    """Escape all further output of this process to a terminal with `harmless`."""
    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)


def guarded(stream: TextIO) -> TextIO:
    """Return a stream that applies `harmless` to all text, or `stream` itself if it does not write to a terminal."""
    return _text(_Guard(stream)) if stream.isatty() else stream


def unguarded(stream: TextIO) -> TextIO:
    """Return a stream to the same terminal that escapes nothing. Use it only to move the cursor."""
    inner = getattr(stream, "buffer", None)
    return _text(_Passing(inner.stream)) if isinstance(inner, _Guard) else stream


def waiting(what: str, call: Callable[[], T]) -> T:
    """Return the result of a call. If it takes longer than `FIRST_SECONDS`, show on the terminal of standard error what
    the command does (`what`), and for how long; clear this line at the end.

    If standard error is not a terminal, show nothing."""
    if not sys.stderr.isatty():
        return call()
    import threading  # noqa: PLC0415 - `tailrace --help` needs none

    ended = threading.Event()
    showing = threading.Thread(target=_show, args=(what, unguarded(sys.stderr), ended), daemon=True)
    try:
        showing.start()
    except RuntimeError:  # A limit of the system allows no further thread, so show no line.
        return call()
    try:
        return call()
    finally:
        ended.set()
        showing.join()


def _show(what: str, terminal: TextIO, ended: Event) -> None:
    wait = seconds = FIRST_SECONDS
    while not ended.wait(wait):
        terminal.write(f"{_CLEAR}{printable(what)} ... {seconds:.0f} s")
        terminal.flush()
        wait = EVERY_SECONDS
        seconds += wait
    if wait == EVERY_SECONDS:
        terminal.write(_CLEAR)
        terminal.flush()


def _text(out: io.BufferedIOBase) -> TextIO:
    return io.TextIOWrapper(
        cast("BinaryIO", out), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


class _Terminal(io.BufferedIOBase):
    """A writer to the terminal to which the stream `stream` writes."""

    def __init__(self, stream: TextIO) -> None:
        # Keep a reference to the stream, because a stream closes its file when it is garbage-collected.
        self.stream = stream
        self.out = stream.buffer

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.out.fileno()


class _Guard(_Terminal):
    """A writer that escapes UTF-8 text with `harmless`. The bytes of one call of `write` may end within a character."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._colour = ""

    def write(self, data: object) -> int:
        given = bytes(cast("bytes", data))
        text = self._colour + self._decoder.decode(given)
        at = _cut_colour(text)
        self._colour = text[at:]
        self.out.write(harmless(text[:at]).encode())
        return len(given)

    def flush(self) -> None:
        if not self.out.closed:
            self.out.flush()

    def close(self) -> None:
        """Write the remaining bytes. Do not close the terminal."""
        if not self.closed and not self.out.closed:
            self.out.write(harmless(self._colour + self._decoder.decode(b"", final=True)).encode())
            self._colour = ""
        super().close()


class _Passing(_Terminal):
    """A writer that passes bytes unescaped to the terminal, in order with the escaped text of a `_Guard`."""

    def write(self, data: object) -> int:
        given = bytes(cast("bytes", data))
        self.out.write(given)
        self.out.flush()
        return len(given)


def _cut_colour(text: str) -> int:
    """Return the index where an incomplete colour sequence begins at the end of `text`, or the length of `text`."""
    at = text.rfind("\x1b", -4)
    return at if at >= 0 and re.fullmatch(r"\x1b(\[\d{0,2})?", text[at:]) else len(text)
