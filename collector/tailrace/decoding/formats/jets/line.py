"""Read lines of JETS into records: one line (`read_line`), or the most frequent lines in bulk (`read_usual`), with the
same results. The frequent lines are records, their ends, events and annotations. Lines with integer ids below 2^63 and
only fields of the specification are read fastest.

The module `decoder` describes columns, attributes and dialects. An unreadable line becomes a malformed record, with its
id if that is readable, and a reason from `json_object.read_object` or one of these reasons:

    missing_key   the type, or a key that the type requires, is missing
    bad_clk       clk is not an integer of 64 bits; `12.0` and `1e3` are integers
    bad_id        an id, except parent_id, is neither an unsigned integer of 64 bits nor a string
    bad_field     the type, name, record_type, description or version is not a string, or the
                  metadata not an object"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, reduce
from hashlib import blake2b
from json.encoder import encode_basestring as quote
from math import isclose, isfinite
from operator import or_
from typing import Annotated, Any, ClassVar, NamedTuple, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tailrace.decoding.json_object import Field, Texts, as_object, integer, integral, read_object
from tailrace.decoding.lines import BYTE_ORDER_MARK, WHITE, split_lines
from tailrace.decoding.memo import Memo
from tailrace.decoding.struct_lines import (
    StructLines,
    fields_but,
    keys_of,
    members,
    rewritten,
    spelled,
)
from tailrace.model.record import Kind, Record, SessionFacts, as_int64, malformed

_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?")
CLOCKS = {"clock_frequency_hz": 1, "clock_frequency_mhz": 10**6, "clock_frequency_ghz": 10**9}
PERIODS = {"clock_period_ps": 10**12, "clock_period_ns": 10**9}
TOTALS = {
    "total_records": Kind.BEGIN,
    "total_record_ends": Kind.END,
    "total_annotations": Kind.ANNOTATION,
    "total_events": Kind.INSTANT,
}

Fields = dict[str, Field]

_RECORD_ID = re.compile(
    rb"""[^{}]*+\{(?>[^{}]*?"type"\s*:\s*"record")(?>[^{}]*?"id"\s*:)\s*([0-9]{1,18})\s*[,}]"""
)
"""The id of a record in a line that is no JSON object. No brace may stand between the line's first brace and the id, so
that the id is not one in the record's data."""

_NO_EVENT = re.compile(
    rb"""[^{}]*+\{(?>[^{}]*?"type"\s*:\s*")(header|footer)(?!.*"(?:type|clk)")""", re.DOTALL
)
"""The type of a header or footer in a line that is no JSON object. No field of another line may follow, as if a producer
had written an event into the torn line."""


class _MalformedError(Exception):
    """Signals that a line is unreadable. The argument is the reason."""


class _LineReading(NamedTuple):
    kind: Kind
    theirs: Texts  # Attributes that are fields of the line, with the producer's own text.
    # Attributes that the decoder computes.
    ours: Texts = {}  # noqa: RUF012 - nobody writes into it
    name: str | None = None
    category: str | None = None
    id: int | None = None
    parent: int | None = None
    start: int | None = None
    end: int | None = None
    flaw: str | None = None
    facts: SessionFacts | None = None


def read_line(offset: int, line: bytes) -> Record:
    """Return the record of the line at `offset`. `line` includes the newline and the blank lines before the line."""
    marked = line.startswith(BYTE_ORDER_MARK)
    found = read_object(line.removeprefix(BYTE_ORDER_MARK))
    if isinstance(found, str):
        shown, known = _RECORD_ID.match(line), _NO_EVENT.match(line)
        # Lines that refer to the record are not orphans if its id is readable.
        return malformed(offset, line, found)._replace(
            id=shown and int(shown[1]), name=known and known[1].decode()
        )
    fields = {field.key: field for field in found}
    try:
        reading = _READERS.get(_string(fields, "type"), _read_other)(fields)
    except _MalformedError as refused:
        lost, type_ = None, fields["type"].value if "type" in fields else None
        if type_ == "record" and "id" in fields:
            with suppress(_MalformedError):
                lost = _id(fields, "id", set())
        other = type_ if isinstance(type_, str) and type_ in {"header", "footer"} else None
        return malformed(offset, line, str(refused))._replace(id=lost, name=other)
    theirs, repeated = reading.theirs, len(fields) < len(found)
    flaw = "duplicate_key" if repeated else reading.flaw
    reserved = any(key[:1] == "$" for key in fields)
    if repeated or reserved or theirs.keys() & reading.ours:
        theirs = {"$line": quote(line.decode().strip())}
    return Record(
        offset, len(line), reading.kind, "", None, None, reading.name, reading.category, reading.id,
        reading.parent, reading.start, reading.end, as_object(reading.ours | theirs),
        "byte_order_mark" if marked else flaw, reading.facts,
    )  # fmt: skip


# Functions that read the fields of a line according to its type


def _read_header(fields: Fields) -> _LineReading:
    version = _string(fields, "version")
    metadata = _field(fields, "metadata").value
    if not isinstance(metadata, dict):
        raise _MalformedError("bad_field")
    ticks, unsure = _ticks_per_second(metadata)
    ours = {"clock": '"clk"'}
    if ticks is not None:
        ours["ticks_per_second"] = str(int(ticks)) if ticks.is_integer() else repr(ticks)
    return _LineReading(
        Kind.SESSION,
        {"producer": as_object(_rest(fields, {"type"})) or "{}"},
        ours,
        name="header",
        flaw="bad_frequency" if unsure else None if version.startswith("2.") else "version",
        facts=SessionFacts(clock="clk", ticks_per_second=ticks, starts=True),
    )


def _read_footer(fields: Fields) -> _LineReading:
    given = [key for key in fields if key.startswith("total_")]
    totals: dict[str, int] = {}
    flaw = None
    for key in given:
        value = integer(fields[key])
        if value is not None and 0 <= value < 2**63:
            if key in TOTALS:
                totals[TOTALS[key]] = value
        elif fields[key].value is not None:
            flaw = "bad_total"
    ours = {}
    # A field `totals` of the producer's footer has the same key as this attribute. For such a footer, `read_line`
    # stores the whole line under `$line` instead.
    if given or "totals" in fields:
        ours["totals"] = as_object({key: fields[key].text for key in given}) or "{}"
    return _LineReading(
        Kind.SESSION,
        _rest(fields, {"type", *given}),
        ours,
        name="footer",
        flaw=flaw,
        facts=SessionFacts(totals=totals or None, ends=True),
    )


def _read_record(fields: Fields) -> _LineReading:
    used = {"type", "clk", "name", "record_type"}
    parent, flaw = None, None
    if "parent_id" in fields and fields["parent_id"].value is None:
        used.add("parent_id")
    elif "parent_id" in fields:
        try:
            parent = _id(fields, "parent_id", used)
        except _MalformedError:
            flaw = "bad_parent"
    return _LineReading(
        Kind.BEGIN,
        start=_clk(fields),
        name=_name(fields, "id"),
        category=_string(fields, "record_type"),
        id=_id(fields, "id", used),
        parent=parent,
        theirs=_rest(fields, used),
        flaw=flaw,
    )


def _read_record_end(fields: Fields) -> _LineReading:
    used = {"type", "clk"}
    key = "record_id" if "record_id" in fields else "id"
    return _LineReading(
        Kind.END, end=_clk(fields), id=_id(fields, key, used), theirs=_rest(fields, used)
    )


def _read_within(fields: Fields) -> _LineReading:
    """Read an event or an annotation, which lie within a record."""
    is_event = fields["type"].value == "event"
    used = {"type", "clk", "name"} if is_event else {"type", "name"}
    if not is_event:
        _field(fields, "data")
    return _LineReading(
        Kind.INSTANT if is_event else Kind.ANNOTATION,
        start=_clk(fields) if is_event else None,
        name=_name(fields, "record_id"),
        parent=_id(fields, "record_id", used),
        theirs=_rest(fields, used),
    )


def _read_other(fields: Fields) -> _LineReading:
    used = {"type"}
    start = _int64(fields["clk"]) if "clk" in fields else None
    if start is not None:
        used.add("clk")
    return _LineReading(
        Kind.SESSION,
        _rest(fields, used),
        name=fields["type"].value,
        start=start,
        flaw="unknown_type",
    )


_READERS: dict[str, Callable[[Fields], _LineReading]] = {
    "header": _read_header,
    "record": _read_record,
    "record_end": _read_record_end,
    "event": _read_within,
    "annotation": _read_within,
    "footer": _read_footer,
}


# Functions that read single fields of a line


def _field(fields: Fields, key: str) -> Field:
    if key not in fields:
        raise _MalformedError("missing_key")
    return fields[key]


def _string(fields: Fields, key: str) -> str:
    value = _field(fields, key).value
    if not isinstance(value, str):
        raise _MalformedError("bad_field")
    return value


def _name(fields: Fields, id_key: str) -> str | None:
    """Return the name of a line. In dialect A, whose ids are strings, the name may be missing."""
    if "description" in fields:
        _string(fields, "description")
    if "name" not in fields and isinstance(_field(fields, id_key).value, str):
        return None
    return _string(fields, "name")


def _clk(fields: Fields) -> int:
    clk = _int64(_field(fields, "clk"))
    if clk is None:
        raise _MalformedError("bad_clk")
    return clk


def _int64(field: Field) -> int | None:
    value = integer(field)
    return value if value is not None and -(2**63) <= value < 2**63 else None


def _id(fields: Fields, key: str, used: set[str]) -> int:
    """Return the number for an id column. Add `key` to `used` if this number stands for the whole field.

    For a string id, the column has only a hash, so that the field stays in the attributes, too."""
    field = _field(fields, key)
    if isinstance(field.value, str):
        return number_of(field.value)
    value = integer(field)
    if value is None or not 0 <= value < 2**64:
        raise _MalformedError("bad_id")
    used.add(key)
    return as_int64(value)


def number_of(id_: str) -> int:
    """Return the number for a string id in the id column: 63 bits of the string's BLAKE2b digest."""
    return int.from_bytes(blake2b(id_.encode(), digest_size=8).digest(), "big") >> 1


def _ticks_per_second(metadata: dict[str, object]) -> tuple[float | None, bool]:
    """Return the frequency (Hz) of the clock, or None if it is uncertain, and whether the metadata about the frequency
    is wrong."""
    found: list[float] = []
    unsure = False
    for key, factor in (CLOCKS | PERIODS).items():
        value = metadata.get(key)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        if value is None:
            continue
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        ticks = 0.0
        if numeric and value:
            ticks = factor / value if key in PERIODS else float(value * factor)  # type: ignore[operator] # a number
        if isfinite(ticks) and ticks > 0:
            found.append(ticks)
        else:
            unsure = True
    differ = any(not isclose(each, found[0]) for each in found[1:])
    return (found[0] if found and not differ else None), unsure or differ


# Functions that compose the JSON attributes of a record


def _rest(fields: Fields, used: set[str]) -> Texts:
    """Return the JSON texts of the fields not in `used`: description, data, then other fields in the line's order."""
    texts: Texts = {}
    for key in ("description", "data", *fields):
        if key in fields and key not in used:
            texts[key] = fields[key].text
    if "description" in texts and isinstance(fields["description"].value, str):
        texts["description"] = quote(fields["description"].value)
    return texts


# The reader of frequent lines

BEGIN, END, INSTANT, ANNOTATION = Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.ANNOTATION

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)

_Clk = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Begin(Struct, tag_field="type", tag="record", gc=False):
    clk: _Clk
    record_type: str
    id: _Id | str
    name: str | UnsetType = UNSET
    parent_id: _Id | str | UnsetType | None = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        id_, name, parent = self.id, self.name, self.parent_id
        if name is UNSET and type(id_) is not str:
            return None
        return _record(
            Record,
            (
                offset, size, BEGIN, "", None, None, None if name is UNSET else name, self.record_type,
                id_ if type(id_) is int else _number(id_), parent if type(parent) is int else _number(parent),
                self.clk, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


class _End(Struct, tag_field="type", tag="record_end", gc=False):
    clk: _Clk
    record_id: _Id | str | UnsetType = UNSET
    id: _Id | str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        ended = self.id if self.record_id is UNSET else self.record_id
        if (self.record_id is UNSET) == (self.id is UNSET):
            return None
        return _record(
            Record,
            (
                offset, size, END, "", None, None, None, None,
                ended if type(ended) is int else _number(ended), None, None,
                self.clk, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


def _inside(line: _Event | _Annotation, offset: int, size: int, more: str) -> Record | None:
    id_, name = line.record_id, line.name
    if name is UNSET and type(id_) is not str:
        return None
    clk = line.clk
    return _record(
        Record,
        (
            offset, size, ANNOTATION if clk is None else INSTANT, "", None, None,
            None if name is UNSET else name, None, None,
            id_ if type(id_) is int else _number(id_),
            clk, None, _with(_attributes(line), more), None, None,
        ),
    )  # fmt: skip


class _Event(Struct, tag_field="type", tag="event", gc=False):
    clk: _Clk
    record_id: _Id | str
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    record = _inside


class _Annotation(Struct, tag_field="type", tag="annotation", gc=False):
    clk: ClassVar[None] = None
    record_id: _Id | str
    data: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET

    record = _inside


def _clk_of(raw: Raw) -> int:
    return _integer(str(raw, "utf-8"), -(2**63), 2**63)


def _id_of(raw: Raw) -> int | str:
    text = str(raw, "utf-8")
    if text[0] == '"':
        return _decode_text(raw)
    number = _integer(text, 0, 2**64)
    return number if number < 2**63 else as_int64(number)


def _parent(raw: Raw) -> int | str | None:
    return None if bytes(raw) == b"null" else _id_of(raw)


@lru_cache(4096)
def _integer(text: str, least: int, end: int) -> int:
    """Return the value of a JSON number. Raise ValueError if the value is not an integer from `least` to `end` - 1."""
    number = int(text) if text.lstrip("-").isdecimal() else integral(text)
    if number is None or not least <= number < end:
        raise ValueError(text)
    return number


_decode_text = msgspec.json.Decoder(str).decode

_Line = _Begin | _End | _Event | _Annotation
_NUMBERS: dict[str, Callable[[Raw], object]] = {
    "clk": _clk_of, "id": _id_of, "record_id": _id_of, "parent_id": _parent,
}  # fmt: skip


def _spelled(plain: type[_Line]) -> type[Struct]:
    """Return a struct like `plain` whose numbers and ids are JSON texts. Its method `record` reads these texts
    first."""
    keys = plain.__struct_fields__
    numbers = [(key, _NUMBERS[key]) for key in keys if key in _NUMBERS]
    of_plain: Any = plain.record

    def record(self: Struct, offset: int, size: int, more: str) -> Record | None:
        try:
            for key, read in numbers:
                if (text := getattr(self, key)) is not UNSET:
                    setattr(self, key, read(text))
        except ValueError:  # A number is not valid.
            return None
        return of_plain(self, offset, size, more)  # type: ignore[no-any-return] # a method of `plain`

    members: dict[str, object] = {"record": record}
    if "clk" not in keys:
        members["clk"] = None
    return spelled(plain, _NUMBERS, members)


_LINES: StructLines[_Line, Any] = StructLines(_Line, reduce(or_, map(_spelled, get_args(_Line))))
_IDS = {"id", "record_id", "parent_id"}
_STRING_IDS = (b'"id":"', b'_id":"')


def read_usual(offset: int, data: bytes) -> list[Record | bytes]:
    """Read whole lines from `offset` on. Return a record for each usual line, and the bytes of each other line."""
    lines = data.split(b"\n")
    lines.pop()
    sizes = [len(line) + 1 for line in lines]
    decoded: Sequence[Any] | None = _LINES.decode(data, lines)
    if decoded is None:
        whole = split_lines(data)
        lines, sizes = [line.strip(WHITE) for line in whole], list(map(len, whole))
        decoded = _LINES.decode(data, lines) or _LINES.decode_each(lines)
    again = rewritten(decoded)
    further = _LINES.further(lines, decoded, again)
    # `again` has the decoded lines as msgspec writes them: without white space, and without escapes in keys.
    if b'id":"' in again and any(key in again for key in _STRING_IDS):
        further = _with_ids(lines, decoded, further)
    found: list[Record | bytes] = []
    begin = offset
    for one, size, more in zip(decoded, sizes, further, strict=True):
        record = None if one is None or more is None else one.record(offset, size, more)
        found.append(record or data[offset - begin : offset - begin + size])
        offset += size
    return found


def _with_ids(
    lines: list[bytes],
    decoded: Sequence[Struct | None],
    further: Sequence[str | None],
) -> Sequence[str | None]:
    """Return each line's JSON members for the attributes: the fields in `further`, and ids that are strings."""
    others = fields_but(_keys_without_ids, lines, decoded)
    for each, one in zip(others, decoded, strict=True):
        # An event's `id` has no column, so it is not in `own` and stays in the attributes.
        own = keys_of(type(one)) if one else ()
        for key in each.keys() & _IDS:
            if key in own and bytes(each[key])[:1] != b'"':
                del each[key]
    found = members(others)
    return [None if more is None else both for more, both in zip(further, found, strict=True)]


@cache
def _keys_without_ids(type_: type[Struct]) -> tuple[str, ...]:
    return tuple(key for key in keys_of(type_) if key not in _IDS)


def _with(attributes: str | None, more: str) -> str | None:
    if not more:
        return attributes
    return f"{attributes[:-1]}{more}}}" if attributes else f"{{{more[1:]}}}"


def _number(id_: int | str | UnsetType | None) -> int | None:
    if type(id_) is str:
        return _recall_number(id_) or _numbers.keep(id_, number_of(id_))
    return None if id_ is UNSET else cast(int | None, id_)


_numbers: Memo[str, int] = Memo(4096, 256)
_recall_number = _numbers.get

_memo: Memo[str, str] = Memo(
    4096, 256
)  # The cache of lines' attributes takes at most about 4 MiB of memory.
_recall = _memo.get


def _attributes(line: _Line) -> str | None:
    description, data = line.description, line.data
    described = None
    if description is not UNSET:
        described = _recall(description) or _memo.keep(
            description, f'{{"description":{quote(description)}}}'
        )
    if data is UNSET:
        return described
    text = str(data, "utf-8")
    return f'{described[:-1]},"data":{text}}}' if described else f'{{"data":{text}}}'
