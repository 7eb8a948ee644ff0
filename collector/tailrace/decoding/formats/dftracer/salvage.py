"""Repair DFTracer records that are not valid JSON, if their meaning is certain.

The tracer does not escape quotes, backslashes and control characters in names and arguments. All else in a record has a
fixed form, so that the record is split by this template:

    {"id":I,"name":"…","cat":"…","type":N,"pid":N,"tid":N,"ts":N,"dur":N,"ph":P,"args":{…}}

The numbers may come in any order, and some may be missing. The arguments are split at `,"key":` and `}}`. A string that
contains quotes is not repaired if it also contains a text that looks like a key: the string could be several members,
or end later. A comma before a closing bracket is dropped even if the record does not fit the template. A nan or inf
becomes `{"$f64":"7ff8000000000000"}` (its bits), a string that is not UTF-8 `{"$bytes":"c328"}`. A repair takes linear
time."""

from __future__ import annotations

import re
from json.decoder import JSONDecoder
from json.encoder import encode_basestring as quote
from typing import NamedTuple

from tailrace.decoding.json_object import Field, read_object

RECORD_MAX = 16383
"""Maximum size (bytes) of a record. The tracer truncates a longer record to this size, without a newline."""

START = re.compile(
    rb'\{[ \t]*"(?:id"[ \t]*:[ \t]*"?-?[0-9]|(?:cat|name)"[ \t]*:[ \t]*"|args"[ \t]*:[ \t]*\{)'
)
"""Pattern of the beginning of a record. It allows sorted keys, and the spaces that filter tools write."""

_SALVAGEABLE = {"bad_json", "hex_number", "invalid_utf8", "not_a_number", "lone_surrogate"}
"""The reasons for a refusal by `read_object` after which a repair is tried. The tracer writes some values in a form
that JSON does not allow."""

_ID = re.compile(r'\{(?:"id":("?-?[0-9]+"?),)?"name":"')
_AFTER_NAME = re.compile(r'","cat":"')
_AFTER_CATEGORY = re.compile(r'",(?="(?:type|pid|ts)":)')
_NUMBERS = re.compile(
    r'((?:"(?:type|pid|tid|ts|dur|ph)":(?:"[0-9A-Z]+"|-?[0-9]+)(?:,|(?=\})))*+)("args":\{|\}\Z)'
)
_KEY_END = re.compile(r'":(?=["\-0-9\[{tfni])')
_STRING_END = re.compile(r'"(?=,"(?:[^",]|"(?!:))*+":|,?\},?\}\Z)')
_END = re.compile(r"\}(,?)\}")
_STRING_OR_COMMA = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_NUMBER = re.compile(r"-?(?:nan|inf|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|true|false|null")
BITS = {
    "nan": "7ff8000000000000",
    "-nan": "fff8000000000000",
    "inf": "7ff0000000000000",
    "-inf": "fff0000000000000",
}
_ODD = re.compile(r'["\\\x00-\x1f]')
_UNDECODED = re.compile("[\udc80-\udcff]")
_decode = JSONDecoder().raw_decode

COMMA = "trailing_comma"
FLAWS = ("split_line", "invalid_utf8", "unescaped", "bare_nan", COMMA)
"""The possible flaws of a repaired record, the worst first."""


class FoundFields(NamedTuple):
    """The fields of a record with their JSON texts, and the flaw of the record or None."""

    fields: list[Field]
    text: bytes
    flaw: str | None


class _UnsureError(Exception):
    """Signals that the meaning of a record is not certain, so that it cannot be repaired."""


def find_fields(record: bytes) -> FoundFields | str:
    """Return the fields of a record, repaired if necessary, or the reason for a refusal: bad_json, not_an_object or
    too_deep."""
    found = read_object(record)
    if not isinstance(found, str):
        # The tracer does not escape backslashes, so a backslash is a flaw even in valid JSON.
        return FoundFields(found, record, "backslash" if b"\\" in record else None)
    if found not in _SALVAGEABLE:
        return found
    for repaired in (_without_commas(record), repair(record)):
        if repaired and not isinstance(found := read_object(repaired[0]), str):
            return FoundFields(found, *repaired)
    return "bad_json"


def _without_commas(record: bytes) -> tuple[bytes, str] | None:
    """Return the record without commas before closing brackets, or None. The result may still be invalid JSON."""
    fewer = _STRING_OR_COMMA.sub(lambda found: found[0].removeprefix(b","), record)
    return (fewer, COMMA) if len(fewer) < len(record) else None


def repair(record: bytes) -> tuple[bytes, str] | None:
    """Return the record as valid JSON, and the worst of its `FLAWS`; None if the meaning is not certain.

    `record` must not begin or end with white space."""
    if len(record) > RECORD_MAX:
        return None
    repairing = _Repairing(record.decode(errors="surrogateescape"))
    try:
        text = repairing.record()
    except _UnsureError:
        return None
    flaw = next((flaw for flaw in FLAWS if flaw in repairing.flaws), None)
    return (text.encode(), flaw) if flaw else None


class _Repairing:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.flaws: set[str] = set()

    def record(self) -> str:
        head = self._expect(_ID)
        number = f'"id":{head[1]},' if head[1] else ""
        name = self._string(_AFTER_NAME)
        category = self._string(_AFTER_CATEGORY)
        numbers, then = self._expect(_NUMBERS).groups()
        args = f"{then}{','.join(self._members())}}}" if then.startswith('"') else ""
        if not args:
            self._note_comma(numbers[-1:])
            numbers = numbers.removesuffix(",")
        return f'{{{number}"name":{name},"cat":{category},{numbers}{args}}}'

    def _members(self) -> list[str]:
        """Read the arguments up to the end of the record as JSON members. Raise _UnsureError if their meaning is not
        certain."""
        members: list[str] = []
        while not members or self._takes(","):
            if not self._takes('"'):
                self._note_comma("," if members else "")
                break
            key = self._string(_KEY_END)
            if key.startswith("{"):
                raise _UnsureError
            members.append(f"{key}:{self._value()}")
        end = _END.fullmatch(self._text, self._at)
        if not end:
            raise _UnsureError
        self._note_comma(end[1])
        return members

    def _note_comma(self, mark: str) -> None:
        self.flaws |= {COMMA} if mark == "," else set()

    def _value(self) -> str:
        first = self._text[self._at]
        if first == '"':
            self._at += 1
            return self._string(_STRING_END)
        if first in "[{":
            return self._nested()
        text = self._expect(_NUMBER)[0]
        if text not in BITS:
            return text
        self.flaws.add("bare_nan")
        return f'{{"$f64":"{BITS[text]}"}}'

    def _nested(self) -> str:
        """Return a JSON object or array unchanged. Raise _UnsureError if it is damaged: the tracer composes such values
        itself, so what it meant to write can only be guessed."""
        begin = self._at
        try:
            _, self._at = _decode(self._text, begin)
        except (ValueError, RecursionError):
            raise _UnsureError from None
        text = self._text[begin : self._at]
        if "\n" in text or _UNDECODED.search(text):
            raise _UnsureError
        return text

    def _string(self, end: re.Pattern[str]) -> str:
        """Return the string up to the first match of `end` as JSON. Raise _UnsureError if it may end elsewhere."""
        found = end.search(self._text, self._at)
        if not found:
            raise _UnsureError
        raw = self._text[self._at : found.start()]
        self._at = found.end()
        if _ODD.search(raw):
            self.flaws.add("split_line" if "\n" in raw else "unescaped")
            if '"' in raw and '":' in raw:
                raise _UnsureError
        if _UNDECODED.search(raw):
            self.flaws.add("invalid_utf8")
            return f'{{"$bytes":"{raw.encode(errors="surrogateescape").hex()}"}}'
        return quote(raw)

    def _expect(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if not found:
            raise _UnsureError
        self._at = found.end()
        return found

    def _takes(self, mark: str) -> bool:
        taken = self._text.startswith(mark, self._at)
        self._at += len(mark) if taken else 0
        return taken
