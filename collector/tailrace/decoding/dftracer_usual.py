"""The usual records of DFTracer, many at a time: what `dftracer_line` says, only quicker.

Usual is a complete event as the tracer writes it: no field that is not its own, no white space, no
backslash, nothing nested in its arguments, `hhash` the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from tailrace.decoding.dftracer_run import Run
from tailrace.decoding.json_line import DEPTH_MAX
from tailrace.model.record import Kind, Record

SPAN = Kind.SPAN
INT64_MAX = 2**63 - 1

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)
_Int = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]


class _Line(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    cat: str
    pid: _Int
    tid: _Int
    ph: _Int | str
    id: _Int | UnsetType = UNSET
    type: _Int | UnsetType = UNSET
    ts: _Int | UnsetType = UNSET
    dur: _Int | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_encode_lines = msgspec.json.Encoder().encode_lines
_HOST = re.compile(r'\{"hhash":(?:"([^"]*)"|([0-9]{1,18}))[,}]')


def read_usual(
    offset: int,
    data: bytes,
    names: dict[str, str],
    run: Run,
    records: list[Record],
    other: Callable[[int, bytes], None],
) -> bool:
    """Whether these are whole records from `offset` on of which each is as it should be; if so, what
    they say is in `records`. `other` reads those that are no events, or none that are usual."""
    lines = data.split(b"\n")
    lines.pop()
    usual = _decode(data, lines)
    if usual is None:
        return False
    head, host = "\0", ""
    ids: list[int] = []
    for line, one in zip(lines, usual, strict=True):
        size = len(line) + 1
        name, category, pid, tid, ph, number, type_, start, duration, args = astuple(one)
        attributes = None
        if (
            (ph == 1 or ph == "X")  # noqa: PLR1714 - twice as fast
            and category != "dftracer"
            and number is not UNSET
            and start is not UNSET
            and duration is not UNSET
            and 0 <= duration <= INT64_MAX - start
        ):
            about = f'{{"id":{number}' if type_ is UNSET else f'{{"id":{number},"type":{type_}'
            if args is UNSET:
                attributes = about + "}"
            else:
                text = str(args, "utf-8")
                if not text.startswith(head):
                    head, host = _host(text, names)
                attributes = _attributes(about, text, host, names)
        if attributes is None:
            run.ids.add(ids)
            ids.clear()
            other(offset, line + b"\n")
            head = "\0"
        else:
            ids.append(number)
            records.append(
                _record(
                    Record,
                    (
                        offset, size, SPAN, f"{pid}/{tid}", None, None, name, category, None,
                        None, start, start + duration, attributes, None, None,
                    ),
                )
            )  # fmt: skip
        offset += size
    run.ids.add(ids)
    return True


def _decode(data: bytes, lines: list[bytes]) -> list[_Line] | None:
    """The lines, if nothing in them could be read in another way.

    msgspec takes the last of repeated keys and passes over white space. But it never writes more
    than it read, so if it writes as much again, it dropped nothing. What it does not look at is
    inside of `args`: nesting, and whether bytes are UTF-8; a hash must stand where it is looked for.
    """
    try:
        if not data.isascii():
            data.decode()
        usual = _decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    objects = len(usual) + data.count(b'"args":{')
    if (
        len(usual) != len(lines)
        or b"\\" in data
        or data.count(b"{") != objects
        or data.count(b"[") >= DEPTH_MAX
        or data.count(b'"fhash"') != data.count(b'"fhash":')
        or data.count(b'"hhash"') != data.count(b'"args":{"hhash":')
        or len(_encode_lines(usual)) != len(data)
    ):
        return None
    return usual


def _host(args: str, names: dict[str, str]) -> tuple[str, str | None]:
    """What these args begin with, and the member that it adds; None if the name is not known."""
    found = _HOST.match(args)
    if not found:
        return "\0", ""
    known = names.get(f"HH:{found[1] if found[2] is None else found[2]}")
    return found[0], f',"hostname":{known}' if known else None


def _attributes(about: str, args: str, host: str | None, names: dict[str, str]) -> str | None:
    """None if that is for another to say."""
    if host is None or args[0] != "{":
        return None
    at = args.rfind('"fhash":')
    if at < 0:
        return f'{about}{host},"args":{args}}}'
    if args[at + 8] != '"':
        return None
    key = "FH:" + args[at + 9 : args.index('"', at + 9)]
    known = names.get(key)
    if known:
        return f'{about},"fname":{known}{host},"args":{args}}}'
    return f'{about}{host},"$late":{{"fname":"{key}"}},"args":{args}}}'
