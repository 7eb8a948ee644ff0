"""Decode text files in UTF-8, with or without a byte order mark, and name characters that users cannot see."""

from __future__ import annotations

import unicodedata

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark that Notepad and PowerShell write before text in UTF-8."""

_ENCODINGS = (
    (b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"),
)  # fmt: skip
_MANY = 0.3

QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2032\u2033\u0060\u00b4\uff02\uff07"
"""Quotation marks that word processors and web pages insert instead of straight ones."""


class EncodingError(ValueError):
    """Raised if the content of a file is not UTF-8 text. `line` is the number of the line, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def unmarked(data: bytes) -> bytes:
    return data.removeprefix(BYTE_ORDER_MARK)


def decoded(data: bytes) -> str:
    """Decode UTF-8 without a byte order mark. Raise EncodingError for other bytes, or for a zero byte."""
    for mark, name in _ENCODINGS:
        if data.startswith(mark):
            what = f"is {name} (it begins with a byte order mark of {name}); save it as UTF-8"
            raise EncodingError(1, what)
    zero = data.find(0)
    if zero >= 0:
        raise EncodingError(data.count(b"\n", 0, zero) + 1, _zeros(data))
    try:
        return unmarked(data).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise EncodingError(line, "is not UTF-8; save it as UTF-8") from None


def _zeros(data: bytes) -> str:
    if not data.strip(b"\0"):
        return f"has {len(data)} zero bytes and nothing else, as after a crash; restore it"
    few, many = sorted((data[0::2].count(0), data[1::2].count(0)))
    if few < _MANY * len(data) < many:
        return "has a zero beside each character, as UTF-16 without a byte order mark; save it as UTF-8"
    return "has a zero byte, as where a crash cut off a write; restore it"


def odd_character(text: str) -> str | None:
    """Return a message about the first character that is invisible or looks like a quote or a space, or None."""
    for character in text:
        kind = unicodedata.category(character)
        if kind in {"Zs", "Cf"} and character != " ":
            return f"{_named(character)}, which is no plain space; delete it, or type a space"
        if character in QUOTES:
            return f"{_named(character)}, which is no straight quote; type \" or '"
    return None


def _named(character: str) -> str:
    return f"the character U+{ord(character):04X} ({unicodedata.name(character, 'without a name')})"
