"""Read the most frequent lines of JETS in bulk. The results are the same as those of `line.read_line`.

These lines have the type record, record_end, event or annotation. The fastest ones have integer ids below 2^63 and only
fields of the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, reduce
from json.encoder import encode_basestring as quote
from operator import or_
from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct
from msgspec.structs import astuple, fields

from tailrace.decoding.formats.jets.line import number_of
from tailrace.decoding.json_object import integral
from tailrace.decoding.lines import WHITE, split_lines
from tailrace.decoding.memo import Memo
from tailrace.decoding.struct_lines import StructLines, fields_but, keys_of, members, rewritten
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
    kind, clk = (INSTANT, line.clk) if type(line) is _Event else (ANNOTATION, None)
    return _record(
        Record,
        (
            offset, size, kind, "", None, None, None if name is UNSET else name, None, None,
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
    record_id: _Id | str
    data: Raw
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET

    record = _inside


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


_decode_text = msgspec.json.Decoder(str).decode

_Line = _Begin | _End | _Event | _Annotation
_NUMBERS: dict[str, Callable[[Raw], object]] = {
    "clk": _clk, "id": _id, "record_id": _id, "parent_id": _parent,
}  # fmt: skip


def _spelled(plain: type[_Line]) -> type[Struct]:
    """Return a struct for the lines of `plain` whose numbers and ids are JSON texts, because numbers may have fractions
    or exponents."""
    about = fields(plain)
    numbers = [(i, _NUMBERS[field.name]) for i, field in enumerate(about) if field.name in _NUMBERS]

    def record(self: Struct, offset: int, size: int, more: str) -> Record | None:
        values = list(astuple(self))
        try:
            for i, read in numbers:
                values[i] = UNSET if values[i] is UNSET else read(values[i])
        except ValueError:  # A number is not valid.
            return None
        return plain(*values).record(offset, size, more)

    types = [Raw | UnsetType if field.name in _NUMBERS else field.type for field in about]
    return defstruct(
        f"_Spelled{plain.__name__}",
        [
            (field.name, type_) if field.required else (field.name, type_, UNSET)
            for field, type_ in zip(about, types, strict=True)
        ],
        tag_field="type",
        tag=plain.__struct_config__.tag,
        namespace={"record": record},
        gc=False,
    )


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
