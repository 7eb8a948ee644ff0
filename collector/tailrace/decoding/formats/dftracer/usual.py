"""Read the usual records of DFTracer, many at a time: the same result as `line`, only faster.

A record is usual if it is a complete event or a counter whose fields each come once, in any order and any legal spelling,
and whose arguments have hashes at most once. Fields that the tracer does not have may be there. White space may stand
wherever JSON allows it, blank lines before a record, commas around it.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring as quote
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from tailrace.decoding.formats.dftracer.names import HashNames, joined
from tailrace.decoding.formats.dftracer.processes import Processes
from tailrace.decoding.formats.dftracer.record import OURS, about_session
from tailrace.decoding.formats.dftracer.run import TracedRun
from tailrace.decoding.json_object import DEPTH_MAX
from tailrace.decoding.lines import WHITE, only_white, same_value, split_lines
from tailrace.model.record import Kind, Record, SessionFacts

SPAN, COUNTER = Kind.SPAN, Kind.COUNTER
INT64_MAX = 2**63 - 1

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)
_found = cast(Callable[["type[_Found]", tuple[object, ...]], "_Found"], tuple.__new__)
_Int = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]

_Digits = Annotated[str, Meta(pattern=r"^(?:0|-?[1-9][0-9]{0,17})\Z")]


class _UsualLine(Struct, gc=False):
    name: str
    cat: str
    pid: _Int | _Digits
    tid: _Int | _Digits
    ph: _Int | str
    id: _Int | _Digits | UnsetType = UNSET
    type: _Int | UnsetType = UNSET
    ts: _Int | _Digits | UnsetType = UNSET
    dur: _Int | _Digits | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


class _Hashes(Struct, gc=False):
    """The hashes among the arguments, and the number of calls that an aggregate stands for."""

    fhash: str | _Int | UnsetType = UNSET
    hhash: str | _Int | UnsetType = UNSET
    dft_cnt: Raw | UnsetType = UNSET


class _ClearNames(Struct, gc=False):
    """The names of file and host among the arguments, as releases before 1.0 write them."""

    fname: Raw | UnsetType = UNSET
    hostname: Raw | UnsetType = UNSET


class _Found(NamedTuple):
    """A line with the white space around its record, the record, and its fields if it is usual.

    `more` are the fields that the tracer does not have, as members of the attributes."""

    whole: bytes
    record: bytes
    line: _UsualLine | None
    more: str = ""


_decode_hashes = msgspec.json.Decoder(_Hashes).decode
_decode_told = msgspec.json.Decoder(_ClearNames).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_line = msgspec.json.Decoder(_UsualLine).decode
_decode_lines = msgspec.json.Decoder(_UsualLine).decode_lines
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_KNOWN = frozenset(_UsualLine.__struct_fields__)
_SEPARATORS = WHITE + b","


def read_usual(
    offset: int,
    data: bytes,
    names: HashNames,
    processes: Processes,
    records: list[Record],
    other: Callable[[int, bytes], bool],
    waits: bool,
) -> None:
    """Read whole lines from `offset` on into `records`. Pass the lines that are no events, or unusual ones, to `other`,
    which returns whether a record waits for further lines, and those that follow while one `waits`."""
    reading = _UsualReading(names, processes, records)
    for whole, line, one, more in _find(data):
        size = len(whole)
        if waits or one is None or not reading.takes(offset, size, line, one, more):
            reading.stop()
            waits = other(offset, whole)
            reading = _UsualReading(names, processes, records)
        offset += size
    reading.stop()


class _UsualReading:
    """Usual lines, one behind the other."""

    __slots__ = ("_host", "_ids", "_own", "_processes", "_records", "_run", "_shows", "_texts")

    def __init__(self, names: HashNames, processes: Processes, records: list[Record]) -> None:
        self._processes, self._records = processes, records
        self._texts = _Texts(names)
        self._run, self._own, self._host = _own(processes)
        self._ids: list[int] = []
        self._shows = False
        """Whether a record has a number as `ph`, as only releases that count events by ids write it."""

    def takes(self, offset: int, size: int, text: bytes, line: _UsualLine, more: str) -> bool:
        """Add the record of a line; return False if it is unusual."""
        name, category, pid, tid, ph, number, type_, start, duration, raw = astuple(line)
        kind, stop, aggregate = SPAN, None, False
        told = ""
        quoted = str in (type(pid), type(tid), type(number), type(start), type(duration))
        if quoted:
            told = _told(raw) if type(pid) is str else ""
            pid, tid, start, duration = map(_number, (pid, tid, start, duration))
        if (
            (ph == 1 or ph == "X")  # noqa: PLR1714 - twice as fast
            and category != "dftracer"
            and number is not UNSET
            and start is not UNSET
            and duration is not UNSET
            and duration >= 0
            and (stop := start + duration) <= INT64_MAX
        ):
            if type(number) is str and b"\\u00" in text:
                return False  # the attribute keeps the spelling
            shown = f'"{number}"' if type(number) is str else number
            about = f'"id":{shown}' if type_ is UNSET else f'"id":{shown},"type":{type_}'
            about += told
        elif (
            (ph == 2 or ph == 3 or ph == "C")  # noqa: PLR1714
            and number is UNSET
            and duration is UNSET
            and start is not UNSET
            and (counts := _counts_calls(text, raw)) is not None
        ):
            kind, aggregate = COUNTER, ph == 3 or counts
            about = "" if type_ is UNSET else f'"type":{type_}'
            if aggregate:
                about += ',"aggregate":true' if about else '"aggregate":true'
        else:
            return False
        texts = self._texts
        attributes = texts.attributes(about, raw, more)
        if (
            attributes is None
            or (told and texts.hashed)
            or (
                (pid != self._own or texts.host not in ("", self._host))
                and not self._turns(offset, pid, texts.host)
            )
        ):
            return False
        if kind is SPAN:
            self._shows = self._shows or ph == 1
        if aggregate or type(number) is str:
            self.stop()
            self._run.ids.doubt()
        elif kind is SPAN:
            self._ids.append(number)
        self._records.append(
            _record(
                Record,
                (
                    offset, size, kind, f"{pid}/{tid}", None, None, name, category, None,
                    None, start, stop, attributes, "backslash" if b"\\" in text else None, None,
                ),
            )
        )  # fmt: skip
        return True

    def stop(self) -> None:
        """Let the run know what has come."""
        self._run.came(self._ids, counts=self._shows)
        self._ids, self._shows = [], False

    def _turns(self, offset: int, pid: int, host: str) -> bool:
        """Turn to the process of a record; return whether its records may be read here."""
        self.stop()
        if self._processes.turn(str(pid), host):
            self._records.append(turned(offset, self._processes))
        self._run, self._own, self._host = _own(self._processes)
        return pid == self._own and host in ("", self._host)


def turned(offset: int, processes: Processes) -> Record:
    """Return the statement that what follows is of the current process."""
    return about_session(offset, 0, "process", SessionFacts(process=processes.number))


def _find(data: bytes) -> list[_Found]:
    """Return the lines: all at once if they are of the tracer's own fields, else one by one."""
    lines = data.split(b"\n")
    lines.pop()
    usual = _decode(data, lines)
    if usual is not None:
        return [
            _found(_Found, (line + b"\n", line, one, ""))
            for line, one in zip(lines, usual, strict=True)
        ]
    whole = split_lines(data)
    bare = [line.strip(_SEPARATORS) for line in whole]
    if bare != lines and (usual := _decode(b"\n".join(bare) + b"\n", bare)) is not None:
        return [_found(_Found, (*each, "")) for each in zip(whole, bare, usual, strict=True)]
    return list(map(_find_one, whole, bare))


def _decode(data: bytes, lines: list[bytes]) -> list[_UsualLine] | None:
    """Return the lines, or None if any of them could also be read in another way, or has fields of its own.

    msgspec takes the last of repeated keys, passes over white space, reads any spelling of a string, and skips fields that
    the struct lacks. But it never writes more than it read, so if the bytes that it does not write again are as many as the
    white space, it dropped nothing else. It does not look inside `args`, so nesting and UTF-8 are checked here. To msgspec a
    newline is white space: only one between braces is sure to stand between two records, and not inside of one.
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
        or not same_value(data, _encode_lines(usual))
        or (opened - len(lines) >= DEPTH_MAX and any(map(_may_be_deep, lines)))
    ):
        return None
    return usual


def _find_one(whole: bytes, record: bytes) -> _Found:
    """Return one line, with the fields that the tracer does not have."""
    unusual = _Found(whole, record, None)
    try:
        if not record.isascii():
            record.decode()
        line = _decode_line(record)
        if _may_be_deep(record):
            return unusual
        again = _encode(line)
        if only_white(record, again):
            return _Found(whole, record, line)
        more = ""
        for key, raw in _decode_fields(record).items():
            if key not in _KNOWN:
                if key in OURS or key[:1] == "$":
                    return unusual
                more += f",{quote(key)}:{str(raw, 'utf-8')}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return unusual
    same = same_value(record, again + more.encode())
    return _Found(whole, record, line, more) if same else unusual


def _own(processes: Processes) -> tuple[TracedRun, int | None, str]:
    """Return the run, the PID and the host whose records may be read here: no PID before the run's clock is known, nor
    once gaps are reported, since an event may heal one."""
    process = processes.current
    plain = process.pid and process.run.usual
    return process.run, int(process.pid) if plain else None, process.host


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > DEPTH_MAX


def _number(value: int | str | UnsetType) -> int | UnsetType:
    return int(value) if type(value) is str else cast("int | UnsetType", value)


def _told(raw: Raw | UnsetType) -> str:
    """Return members for the names of file and host among the arguments, each behind a comma."""
    try:
        told = _ClearNames() if raw is UNSET else _decode_told(raw)
    except msgspec.ValidationError:
        return ""
    texts = {key: getattr(told, key) for key in _ClearNames.__struct_fields__}
    return "".join(
        f',"{key}":{quote(_decode_text(text))}'
        for key, text in texts.items()
        if text is not UNSET and bytes(text).startswith(b'"')
    )


def _counts_calls(line: bytes, raw: Raw | UnsetType) -> bool | None:
    """Return whether a counter counts calls; None if `line` must read it."""
    if raw is UNSET or not (b'"dft_cnt"' in line or b"\\u" in line):
        return False
    try:
        return _decode_hashes(raw).dft_cnt is not UNSET
    except msgspec.ValidationError:
        return None


class _Texts:
    """The attributes of records with usual args. While the names do not change, it remembers the names behind hashes."""

    __slots__ = ("_members", "_names", "hashed", "host")

    def __init__(self, names: HashNames) -> None:
        self._names = names
        self._members: dict[tuple[object, object], str] = {}
        self.hashed = False
        """Whether the last record has a hash among its arguments."""
        self.host = ""
        """The hash of the host that the last record states, "" if it states none."""

    def attributes(self, about: str, raw: Raw | UnsetType, more: str) -> str | None:
        """Return the attributes of a record that says `about` and has these args and the members `more`.

        Return None if `line` must read them: a hash stands elsewhere or twice."""
        self.host, self.hashed = "", False
        if raw is UNSET:
            return f"{{{about}{more}}}" if about else f"{{{more[1:]}}}" if more else None
        args = str(raw, "utf-8")
        hashes = args.count('hash"')
        members = ""
        if hashes or "\\u" in args:
            try:
                found = _decode_hashes(raw)
            except msgspec.ValidationError:
                return None
            file, host = found.fhash, found.hhash
            if (file is not UNSET) + (host is not UNSET) != hashes:
                return None
            self.host = "" if host is UNSET else str(host)
            self.hashed = hashes > 0
            if hashes:
                members = self._members.get((file, host)) or self._members_of(file, host)
        elif args[0] != "{":
            return None
        members += more
        if about:
            return f'{{{about}{members},"args":{args}}}'
        return f'{{{members[1:]},"args":{args}}}' if members else f'{{"args":{args}}}'

    def _members_of(self, file: object, host: object) -> str:
        """Return the names of the file and the host, or the keys of the unknown ones, each after a comma."""
        hashes = (("fname", "FH", file), ("hostname", "HH", host))
        wanted = {member: f"{kind}:{hash_}" for member, kind, hash_ in hashes if hash_ is not UNSET}
        members = self._members[file, host] = joined(self._names.resolve(wanted))
        return members
