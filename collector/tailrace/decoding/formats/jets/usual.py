"""Read the usual lines of JETS, many at a time: the same result as `line.read_line`, only faster.

A line is usual if it is a record, record_end, event or annotation of dialect B or C with integer ids
below 2^63 and only fields that the specification names.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring as quote
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tailrace.decoding.json_object import DEPTH_MAX
from tailrace.decoding.memo import Memo
from tailrace.model.record import Kind, Record

BEGIN, END, INSTANT, ANNOTATION = Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.ANNOTATION

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)

_Clk = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Begin(Struct, tag_field="type", tag="record", forbid_unknown_fields=True, gc=False):
    clk: _Clk
    name: str
    record_type: str
    id: _Id
    parent_id: _Id | UnsetType | None = UNSET
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int) -> Record:
        parent = None if self.parent_id is UNSET else self.parent_id
        return _record(
            Record,
            (
                offset, size, BEGIN, "", None, None, self.name, self.record_type, self.id,
                parent, self.clk, None, _attributes(self), None, None,
            ),
        )  # fmt: skip


class _End(Struct, tag_field="type", tag="record_end", forbid_unknown_fields=True, gc=False):
    clk: _Clk
    record_id: _Id

    def record(self, offset: int, size: int) -> Record:
        return _record(
            Record,
            (
                offset, size, END, "", None, None, None, None, self.record_id, None, None,
                self.clk, None, None, None,
            ),
        )  # fmt: skip


class _Event(Struct, tag_field="type", tag="event", forbid_unknown_fields=True, gc=False):
    clk: _Clk
    name: str
    record_id: _Id
    description: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def record(self, offset: int, size: int) -> Record:
        return _record(
            Record,
            (
                offset, size, INSTANT, "", None, None, self.name, None, None, self.record_id,
                self.clk, None, _attributes(self), None, None,
            ),
        )  # fmt: skip


class _Annotation(Struct, tag_field="type", tag="annotation", forbid_unknown_fields=True, gc=False):
    name: str
    record_id: _Id
    data: Raw
    description: str | UnsetType = UNSET

    def record(self, offset: int, size: int) -> Record:
        return _record(
            Record,
            (
                offset, size, ANNOTATION, "", None, None, self.name, None, None, self.record_id,
                None, None, _attributes(self), None, None,
            ),
        )  # fmt: skip


_decode = msgspec.json.Decoder(_Begin | _End | _Event | _Annotation).decode
_encode_lines = msgspec.json.Encoder().encode_lines


def read_usual(offset: int, data: bytes) -> list[Record] | None:
    """Read whole lines from `offset` on; return None if `read_line` might read any of them differently.

    msgspec takes the last of repeated keys, passes over white space, reads any spelling of a
    string, and checks Raw values only for being JSON. But it never writes more than it read. So the size
    of what it writes for the lines shows how much it dropped of them all, whatever the order of keys:
    that must be spaces and carriage returns. Bytes that are not UTF-8 and too deep nesting, which msgspec
    does not notice in a Raw value, are checked here.
    """
    lines = data.split(b"\n")
    lines.pop()
    try:
        if not data.isascii():
            data.decode()
        usual = list(map(_decode, lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    again = _encode_lines(usual)
    dropped = len(data) - len(again)
    if dropped and dropped != data.count(b" ") - again.count(b" ") + data.count(b"\r"):
        return None
    longest = max(map(len, lines))
    if longest > 2 * DEPTH_MAX and any(map(_may_be_deep, lines)):
        return None
    records: list[Record] = []
    for line, one in zip(lines, usual, strict=True):
        size = len(line) + 1
        records.append(one.record(offset, size))
        offset += size
    return records


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > DEPTH_MAX


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
