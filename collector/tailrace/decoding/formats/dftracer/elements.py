"""Find the elements of DFTracer lines with several records, as programs write arrays: `[{…}, {…}]` or `{…},{…}`.

An *element* is a JSON object with the brackets, commas and white space around it. Separators follow the object: commas,
`]` and white space. The next element of the line begins behind them, at a `[`, or at a `{` if a comma or a `]` is among
them. A newline ends an element, too, so a line with one record is one element.

An element is complete once the next one begins. Therefore a line may be longer than the limit for a record, and
elements are read before the line ends."""

from __future__ import annotations

import re

import msgspec

from tailrace.decoding.lines import WHITE, split_lines

NESTING = 4
"""Maximum depth of the nested objects in an element that a regular expression finds. `Element` finds deeper ones."""

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SEPARATORS = re.compile(rb"[ \t\r\n,\]]*+")
_TO_MARK = re.compile(rb'[^"{}]*+(?:%b[^"{}]*+)*+' % _STRING, re.DOTALL)
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BETWEEN = re.compile(rb"\}[ \t\r]*+[,\[\]][ \t\r,\]]*+[{\[]|\}[ \t\r]*+\[")
"""Pattern of the text between two elements of a line. A string or a nested array may match, too."""


def _object(levels: int) -> bytes:
    inner = rb"(?:%b|%b)" % (_STRING, _object(levels - 1)) if levels else _STRING
    return rb'\{[^"{}]*+(?:%b[^"{}]*+)*+\}' % inner


_ELEMENT = re.compile(
    rb"[ \t\r,\[\]]*+%b(?:[ \t\r]*+[,\]][ \t\r,\]]*+(?=[{\[])|[ \t\r]*+(?=\[))" % _object(NESTING),
    re.DOTALL,
)
"""Pattern of a whole element that is followed by another one in the same line."""


class Element(msgspec.Struct):
    """The scan of an unfinished element, which finds where the next element begins. The bytes may come in several
    parts."""

    depth: int = 0  # Number of open braces.
    string: bool = False  # Whether the next byte is in a string.
    escaped: bool = False  # Whether a backslash precedes the next byte.
    closed: bool = False  # Whether the object has ended, and only separators stand behind it.
    separated: bool = False  # Whether a comma or a `]` is among these separators.

    def next(self, data: bytes, at: int, stop: int) -> int:
        """Return the position of the next element in `data[at:stop]`, or `stop` if none begins there. The next call
        must begin at this position."""
        begins = not (self.depth or self.string or self.closed)
        if begins and (whole := _ELEMENT.match(data, at, stop)):
            return whole.end()
        while at < stop:
            if self.string:
                at = _IN_STRING.match(data, at + self.escaped, stop).end()  # type: ignore[union-attr] # matches anything
                self.escaped = data[at:stop] == b"\\"
                self.string = data[at : at + 1] != b'"' or at >= stop
                at += 1
                continue
            if self.closed:
                separators = _SEPARATORS.match(data, at, stop)[0]  # type: ignore[index]
                self.separated |= b"," in separators or b"]" in separators
                at += len(separators)
                if at == stop:
                    break
                follows = data.startswith(b"[", at) or (
                    self.separated and data.startswith(b"{", at)
                )
                self.closed = self.separated = False
                if follows:
                    return at
            at = _TO_MARK.match(data, at, stop).end()  # type: ignore[union-attr]
            mark = data[at : at + 1] if at < stop else b""
            at += 1
            self.string = mark == b'"'
            self.closed = mark == b"}" and self.depth == 1
            self.depth = max(0, self.depth + (mark == b"{") - (mark == b"}"))
        return stop


def whole_elements(data: bytes, at: int, stop: int) -> list[bytes]:
    """Return the elements from `at` on that are certainly complete, because another element of the line begins after
    them and before `stop`."""
    found = []
    while whole := _ELEMENT.match(data, at, stop):
        found.append(whole[0])
        at = whole.end()
    return found


def split_elements(data: bytes) -> list[bytes]:
    """Split whole lines into elements. The first element of a line includes the blank lines before the line."""
    lines = split_lines(data)
    if not _BETWEEN.search(data):
        return lines
    found = []
    for line in lines:
        at, begin = 0, len(line) - len(line.lstrip(WHITE))
        while at < len(line):
            stop = Element().next(line, max(at, begin), len(line))
            found.append(line[at:stop])
            at = stop
    return found
