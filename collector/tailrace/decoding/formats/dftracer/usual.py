"""Read the most frequent records of DFTracer in bulk. The results are the same as those of the module `line`.

A record of this kind is a complete event or a counter without repeated fields. Its fields may have any order and any
legal spelling, and may include fields that the tracer does not write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as quote
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from tailrace.decoding.formats.dftracer.elements import split_elements
from tailrace.decoding.formats.dftracer.line import OURS, QUOTED_NUMBER
from tailrace.decoding.formats.dftracer.names import HashNames, joined
from tailrace.decoding.formats.dftracer.processes import Processes
from tailrace.decoding.json_object import integral
from tailrace.decoding.lines import WHITE
from tailrace.decoding.struct_lines import StructLines, rewritten, spelled
from tailrace.model.record import Kind, Record, SessionFacts, session_record

SPAN, COUNTER = Kind.SPAN, Kind.COUNTER
INT64_MAX = 2**63 - 1

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)
_found = cast(Callable[["type[FoundLine]", tuple[object, ...]], "FoundLine"], tuple.__new__)
_Int = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]


class _UsualLine(Struct, gc=False):
    name: str
    pid: _Int
    tid: _Int
    ph: _Int | str
    cat: str | UnsetType = UNSET
    id: _Int | UnsetType = UNSET
    type: _Int | UnsetType = UNSET
    ts: _Int | UnsetType = UNSET
    dur: _Int | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


_SpelledLine = spelled(_UsualLine, {"pid", "tid", "ph", "id", "type", "ts", "dur"})


class _Spelling(NamedTuple):
    """The texts of a line's `id` and `type`, and whether its id and PID are in quotes."""

    id: str
    type: str
    quoted_id: bool
    quoted_pid: bool


class _Hashes(Struct, gc=False):
    """The hashes of file and host in a record's arguments, and the number of calls in an aggregate counter."""

    fhash: Any = UNSET
    hhash: Any = UNSET
    dft_cnt: Raw | UnsetType = UNSET


class _ClearNames(Struct, gc=False):
    """The names of file and host in a record's arguments. Releases before 1.0 write them instead of hashes."""

    fname: Raw | UnsetType = UNSET
    hostname: Raw | UnsetType = UNSET


class FoundLine(NamedTuple):
    """A line, its record, and the record's fields, which are None if the module `line` must read the record."""

    whole: bytes
    record: bytes
    line: _UsualLine | None
    more: str = ""  # Fields that the tracer does not write, as JSON members.
    spelling: _Spelling | None = None  # None if all numbers are integers without quotes.


_decode_hashes = msgspec.json.Decoder(_Hashes).decode
_decode_told = msgspec.json.Decoder(_ClearNames).decode
_decode_text = msgspec.json.Decoder(str).decode
_NOTHING: dict[str, str] = {}
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_SEPARATORS = WHITE + b","
_LINES: StructLines[_UsualLine, Any] = StructLines(_UsualLine, _SpelledLine, OURS)


def read_usual(
    offset: int,
    lines: list[FoundLine],
    names: HashNames,
    processes: Processes,
    records: list[Record],
    other: Callable[[int, bytes], bool],
    waits: bool,
) -> None:
    """Read successive `lines` from `offset` on, and append the records of usual lines to `records`.

    The function `other` reads any other line. It returns True if newlines have split a record whose end is still
    missing. The next line is then passed to `other`, too. `waits` is true if the beginning of a split record precedes
    the first line."""
    reading = _UsualReading(names, processes, records)
    for found in lines:
        whole = found.whole
        size = len(whole)
        if waits or found.line is None or not reading.takes(offset, size, found, found.line):
            reading.stop()
            waits = other(offset, whole)
            reading = _UsualReading(names, processes, records)
        offset += size
    reading.stop()


class _UsualReading:
    """Appends the records of successive usual lines, and collects the ids of their events for the current run."""

    def __init__(self, names: HashNames, processes: Processes, records: list[Record]) -> None:
        self._names, self._processes, self._records = names, processes, records
        # JSON members with the names of file and host, by their hashes.
        self._members: dict[tuple[object, ...], str] = {}
        self._ids: list[int] = []
        # Whether a record since `stop` has a number as `ph`. Only releases that number their events
        # by `id` write it.
        self._shows = False
        self._look()

    def _look(self) -> None:
        """Store facts about the current process, with which the next lines are compared. `_own` is the PID of this
        process, or None if the module `line` must read all its records."""
        self._run = run = self._processes.current
        self._own = int(run.pid) if run.pid and run.usual else None
        self._host, self._other_phase = run.host, run.other_phase

    def takes(self, offset: int, size: int, found: FoundLine, line: _UsualLine) -> bool:
        """Add the record of a line. Return False, without a new record, if the line is not usual."""
        _, text, _, more, spelling = found
        name, pid, tid, ph, category, number, type_, start, duration, raw = astuple(line)
        kind, stop, aggregate = SPAN, None, False
        told, shown = _NOTHING, number
        if spelling:
            shown, type_ = spelling.id, spelling.type or UNSET
        typed = "" if type_ is UNSET else f',"type":{type_}'
        if (
            (ph == 1 or ph == "X")  # noqa: PLR1714 - twice as fast
            and category != "dftracer"
            and start is not UNSET
            and duration is not UNSET
            and duration >= 0
            and (stop := start + duration) <= INT64_MAX
        ):
            about = typed if number is UNSET else f',"id":{shown}{typed}'
            if spelling and spelling.quoted_pid:
                told = _told(raw)
        elif (
            (ph == 2 or ph == 3 or ph == "C")  # noqa: PLR1714
            and number is UNSET
            and duration is UNSET
            and start is not UNSET
            and (counts := _counts_calls(text, raw)) is not None
        ):
            kind, aggregate = COUNTER, ph == 3 or counts
            about = f'{typed},"aggregate":true' if aggregate else typed
        else:
            return False
        found_attributes = self._attributes(about, raw, more, told)
        if found_attributes is None:
            return False
        attributes, host = found_attributes
        if (pid != self._own or host not in ("", self._host)) and not self._turns(
            offset, pid, host
        ):
            return False
        if kind is SPAN and self._other_phase and str(ph) == self._other_phase:
            return False
        unnumbered = kind is SPAN and (number is UNSET or (spelling and spelling.quoted_id))
        self._shows = self._shows or (kind is SPAN and ph == 1)
        if aggregate or unnumbered:
            self.stop()
            self._run.ids.doubt()
        elif kind is SPAN:
            self._ids.append(number)
        self._records.append(
            _record(
                Record,
                (
                    offset, size, kind, f"{pid}/{tid}", None, None, name, None if category is UNSET else category, None,
                    None, start, stop, attributes, "backslash" if b"\\" in text else None, None,
                ),
            )
        )  # fmt: skip
        return True

    def _turns(self, offset: int, pid: int, host: str) -> bool:
        self.stop()
        if self._processes.turn(str(pid), host):
            self._records.append(turned(offset, self._processes))
        self._look()
        return pid == self._own and host in ("", self._host)

    def stop(self) -> None:
        """Pass the event ids that were collected since the last call of `stop` to the current run."""
        self._run.ids.add(self._ids)
        self._run.shown(numbered=bool(self._ids), counts=self._shows)
        self._ids, self._shows = [], False

    def _attributes(
        self, about: str, raw: Raw | UnsetType, more: str, told: dict[str, str]
    ) -> tuple[str | None, str] | None:
        """Return the JSON text of a record's attributes, and the hash of its host or "". The text has these
        members in this order: `about` (members as JSON text), the names of file and host, `more` (members as JSON
        text), and the member `args` with the text `raw`.

        Names of file and host that the record itself contains are in `told`. For a hash in `raw`, the name that the
        file has defined for the hash is added, or the object `$late` if the name is not known yet. Return None if the
        module `line` must read the record."""
        host, args, members = "", "" if raw is UNSET else str(raw, "utf-8"), joined(told)
        if raw is not UNSET and ('hash"' in args or "\\u" in args):
            try:
                found = _decode_hashes(raw)
            except msgspec.MsgspecError:
                return None
            file, known = _hash(found.fhash), _hash(found.hhash)
            if file is None or known is None:
                return None
            host = known
            if file or host or told:
                key = (file, host, *told.items())
                if not (members := self._members.get(key, "")):
                    named = (("fname", "FH", file), ("hostname", "HH", host))
                    wanted = {member: f"{kind}:{hash_}" for member, kind, hash_ in named if hash_}
                    members = self._members[key] = joined(told | self._names.resolve(wanted))
        elif args[:1] not in {"", "{"}:
            return None
        text = f'{about}{members}{more},"args":{args}' if args else f"{about}{members}{more}"
        return f"{{{text[1:]}}}" if text else None, host


def turned(offset: int, processes: Processes) -> Record:
    """Return the session record "process", which precedes the records of the current process."""
    return session_record(offset, 0, "process", facts=SessionFacts(process=processes.number))


def find_usual(data: bytes, elements: list[bytes] | None = None) -> list[FoundLine]:
    """Find the records in `data`, which consists of whole lines or, if `elements` is given, of these elements of one
    line."""
    whole = elements or [line + b"\n" for line in data.split(b"\n")[:-1]]
    lines = [line.strip(_SEPARATORS) for line in whole]
    decoded: Sequence[Any] | None = _LINES.decode(data, lines)
    if decoded is None:
        if not elements:
            whole = split_elements(data)
            lines = [line.strip(_SEPARATORS) for line in whole]
        decoded = _LINES.decode(data, lines) or _LINES.decode_each(lines)
    further = _LINES.further(lines, decoded, rewritten(decoded))
    found = []
    for line, record, one, more in zip(whole, lines, decoded, further, strict=True):
        usual, spelling = one, None
        if type(one) is _SpelledLine:
            usual, spelling = _read_spelled(one) or (None, None)
        if more is None:
            usual = None
        found.append(_found(FoundLine, (line, record, usual, more or "", spelling)))
    return found


def _read_spelled(line: Any) -> tuple[_UsualLine, _Spelling] | None:  # noqa: ANN401 - a `_SpelledLine`
    """Return the fields of a line and the spelling of its numbers; None if a number is not a 64-bit integer."""
    texts = [
        "" if raw is UNSET else str(raw, "utf-8")
        for raw in (line.pid, line.tid, line.id, line.ts, line.dur, line.type)
    ]
    numbers = [UNSET if not text else _integer(text) for text in texts[:-1]]
    ph = _phase(str(line.ph, "utf-8")) if len(line.ph) <= 24 else None
    if ph is None or None in numbers:
        return None
    pid, tid, id_, start, duration = cast("list[Any]", numbers)
    usual = _UsualLine(line.name, pid, tid, ph, line.cat, id_, UNSET, start, duration, line.args)
    return usual, _Spelling(texts[2], texts[-1], texts[2][:1] == '"', texts[0][:1] == '"')


def _integer(text: str) -> int | None:
    """Return the 64-bit integer value of a number, which may be in quotes, or None."""
    digits = text[1:-1] if text[0] == '"' else text
    if len(digits) <= 18 and digits.isascii() and digits.isdecimal():
        return int(digits)
    return _unusual_integer(text) if len(text) <= 24 else integral(text)


@lru_cache(4096)
def _unusual_integer(text: str) -> int | None:
    if text[0] != '"':
        number = int(text) if _WHOLE.fullmatch(text) else integral(text)
    else:
        number = int(text[1:-1]) if QUOTED_NUMBER.fullmatch(text[1:-1]) else None
    return number if number is not None and -INT64_MAX <= number <= INT64_MAX else None


@lru_cache(64)
def _phase(text: str) -> int | str | None:
    return _decode_text(text) if text[0] == '"' else _integer(text)


def _told(raw: Raw | UnsetType) -> dict[str, str]:
    """Return the names of file and host in the arguments `raw` of releases before 1.0, as JSON texts."""
    try:
        told = _ClearNames() if raw is UNSET else _decode_told(raw)
    except msgspec.ValidationError:
        return _NOTHING
    return {
        key: quote(_decode_text(text))
        for key in _ClearNames.__struct_fields__
        if (text := getattr(told, key)) is not UNSET and bytes(text).startswith(b'"')
    }


def _counts_calls(line: bytes, raw: Raw | UnsetType) -> bool | None:
    """Return whether a counter is an aggregate, which stands for several calls; None for unusual arguments."""
    if raw is UNSET or not (b'"dft_cnt"' in line or b"\\u" in line):
        return False
    try:
        return _decode_hashes(raw).dft_cnt is not UNSET
    except msgspec.ValidationError:
        return None


def _hash(value: object) -> str | None:
    """Return a hash as text, "" for a value that is no hash, or None if the module `line` must read it."""
    if type(value) is str:
        return value or None
    if type(value) is int and -INT64_MAX <= value <= INT64_MAX:
        return str(value)
    return None if type(value) in {int, float} else ""
