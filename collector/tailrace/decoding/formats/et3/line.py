"""Read the fields of one line of ET3, independent of other lines.

A line is `LETTER FIELD...` between white space. `#` begins a comment, alone or after the fields. These shapes are in
real use (docs/formats/et3.md). Below the rule are the shapes of ET1, the ancestor of Elephant Tracks 3:

    M method receiver last           E method last                X method receiver exception last
    N object size class site 0 last  A object size class site length last
    U object value field last        W object class last          D object thread time
    ---------------------------------------------------------------------------------------------
    E method receiver thread         U old object value field thread        D object thread
    T H method receiver exception thread          R object thread           C five counters
    N A I P V object size descriptor site length thread

ET3 writes decimal numbers. ET1 writes all numbers except counters in hexadecimal without a prefix. If a file begins
with ET1 shapes, all its lines are read in hexadecimal (`Events`)."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

SHAPES = {
    ("M", 3): "enter",
    ("E", 2): "leave",
    ("X", 4): "leave",
    ("N", 6): "allocation",
    ("A", 6): "allocation",
    ("U", 4): "update",
    ("W", 3): "witness",
    ("D", 3): "death",
}
"""Kind of an ET3 event, by letter and number of fields. All fields are numbers."""

_ALLOCATION = ("object", "size", "class", "site_id", "length", "thread")
_THROWN = ("method_id", "receiver", "exception", "thread")

ET1_SHAPES = {
    ("E", 3): ("leave", ("method_id", "receiver", "thread")),
    ("U", 5): ("update", ("old", "object", "value", "field_id", "thread")),
    ("D", 2): ("death", ("object", "thread")),
    ("R", 2): ("root", ("object", "thread")),
    ("T", 4): ("throw", _THROWN),
    ("H", 4): ("handle", _THROWN),
    ("N", 6): ("allocation", _ALLOCATION),
    ("A", 6): ("array_allocation", _ALLOCATION),
    ("I", 6): ("initial_allocation", _ALLOCATION),
    ("P", 6): ("preexisting_allocation", _ALLOCATION),
    ("V", 6): ("vm_allocation", _ALLOCATION),
}
"""Name and fields of the events that only ET1 writes, by letter and number of fields."""

COUNTERS = ("C", 5)

LETTERS = frozenset(letter for letter, _ in (*SHAPES, *ET1_SHAPES, COUNTERS))

_decimals = re.compile(rb"-?[0-9]{1,20}(?: -?[0-9]{1,20})*").fullmatch
_hexadecimals = re.compile(rb"[0-9a-fA-F]{1,16}(?: [0-9a-fA-F]{1,16})*").fullmatch
_descriptor = re.compile(rb"[\[L][\x21-\x7e]*").fullmatch

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Line(NamedTuple):
    """A readable line. Its kinds:

    event: a shape of ET3. `fields` has the letter and the numbers, in their shortest spelling.
    et1: a shape of ET1. `fields` has the letter, the numbers and a descriptor; `spelled` has the original spelling.
    counters: a line of counters in ET1.
    unknown: a line with a letter that no version of the format has.
    comment: a line with only a comment."""

    kind: Literal["event", "et1", "counters", "unknown", "comment"]
    fields: list[str]
    comment: str | None = None
    flaw: str | None = None
    spelled: tuple[str, ...] = ()


def read_line(data: bytes, *, et1: bool) -> Line | str:
    """Read a line, or return the reason why the line is unreadable. `et1`: whether numbers are hexadecimal.

    nul_bytes     the line has NULs
    invalid_utf8  the line is not UTF-8
    not_a_record  the line does not begin with a single letter
    field_count   the letter is known, but not with this number of fields
    bad_number    a field is not a 64-bit number"""
    if b"\0" in data:
        return "nul_bytes"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "invalid_utf8"
    fields = data.partition(b"#")[0].split()
    _, mark, said = text.partition("#")
    comment = said.strip() if mark else None
    if not fields:
        return Line("comment", [], comment) if mark else "not_a_record"
    if len(fields[0]) > 1 or not fields[0].isalpha():
        return "not_a_record"
    letter = fields[0].decode()
    if letter not in LETTERS:
        return Line("unknown", [field.decode() for field in fields], comment, "unknown_record")
    return _read_fields(letter, fields[1:], comment, et1=et1)


def _read_fields(letter: str, fields: list[bytes], comment: str | None, *, et1: bool) -> Line | str:
    shape = (letter, len(fields))
    if shape not in SHAPES and shape not in ET1_SHAPES and shape != COUNTERS:
        return "field_count"
    if shape == COUNTERS:
        numbers = _numbers(fields, hexadecimal=False)
        return Line("counters", [letter, *numbers], comment) if numbers else "bad_number"
    if shape in ET1_SHAPES and (shape not in SHAPES or _descriptor(fields[2])):
        descriptors = fields[2:3] if len(fields) == 6 else []
        numbers = _numbers(fields[:2] + fields[3:] if descriptors else fields, hexadecimal=True)
        if not numbers:
            return "bad_number"
        if descriptors:
            numbers.insert(2, descriptors[0].decode())
        spelled = tuple(field.decode() for field in fields)
        return Line("et1", [letter, *numbers], comment, None, spelled)
    numbers = _numbers(fields, hexadecimal=et1)
    if numbers:
        return Line("event", [letter, *numbers], comment)
    numbers = None if et1 else _numbers(fields, hexadecimal=True)
    return Line("event", [letter, *numbers], comment, "hex_numbers") if numbers else "bad_number"


def _numbers(fields: list[bytes], *, hexadecimal: bool) -> list[str] | None:
    """Return the fields as decimal numbers without leading zeros. Return None if a field is not a 64-bit number."""
    if not (_hexadecimals if hexadecimal else _decimals)(b" ".join(fields)):
        return None
    values = [int(field, 16 if hexadecimal else 10) for field in fields]
    if not all(INT64_MIN <= value <= UINT64_MAX for value in values) or values[-1] > INT64_MAX:
        return None
    return [str(value) for value in values]


_CLASSES = bytes.maketrans(b"0123456789AEMNUWDX", b"0111111111MMMMMMMM")
_DIGITS = bytes.maketrans(b"0123456789", b"1111111111")
_LONG = b"1" * 19


def are_usual(data: bytes) -> bool:
    """Return whether all lines are an ET3 letter and numbers below 10**18 in their shortest spelling."""
    kinds = data.translate(_CLASSES)
    return (
        not kinds.translate(None, b"01M \n")
        and data.count(b"\n") == kinds.count(b"M") == kinds.count(b"\nM") + kinds.startswith(b"M")
        and b" 00" not in kinds
        and b" 01" not in kinds
        and _LONG not in data.translate(_DIGITS)
    )
