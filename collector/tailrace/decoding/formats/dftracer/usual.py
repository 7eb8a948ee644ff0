"""Read the usual records of DFTracer, many at a time: the same result as `line`, only faster.

A record is usual if it is a complete event or a counter with only the tracer's own fields, without a backslash, and
without objects in its arguments if these have hashes. White space may stand wherever JSON allows it, blank lines before
a record, commas around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from tailrace.decoding.formats.dftracer.names import HashNames, joined
from tailrace.decoding.formats.dftracer.processes import Processes
from tailrace.decoding.formats.dftracer.run import TracedRun
from tailrace.decoding.json_object import DEPTH_MAX
from tailrace.decoding.lines import WHITE, only_white, split_lines
from tailrace.model.record import Kind, Record

SPAN, COUNTER = Kind.SPAN, Kind.COUNTER
INT64_MAX = 2**63 - 1

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)
_Int = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]


class _UsualLine(Struct, forbid_unknown_fields=True, gc=False):
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


class _Hashes(Struct, gc=False):
    """The hashes among the arguments."""

    fhash: str | _Int | UnsetType = UNSET
    hhash: str | _Int | UnsetType = UNSET


_decode_hashes = msgspec.json.Decoder(_Hashes).decode
_decode_lines = msgspec.json.Decoder(_UsualLine).decode_lines
_encode_lines = msgspec.json.Encoder().encode_lines
_COUNT = re.compile(rb'"dft_cnt"\s*:')
_SEPARATORS = WHITE + b","


def read_usual(
    offset: int,
    data: bytes,
    names: HashNames,
    processes: Processes,
    records: list[Record],
    other: Callable[[int, bytes], None],
) -> bool:
    """Read whole lines from `offset` on into `records`; return False, with nothing read, if `_decode` refuses.

    Pass the lines that are no events, or unusual ones, to `other`."""
    found = _find(data)
    if found is None:
        return False
    lines, sizes, usual = found
    begin = offset
    texts = _Texts(names)
    run, own, host = _own(processes)
    ids: list[int] = []
    shows = False  # only releases that count events by ids have a number as `ph`
    for line, one, size in zip(lines, usual, sizes, strict=True):
        name, category, pid, tid, ph, number, type_, start, duration, raw = astuple(one)
        kind, stop, attributes, aggregate = COUNTER, None, None, False
        if (
            (ph == 1 or ph == "X")  # noqa: PLR1714 - twice as fast
            and category != "dftracer"
            and number is not UNSET
            and start is not UNSET
            and duration is not UNSET
            and duration >= 0
            and (stop := start + duration) <= INT64_MAX
        ):
            kind = SPAN
            about = f'"id":{number}' if type_ is UNSET else f'"id":{number},"type":{type_}'
            attributes = texts.attributes(about, raw)
        elif (
            (ph == 2 or ph == 3 or ph == "C")  # noqa: PLR1714
            and number is UNSET
            and duration is UNSET
            and start is not UNSET
            and (counts := _counts_calls(line)) is not None
        ):
            aggregate = ph == 3 or counts
            about = "" if type_ is UNSET else f'"type":{type_}'
            if aggregate:
                about += ',"aggregate":true' if about else '"aggregate":true'
            attributes = texts.attributes(about, raw)
        if attributes is None or pid != own or texts.host not in ("", host):
            run.came(ids, counts=shows)
            ids.clear()
            other(offset, data[offset - begin : offset - begin + size])
            texts, (run, own, host) = _Texts(names), _own(processes)
            shows = False
        else:
            if kind is SPAN:
                ids.append(number)
                shows = shows or ph == 1
            elif aggregate:
                run.came(ids, counts=shows)
                ids.clear()
                run.ids.doubt()
            records.append(
                _record(
                    Record,
                    (
                        offset, size, kind, f"{pid}/{tid}", None, None, name, category, None,
                        None, start, stop, attributes, None, None,
                    ),
                )
            )  # fmt: skip
        offset += size
    run.came(ids, counts=shows)
    return True


def _find(data: bytes) -> tuple[list[bytes], list[int], list[_UsualLine]] | None:
    """Return the lines without what stands around their records, the lines' sizes, and their fields."""
    lines = data.split(b"\n")
    lines.pop()
    usual = _decode(data, lines)
    if usual is not None:
        return lines, [len(line) + 1 for line in lines], usual
    whole = split_lines(data)
    bare = [line.strip(_SEPARATORS) for line in whole]
    if bare == lines or (usual := _decode(b"\n".join(bare) + b"\n", bare)) is None:
        return None
    return bare, list(map(len, whole)), usual


def _decode(data: bytes, lines: list[bytes]) -> list[_UsualLine] | None:
    """Return the lines, or None if any of them could also be read in another way.

    msgspec takes the last of repeated keys and passes over white space. But it never writes more
    than it read, so if the bytes that it does not write again are as many as the white space, it dropped nothing else. It
    does not look inside `args`, so nesting and UTF-8 are checked here. To msgspec a newline is white space: only one between braces is
    sure to stand between two records, and not inside of one.
    """
    try:
        if not data.isascii():
            data.decode()
        usual = _decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    opened = data.count(b"{") + (data.count(b"[") if b"[" in data else 0)
    if (
        len(usual) != len(lines)
        or data.count(b"}\n{") != len(lines) - 1
        or not (data.startswith(b"{") and data.endswith(b"}\n"))
        or b"\\" in data
        or not only_white(data, _encode_lines(usual))
        or (opened - len(lines) >= DEPTH_MAX and any(map(_may_be_deep, lines)))
    ):
        return None
    return usual


def _own(processes: Processes) -> tuple[TracedRun, int | None, str]:
    """Return the run, the PID and the host whose records may be read here: no PID before the run's clock is known, nor
    once gaps are reported, since an event may heal one."""
    process = processes.current
    plain = process.pid and process.run.clocked and not process.run.claims
    return process.run, int(process.pid) if plain else None, process.host


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > DEPTH_MAX


def _counts_calls(line: bytes) -> bool | None:
    """Return whether a counter counts calls; None if the key `dft_cnt` may stand outside the args."""
    if b'"dft_cnt"' not in line:
        return False
    sure = line.count(b'"dft_cnt"') == 1 and _COUNT.search(line) and line.count(b"{") == 2
    return True if sure else None


class _Texts:
    """The attributes of records with usual args. While the names do not change, it remembers the names behind hashes."""

    __slots__ = ("_members", "_names", "host")

    def __init__(self, names: HashNames) -> None:
        self._names = names
        self._members: dict[tuple[object, object], str] = {}
        self.host = ""
        """The hash of the host that the last record states, "" if it states none."""

    def attributes(self, about: str, raw: Raw | UnsetType) -> str | None:
        """Return the attributes of a record that says `about` and has these args.

        Return None if `line` must read them: a hash stands elsewhere or twice."""
        self.host = ""
        if raw is UNSET:
            return f"{{{about}}}" if about else None
        args = str(raw, "utf-8")
        hashes = args.count('hash"')
        members = ""
        if hashes:
            try:
                found = _decode_hashes(raw)
            except msgspec.ValidationError:
                return None
            file, host = found.fhash, found.hhash
            if (file is not UNSET) + (host is not UNSET) != hashes:
                return None
            self.host = "" if host is UNSET else str(host)
            members = self._members.get((file, host)) or self._members_of(file, host)
        elif args[0] != "{":
            return None
        if about:
            return f'{{{about}{members},"args":{args}}}'
        return f'{{{members[1:]},"args":{args}}}' if members else f'{{"args":{args}}}'

    def _members_of(self, file: object, host: object) -> str:
        """Return the names of the file and the host, or the keys of the unknown ones, each after a comma."""
        hashes = (("fname", "FH", file), ("hostname", "HH", host))
        wanted = {member: f"{kind}:{hash_}" for member, kind, hash_ in hashes if hash_ is not UNSET}
        members = self._members[file, host] = joined(self._names.resolve(wanted))
        return members
