"""Read the usual lines of JETS in bulk. The results are equal to the results of `line.read_line`, but faster.

A usual line is a record, record_end, event or annotation, in any legal spelling.
The fastest lines have integer ids below 2^63 and only fields of the specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from json.encoder import encode_basestring as quote
from typing import Annotated, NamedTuple, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tailrace.decoding.formats.jets.line import number_of
from tailrace.decoding.json_object import DEPTH_MAX, integral
from tailrace.decoding.lines import WHITE, only_white, same_value, split_lines
from tailrace.decoding.memo import Memo
from tailrace.model.record import Kind, Record, as_int64

BEGIN, END, INSTANT, ANNOTATION = Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.ANNOTATION

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)

_Clk = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Columns(NamedTuple):
    """The columns of a line's record. A line without a name is valid only if the id `named_by` is a string."""

    kind: Kind
    named_by: int | str | None
    name: str | UnsetType | None
    category: str | None = None
    id: int | str | UnsetType | None = None
    parent: int | str | UnsetType | None = None
    start: int | None = None
    end: int | None = None


class _Begin(Struct, tag_field="type", tag="record", gc=False):
    clk: _Clk
    record_type: str
    id: _Id | str
    name: str | UnsetType = UNSET
    parent_id: _Id | str | UnsetType | None = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        parent = None if self.parent_id is UNSET else self.parent_id
        if type(self.id) is str or type(parent) is str or self.name is UNSET:
            return None
        return _record(
            Record,
            (
                offset, size, BEGIN, "", None, None, self.name, self.record_type, self.id,
                parent, self.clk, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip

    def columns(self) -> _Columns:
        return _Columns(
            BEGIN, self.id, self.name, self.record_type, self.id, self.parent_id, self.clk
        )


class _End(Struct, tag_field="type", tag="record_end", gc=False):
    clk: _Clk
    record_id: _Id | str | UnsetType = UNSET
    id: _Id | str | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        if type(self.record_id) is not int or self.id is not UNSET:
            return None
        return _record(
            Record,
            (
                offset, size, END, "", None, None, None, None, self.record_id, None, None,
                self.clk, _with(None, more), None, None,
            ),
        )  # fmt: skip

    def columns(self) -> _Columns | None:
        if (self.record_id is UNSET) == (self.id is UNSET):
            return None
        ended = self.id if self.record_id is UNSET else self.record_id
        return _Columns(END, None, None, id=ended, end=self.clk)


class _Event(Struct, tag_field="type", tag="event", gc=False):
    clk: _Clk
    record_id: _Id | str
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        if type(self.record_id) is str or self.name is UNSET:
            return None
        return _record(
            Record,
            (
                offset, size, INSTANT, "", None, None, self.name, None, None, self.record_id,
                self.clk, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip

    def columns(self) -> _Columns:
        return _Columns(INSTANT, self.record_id, self.name, parent=self.record_id, start=self.clk)


class _Annotation(Struct, tag_field="type", tag="annotation", gc=False):
    record_id: _Id | str
    data: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str) -> Record | None:
        if type(self.record_id) is str or self.name is UNSET:
            return None
        return _record(
            Record,
            (
                offset, size, ANNOTATION, "", None, None, self.name, None, None, self.record_id,
                None, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip

    def columns(self) -> _Columns:
        return _Columns(ANNOTATION, self.record_id, self.name, parent=self.record_id)


class _SpelledBegin(Struct, tag_field="type", tag="record", gc=False):
    clk: Raw
    record_type: str
    id: Raw
    name: str | UnsetType = UNSET
    parent_id: Raw | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def usual(self) -> _Begin:
        parent = UNSET if self.parent_id is UNSET else _parent(self.parent_id)
        return _Begin(
            _clk(self.clk), self.record_type, _id(self.id), self.name, parent, self.description, self.data
        )  # fmt: skip


class _SpelledEnd(Struct, tag_field="type", tag="record_end", gc=False):
    clk: Raw
    record_id: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET

    def usual(self) -> _End:
        ids = [UNSET if raw is UNSET else _id(raw) for raw in (self.record_id, self.id)]
        return _End(_clk(self.clk), *ids)


class _SpelledEvent(Struct, tag_field="type", tag="event", gc=False):
    clk: Raw
    record_id: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def usual(self) -> _Event:
        return _Event(_clk(self.clk), _id(self.record_id), self.name, self.description, self.data)


class _SpelledAnnotation(Struct, tag_field="type", tag="annotation", gc=False):
    record_id: Raw
    data: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET

    def usual(self) -> _Annotation:
        return _Annotation(_id(self.record_id), self.data, self.name, self.description)


def _clk(raw: Raw) -> int:
    clk = _integer(str(raw, "utf-8"))
    if not -(2**63) <= clk < 2**63:
        raise ValueError(clk)
    return clk


def _id(raw: Raw) -> int | str:
    text = str(raw, "utf-8")
    if text[0] == '"':
        return _decode_text(raw)
    number = _integer(text)
    if not 0 <= number < 2**64:
        raise ValueError(number)
    return as_int64(number)


def _parent(raw: Raw) -> int | str | None:
    return None if bytes(raw) == b"null" else _id(raw)


@lru_cache(4096)
def _integer(text: str) -> int:
    """Return the integer value of a JSON number. Raise ValueError for any other text."""
    number = int(text) if _WHOLE.fullmatch(text) else integral(text)
    if number is None:
        raise ValueError(text)
    return number


_WHOLE = re.compile(r"-?[0-9]{1,20}")
_decode_text = msgspec.json.Decoder(str).decode

_Line = _Begin | _End | _Event | _Annotation
_Spelled = _SpelledBegin | _SpelledEnd | _SpelledEvent | _SpelledAnnotation
"""The types of usual lines with numbers and ids as texts, which may have fractions or exponents."""
_KNOWN = {one: frozenset(one.__struct_fields__) | {"type"} for one in get_args(_Line)}
_IDS = frozenset({"id", "record_id", "parent_id"})
_FIRST = frozenset({"description", "data"})
"""The fields that come first in the attributes, in any order of the line."""


_NOTHING: dict[str, Raw] = {}

_decode = msgspec.json.Decoder(_Line).decode
_decode_spelled = msgspec.json.Decoder(_Spelled).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode, _encode_lines = msgspec.json.Encoder().encode, msgspec.json.Encoder().encode_lines


def read_usual(offset: int, data: bytes) -> list[Record | bytes]:
    """Read whole lines from `offset` on. Return a record for each usual line, and the bytes of each other line.

    msgspec uses the last of repeated keys, ignores white space, accepts any spelling of a string, skips unknown fields, and
    checks Raw values only for valid JSON. msgspec never writes more bytes than it reads. If the rewritten lines are shorter by
    exactly the spaces and carriage returns, msgspec has therefore dropped nothing else. msgspec does not check the UTF-8 and
    the nesting of Raw values, so this function checks both.
    """
    lines = data.split(b"\n")
    lines.pop()
    sizes = [len(line) + 1 for line in lines]
    usual: list[_Line | None] | None = _decode_all(data, lines)
    written: Sequence[_Line | _Spelled | None]
    if usual is None:
        whole = split_lines(data)
        lines, sizes = [line.strip(WHITE) for line in whole], list(map(len, whole))
        usual, written = _decode_each(lines)
    else:
        written = usual
    fields = _fields(lines, written)
    found: list[Record | bytes] = []
    begin = offset
    for line, one, size, members in zip(lines, usual, sizes, fields, strict=True):
        record = None if one is None or members is None else _read(offset, size, line, one, members)
        found.append(record or data[offset - begin : offset - begin + size])
        offset += size
    return found


def _decode_all(data: bytes, lines: list[bytes]) -> list[_Line | None] | None:
    """Return the decoded lines, or None if any line is unusual. `lines` may omit white space around the lines in `data`."""
    try:
        if not data.isascii():
            data.decode()
        usual: list[_Line | None] = list(map(_decode, lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    longest = max(map(len, lines))
    return None if longest > 2 * DEPTH_MAX and any(map(_may_be_deep, lines)) else usual


def _decode_each(
    lines: list[bytes],
) -> tuple[list[_Line | None], list[_Line | _Spelled | None]]:
    """Return each line decoded, or None for an unusual line, and each line in its original spelling of numbers."""
    usual: list[_Line | None] = []
    written: list[_Line | _Spelled | None] = []
    for line in lines:
        one: _Line | None = None
        spelled: _Line | _Spelled | None = None
        # Try the spelling of the previous line first. Both ways read both spellings.
        if not written or not isinstance(written[-1], _Spelled):
            one = spelled = _decode_one(line)
        if one is None:
            with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                spelled = other = _decode_spelled(line)
                if not line.isascii():
                    line.decode()
                one = None if _may_be_deep(line) else other.usual()
        usual.append(one)
        written.append(None if one is None else spelled)
    return usual, written


def _decode_one(line: bytes) -> _Line | None:
    usual = _decode_all(line, [line])
    return usual[0] if usual else None


def _fields(
    lines: list[bytes], usual: Sequence[_Line | _Spelled | None]
) -> list[dict[str, Raw] | None]:
    """Return the fields of each line, or None for a line with a repeated field.

    If all lines have only the fields of their types, return `_NOTHING` for each line."""
    read = [(line, one) for line, one in zip(lines, usual, strict=True) if one is not None]
    text = b"\n".join(line for line, _ in read) + b"\n"
    if only_white(text, _encode_lines([one for _, one in read])):
        return [_NOTHING] * len(lines)
    every = [
        None if one is None else _decode_fields(line)
        for line, one in zip(lines, usual, strict=True)
    ]
    if same_value(text, _encode_lines([each for each in every if each is not None])):
        return every
    return [
        each if each is not None and same_value(line, _encode(each)) else None
        for line, each in zip(lines, every, strict=True)
    ]


def _read(offset: int, size: int, line: bytes, one: _Line, fields: dict[str, Raw]) -> Record | None:
    """Return the record of a line, or None if `read_line` must read the line.

    `fields` is empty if the line has only the fields of its type."""
    if not fields:
        if record := one.record(offset, size, ""):
            return record
        fields = _decode_fields(line)
    known, more = _KNOWN[type(one)], ""
    for key, raw in fields.items():
        if key not in known:
            if key[:1] == "$" or key in _FIRST:
                return None
            more += f",{quote(key)}:{str(raw, 'utf-8')}"
        elif key in _IDS and type(getattr(one, key)) is str:
            more += f',"{key}":{str(raw, "utf-8")}'
    return one.record(offset, size, more) or _read_columns(offset, size, one, more)


def _read_columns(offset: int, size: int, one: _Line, more: str) -> Record | None:
    """Return the record of a line with string ids or without a name, or None if `read_line` must read the line."""
    columns = one.columns()
    if columns is None or (columns.name is UNSET and type(columns.named_by) is not str):
        return None
    attributes = None if isinstance(one, _End) else _attributes(one)
    return _record(
        Record,
        (
            offset, size, columns.kind, "", None, None,
            None if columns.name is UNSET else columns.name, columns.category,
            _number(columns.id), _number(columns.parent), columns.start, columns.end, _with(attributes, more),
            None, None,
        ),
    )  # fmt: skip


def _with(attributes: str | None, more: str) -> str | None:
    """Return the attributes with the members `more` added. Each member in `more` follows a comma."""
    if not more:
        return attributes
    return f"{attributes[:-1]}{more}}}" if attributes else f"{{{more[1:]}}}"


def _number(id_: int | str | UnsetType | None) -> int | None:
    if type(id_) is str:
        return _recall_number(id_) or _numbers.keep(id_, number_of(id_))
    return None if id_ is UNSET else cast(int | None, id_)


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > DEPTH_MAX


_numbers: Memo[str, int] = Memo(4096, 256)
_recall_number = _numbers.get

_memo: Memo[str, str] = Memo(4096, 256)  # about 4 MiB at most
_recall = _memo.get


def _attributes(line: _Begin | _Event | _Annotation) -> str | None:
    description, data = line.description, line.data
    described = None if description is UNSET else _recall(description) or _remember(description)
    if data is UNSET:
        return described
    text = str(data, "utf-8")
    return f'{described[:-1]},"data":{text}}}' if described else f'{{"data":{text}}}'


def _remember(description: str) -> str:
    return _memo.keep(description, f'{{"description":{quote(description)}}}')
