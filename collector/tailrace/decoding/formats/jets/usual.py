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
from typing import Annotated, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tailrace.decoding.formats.jets.line import number_of
from tailrace.decoding.json_object import any_deep, integral, members
from tailrace.decoding.lines import WHITE, same_value, split_lines
from tailrace.decoding.memo import Memo
from tailrace.model.record import Kind, Record, as_int64

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

    def record(self, offset: int, size: int, more: str, *, texts: bool = False) -> Record | None:
        id_: int | str | None = self.id
        name: str | UnsetType | None = self.name
        parent = None if self.parent_id is UNSET else self.parent_id
        if type(id_) is str or type(parent) is str or name is UNSET:
            if not texts or (name is UNSET and type(id_) is not str):
                return None
            id_, parent, name = _number(id_), _number(parent), None if name is UNSET else name
        return _record(
            Record,
            (
                offset, size, BEGIN, "", None, None, name, self.record_type, id_, parent,
                self.clk, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


class _End(Struct, tag_field="type", tag="record_end", gc=False):
    clk: _Clk
    record_id: _Id | str | UnsetType = UNSET
    id: _Id | str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str, *, texts: bool = False) -> Record | None:
        ended: int | str | UnsetType | None
        ended = self.id if self.record_id is UNSET else self.record_id
        if type(self.record_id) is not int or self.id is not UNSET:
            if not texts or (self.record_id is UNSET) == (self.id is UNSET):
                return None
            ended = _number(ended)
        return _record(
            Record,
            (
                offset, size, END, "", None, None, None, None, ended, None, None,
                self.clk, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


class _Event(Struct, tag_field="type", tag="event", gc=False):
    clk: _Clk
    record_id: _Id | str
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str, *, texts: bool = False) -> Record | None:
        id_: int | str | None = self.record_id
        name: str | UnsetType | None = self.name
        if type(id_) is str or name is UNSET:
            if not texts or type(id_) is not str:
                return None
            id_, name = _number(id_), None if name is UNSET else name
        return _record(
            Record,
            (
                offset, size, INSTANT, "", None, None, name, None, None, id_,
                self.clk, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


class _Annotation(Struct, tag_field="type", tag="annotation", gc=False):
    record_id: _Id | str
    data: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET

    def record(self, offset: int, size: int, more: str, *, texts: bool = False) -> Record | None:
        id_: int | str | None = self.record_id
        name: str | UnsetType | None = self.name
        if type(id_) is str or name is UNSET:
            if not texts or type(id_) is not str:
                return None
            id_, name = _number(id_), None if name is UNSET else name
        return _record(
            Record,
            (
                offset, size, ANNOTATION, "", None, None, name, None, None, id_,
                None, None, _with(_attributes(self), more), None, None,
            ),
        )  # fmt: skip


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
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def usual(self) -> _End:
        record_id, id_ = (UNSET if raw is UNSET else _id(raw) for raw in (self.record_id, self.id))
        return _End(_clk(self.clk), record_id, id_, self.description, self.data)


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
    """Return the integer value of a JSON number. Raise ValueError if the text is not an integer."""
    number = int(text) if text.lstrip("-").isdecimal() else integral(text)
    if number is None:
        raise ValueError(text)
    return number


_NEGATIVE_ZERO = re.compile(rb"[:\s]-0\s*[,}]")
_decode_text = msgspec.json.Decoder(str).decode

_Line = _Begin | _End | _Event | _Annotation
_Spelled = _SpelledBegin | _SpelledEnd | _SpelledEvent | _SpelledAnnotation
"""The types of usual lines, with numbers and ids as JSON texts. The numbers may have fractions or exponents."""
_KNOWN = {one: frozenset(one.__struct_fields__) | {"type"} for one in get_args(_Line)}
_IDS = frozenset({"id", "record_id", "parent_id"})
_Decoded = tuple[Sequence[_Line | None], Sequence[_Line | _Spelled | None]]
"""Two sequences with an item for each line: the lines with numbers as integers, and the lines in their original
spelling. The item of an unusual line is None."""

_NOTHING: dict[str, Raw] = {}

_decode = msgspec.json.Decoder(_Line).decode
_decode_spelled = msgspec.json.Decoder(_Spelled).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode, _encode_lines = msgspec.json.Encoder().encode, msgspec.json.Encoder().encode_lines


def read_usual(offset: int, data: bytes) -> list[Record | bytes]:
    """Read whole lines from `offset` on. Return the record of each usual line, and the bytes of each other line.

    msgspec uses the last of repeated keys, ignores white space, accepts any spelling of a string, skips unknown fields,
    and checks Raw values only for valid JSON. msgspec never writes more bytes than it reads. If the lines that it
    writes back are shorter by exactly the white space and the escapes, msgspec has therefore dropped nothing else.
    msgspec does not check the UTF-8 and the nesting of Raw values, so this function checks both.
    """
    lines = data.split(b"\n")
    lines.pop()
    sizes = [len(line) + 1 for line in lines]
    decoded = _decode_all(data, lines)
    if decoded is None:
        whole = split_lines(data)
        lines, sizes = [line.strip(WHITE) for line in whole], list(map(len, whole))
        decoded = _decode_all(data, lines) or _decode_each(lines)
    usual, written = decoded
    further = _further(lines, usual, written)
    found: list[Record | bytes] = []
    begin = offset
    for line, one, size, more in zip(lines, usual, sizes, further, strict=True):
        record = None if one is None or more is None else _read(offset, size, line, one, more)
        found.append(record or data[offset - begin : offset - begin + size])
        offset += size
    return found


def _decode_all(data: bytes, lines: list[bytes]) -> _Decoded | None:
    """Return the decoded lines, or None if any of them is unusual. `data` has the same lines. White space around a line
    in `data` may be missing in `lines`.
    """
    try:
        if not data.isascii():
            data.decode()
        # msgspec writes a negative zero without its sign. If there is one, read the numbers as texts.
        if not (b"-0" in data and _NEGATIVE_ZERO.search(data)):
            with suppress(msgspec.ValidationError):
                usual = list(map(_decode, lines))
                return None if any_deep(lines) else (usual, usual)
        written = list(map(_decode_spelled, lines))
        usual = [one.usual() for one in written]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if any_deep(lines) else (usual, written)


def _decode_each(lines: list[bytes]) -> _Decoded:
    """Decode the lines one by one. The result has None for an unusual line."""
    decoded = [_decode_all(line, [line]) or ([None], [None]) for line in lines]
    return [one for (one,), _ in decoded], [one for _, (one,) in decoded]


def _further(
    lines: list[bytes], usual: Sequence[_Line | None], written: Sequence[_Line | _Spelled | None]
) -> list[str | None]:
    """Return the fields of each line that the specification does not have for its type, as JSON members, each after a
    comma.

    Return None for an unusual line, such as a line with a repeated field or with a key that begins with "$"."""
    text = b"\n".join(lines) + b"\n"
    read = [one for one in written if one is not None]
    again, all_read = _encode_lines(read), len(read) == len(lines)
    if all_read and same_value(text, again):
        return [""] * len(lines)
    found = members(
        [
            _NOTHING if one is None else _rest(line, one)
            for line, one in zip(lines, usual, strict=True)
        ]
    )
    if all_read and None not in found:
        rest = "".join(cast(list[str], found))
        if same_value(text, again + rest.encode()):
            return found
    return [
        more
        if one and more is not None and same_value(line, _encode(one) + more.encode())
        else None
        for line, one, more in zip(lines, written, found, strict=True)
    ]


def _rest(line: bytes, one: _Line) -> dict[str, Raw]:
    """Return the fields of a line that the specification does not have for its type, as JSON texts by key."""
    known = _KNOWN[type(one)]
    return {key: raw for key, raw in _decode_fields(line).items() if key not in known}


def _read(offset: int, size: int, line: bytes, one: _Line, more: str) -> Record | None:
    """Return the record of a decoded line, or None if `read_line` must read the line. `more` has its further fields as
    JSON members.
    """
    if record := one.record(offset, size, more):
        return record
    known = _KNOWN[type(one)]
    rest = {
        key: raw
        for key, raw in _decode_fields(line).items()
        if key not in known or (key in _IDS and type(getattr(one, key)) is str)
    }
    (with_ids,) = members([rest])
    return None if with_ids is None else one.record(offset, size, with_ids, texts=True)


def _with(attributes: str | None, more: str) -> str | None:
    """Return the JSON attributes with the members `more` added. A comma precedes each member in `more`."""
    if not more:
        return attributes
    return f"{attributes[:-1]}{more}}}" if attributes else f"{{{more[1:]}}}"


def _number(id_: int | str | UnsetType | None) -> int | None:
    if type(id_) is str:
        return _recall_number(id_) or _numbers.keep(id_, number_of(id_))
    return None if id_ is UNSET else cast(int | None, id_)


_numbers: Memo[str, int] = Memo(4096, 256)
_recall_number = _numbers.get

_memo: Memo[str, str] = Memo(4096, 256)  # at most about 4 MiB of memory
_recall = _memo.get


def _attributes(line: _Line) -> str | None:
    description, data = line.description, line.data
    described = None if description is UNSET else _recall(description) or _remember(description)
    if data is UNSET:
        return described
    text = str(data, "utf-8")
    return f'{described[:-1]},"data":{text}}}' if described else f'{{"data":{text}}}'


def _remember(description: str) -> str:
    return _memo.keep(description, f'{{"description":{quote(description)}}}')
