"""Read one record of DFTracer into columns. This reader is the reference: `usual` gives the same results faster.

The `ph` of a record alone determines the kind of the record and its dialect:

    1, "X"              complete: a span, or the tracer's own `start` and `end`
    2, "C"              counter
    3, "C" with dft_cnt aggregate: a counter of calls that were not written one by one
    4, "M", "H"         metadata: HH, FH, SH are names for hashes, all other metadata is about the process

Numbers may be quoted (before 1.0). Integers may have a fraction or an exponent. Other JSON is refused with a reason:

    missing_key   name, ph, pid or tid is missing, or the ts or dur that the phase requires
    bad_field     name or cat is not a string, or args not an object
    bad_number    pid, tid, ts or dur is not an integer, or a time is beyond 64 bits"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from json.encoder import encode_basestring as quote
from typing import Any, Literal, NamedTuple

from tailrace.decoding.formats.dftracer.salvage import FoundFields
from tailrace.decoding.json_object import BEYOND, Field, Texts, as_object, integer, read_object
from tailrace.model.record import Kind, Record, SessionFacts, as_int64, named, session_record

HASHES = {"HH", "FH", "SH"}
"""Names of the metadata that gives a name to a hash: HH for hosts, FH for files, SH for other strings."""

_NAMING = {"hhash", "name", "value"}
"""The arguments of a metadata record in `HASHES`: the host's hash, the name, and the hash that gets the name."""

TICKS_PER_SECOND = {"SEC": 1, "MS": 10**3, "US": 10**6, "NS": 10**9}
"""Number of ticks of ts and dur in one second, by the name of the unit in time_metric."""

OF_EVENTS = {"fname": ("fhash", "FH"), "hostname": ("hhash", "HH")}
OF_START = {
    **OF_EVENTS,
    "cmd": ("cmd_hash", "SH"),
    "exec": ("exec_hash", "SH"),
    "cwd": ("cwd", "FH"),
}
"""For each attribute that has a name in place of a hash: the member of `args` that has the hash, and the kind of the
hash (see `HASHES`)."""

QUOTED_NUMBER = re.compile(r"-?[0-9]{1,20}")
QUOTED_PHASES = {'"1"', '"2"', '"3"', '"4"'}
"""Numbers as `ph` in the spelling of programs that write all values in quotes."""

Fields = dict[str, Field]


class RefusedError(Exception):
    """Signals that a JSON object is not a DFTracer record. The argument is the reason."""


class GivenName(NamedTuple):
    """A name that a metadata record gives to a hash. A string hash is computed from the name, so it stands for this
    name in the whole source. An integer hash stands for this name only in one `Files.group`."""

    key: str
    scope: Literal["group", "source"]
    name: str


class RecordReading(NamedTuple):
    """The columns of a record. The attributes are `before`, then the names for the hashes, then `after`."""

    kind: Kind
    stream: str
    name: str
    before: Texts
    after: Texts
    # Kind of the record. Some kinds change how later records are read.
    role: Literal["event", "counter", "aggregate", "metadata", "start", "end", "unit", "other"]
    category: str | None = None
    start: int | None = None
    end: int | None = None
    # By attribute, the key of its hash, such as `FH:17` for `fname`.
    wanted: Texts = {}  # noqa: RUF012 - nobody writes into it
    given: GivenName | None = None
    flaw: str | None = None
    id: int | None = None
    host: str = ""  # Hash of the host's name.
    ticks: int | None = None
    phase: Literal["", "1", "X"] = ""  # Spelling of `ph` in a complete event: number or text.
    # Whether the release gives events consecutive ids; None if not shown. A release that writes `ph` as a number gives
    # them, a release that writes ids in metadata does not.
    counts: bool | None = None
    whole: bool = False  # Whether the tracer's configuration excludes aggregates.


class _Line(NamedTuple):
    """The fields that every DFTracer record has, whatever its phase (`ph`)."""

    fields: Fields
    name: str
    category: str | None
    stream: str
    args: dict[str, Any]
    before: Texts
    after: Texts


def read_fields(found: list[Field]) -> RecordReading:
    """Read the fields of a record. Raise RefusedError if the fields do not form a DFTracer record."""
    fields = {field.key: field for field in found}
    name, ph = _text(_field(fields, "name")), _field(fields, "ph")
    if ph.text in QUOTED_PHASES:
        ph = fields["ph"] = ph._replace(value=int(ph.value), text=ph.value)
    category = _text(fields["cat"]) if "cat" in fields else None
    stream = f"{_digits(fields, 'pid')}/{_digits(fields, 'tid')}"
    args = fields["args"].value if "args" in fields else {}
    if not isinstance(args, dict):
        raise RefusedError("bad_field")
    before: Texts = {key: fields[key].text for key in ("id", "type") if key in fields}
    used = {"id", "type", "name", "cat", "pid", "tid", "ph", "args"}
    after = {field.key: field.text for field in found if field.key not in used}
    line = _Line(fields, name, category, stream, args, before, after)
    read = _READERS.get(ph.value if isinstance(ph.value, str) else integer(ph), _read_other)
    host = args.get("hhash")
    reading = read(line)._replace(host=str(host) if hash_key("HH", host) else "")
    for key in ("name", "cat"):
        if key in fields and not isinstance(fields[key].value, str):
            reading.before[key] = fields[key].text
    return reading


def hash_key(kind: str, value: object) -> str | None:
    """Return the key of a hash, such as `FH:17`; None if `value` is neither a string nor an integer."""
    if isinstance(value, str) or type(value) is int:
        return f"{kind}:{value}"
    return None


# Functions that read all fields of a record, depending on its phase (`ph`)


def _read_complete(line: _Line) -> RecordReading:
    start = _int64(line.fields, "ts")
    duration = _number(line.fields, "dur")
    end = start + as_int64(duration)
    if not -(2**63) <= duration < 2**64 or not -(2**63) <= end < 2**63:
        raise RefusedError("bad_number")
    del line.after["ts"]
    flaw = None
    if end < start:
        flaw = "negative_duration"
    else:
        del line.after["dur"]
    as_text = isinstance(line.fields["ph"].value, str)
    about_run = line.category == "dftracer" and line.name in {"start", "end"}
    if not about_run and line.fields["pid"].text.startswith('"'):
        clear = (key for key in OF_EVENTS if isinstance(line.args.get(key), str))
        line.before.update({key: quote(line.args[key]) for key in clear})
    reading = RecordReading(
        Kind.SPAN, line.stream, line.name, line.before, _with_args(line), "event", line.category,
        start, end, _wanted(line.args, OF_EVENTS), flaw=flaw,
        id=id_of(line.fields.values()),
        phase="X" if as_text else "1", counts=None if as_text else True,
    )  # fmt: skip
    if not about_run:
        return reading
    # The tracer's own event `start` or `end` begins or ends a run.
    args, begins = line.after.pop("args", None), line.name == "start"
    if args:
        line.before["producer"] = args if begins else f'{{"end":{args}}}'
    configured = line.args.get("cfg")
    return reading._replace(
        kind=Kind.SESSION,
        role="start" if begins else "end",
        wanted=_wanted(line.args, OF_START) if begins else reading.wanted,
        whole=isinstance(configured, dict) and configured.get("aggregation_enable") == 0,
    )


def _read_counter(line: _Line) -> RecordReading:
    start = _int64(line.fields, "ts")
    del line.after["ts"]
    aggregate = line.fields["ph"].value == 3 or "dft_cnt" in line.args
    if aggregate:
        line.before["aggregate"] = "true"
    return RecordReading(
        Kind.COUNTER, line.stream, line.name, line.before, _with_args(line),
        "aggregate" if aggregate else "counter", line.category, start,
        wanted=_wanted(line.args, OF_EVENTS),
    )  # fmt: skip


def _read_metadata(line: _Line) -> RecordReading:
    name, value = line.args.get("name"), line.args.get("value")
    key = hash_key(line.name, value)
    about = RecordReading(
        Kind.SESSION, line.stream, line.name, line.before, line.after, "metadata", line.category,
        counts="id" not in line.fields,
    )  # fmt: skip
    readable = _readable(name)
    if line.name in HASHES and key and readable is not None:
        host = line.args.get("hhash")
        args = read_object(line.fields["args"].text.encode())
        usual = line.args.keys() == _NAMING and len(args) == len(_NAMING)
        if isinstance(name, str) and hash_key("HH", host) and usual:
            line.before["hhash"] = json.dumps(host, ensure_ascii=False)
        else:
            _with_args(line)
        scope: Literal["group", "source"] = "source" if isinstance(value, str) else "group"
        return about._replace(kind=Kind.NAME, given=GivenName(key, scope, readable))
    about = about._replace(wanted=_wanted(line.args, {"hostname": ("hhash", "HH")}))
    if line.name == "CM" and name == "time_metric":
        ticks = TICKS_PER_SECOND.get(value) if isinstance(value, str) else None
        flaw = None if ticks else "unknown_unit"
        about = about._replace(role="unit", ticks=ticks, flaw=flaw)
    if value == line.name:
        # The tracer swaps the two arguments if the record gives a thread or process its name.
        name, value = value, name
    if name == "thread_name" and isinstance(value, str):
        line.before[name] = quote(value)
    elif isinstance(name, str) and isinstance(value, str):
        line.before["producer"] = f"{{{quote(name)}:{quote(value)}}}"
    _with_args(line)
    return about


def _read_other(line: _Line) -> RecordReading:
    """Read a record with an unknown `ph`. If it has a time and a duration, it is a complete event by its shape."""
    ph = line.fields["ph"]
    line.before["ph"] = ph.text
    if {"ts", "dur"} <= line.fields.keys():
        with suppress(RefusedError):
            reading = _read_complete(line)
            return reading._replace(flaw="unknown_phase", phase="", counts=None)
    return RecordReading(
        Kind.SESSION, line.stream, line.name, line.before, _with_args(line), "other",
        line.category, flaw="unknown_phase",
        id=id_of(line.fields.values()),
    )  # fmt: skip


_READERS: dict[object, Callable[[_Line], RecordReading]] = {
    1: _read_complete, "X": _read_complete,
    2: _read_counter, 3: _read_counter, "C": _read_counter,
    4: _read_metadata, "M": _read_metadata, "H": _read_metadata,
}  # fmt: skip


def id_of(found: Iterable[Field]) -> int | None:
    """Return the last `id` in the fields of a record, if it is an integer of 64 bits."""
    number = next((integer(field) for field in reversed([*found]) if field.key == "id"), None)
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _with_args(line: _Line) -> Texts:
    if "args" in line.fields:
        line.after["args"] = line.fields["args"].text
    return line.after


def _wanted(args: dict[str, Any], members: dict[str, tuple[str, str]]) -> Texts:
    keys = {m: hash_key(kind, args.get(arg)) for m, (arg, kind) in members.items()}
    return {member: key for member, key in keys.items() if key}


# Functions that read single fields of a record


def _field(fields: Fields, key: str) -> Field:
    if key not in fields:
        raise RefusedError("missing_key")
    return fields[key]


def _text(field: Field) -> str:
    text = _readable(field.value)
    if text is None:
        raise RefusedError("bad_field")
    return text


def _readable(value: object) -> str | None:
    """Return the value of a JSON string, also of one that is not UTF-8 (see `salvage`), or None."""
    if isinstance(value, dict) and value.keys() == {"$bytes"}:
        try:
            return bytes.fromhex(value["$bytes"]).decode(errors="replace")
        except (TypeError, ValueError):
            return None
    return value if isinstance(value, str) else None


def _digits(fields: Fields, key: str) -> str:
    """Return an integer in any JSON spelling, such as 1e3 or 1.0, as plain decimal digits."""
    number = _number(fields, key)
    return fields[key].text if number == BEYOND else str(number)


def _number(fields: Fields, key: str) -> int:
    value = _field(fields, key).value
    if isinstance(value, str) and QUOTED_NUMBER.fullmatch(value):
        return int(value)
    number = integer(fields[key])
    if number is None:
        raise RefusedError("bad_number")
    return number


def _int64(fields: Fields, key: str) -> int:
    value = _number(fields, key)
    if not -(2**63) <= value < 2**63:
        raise RefusedError("bad_number")
    return value


OURS = {
    "aggregate", "clock", "cmd", "cwd", "epoch", "exec", "fname", "hostname", "producer",
    "thread_name", "ticks_per_second",
}  # fmt: skip
"""Attributes that the decoder adds to a record's own fields. If a record has a field of the same name, all its fields
are kept as one text (`$line`)."""


def to_record(
    offset: int,
    size: int,
    found: FoundFields,
    reading: RecordReading,
    names: Texts,
    facts: SessionFacts | None,
) -> Record:
    """Return the `Record` for the fields of a DFTracer record. `names` has the attributes for the record's hashes."""
    keys = {field.key for field in found.fields}
    repeated = len(keys) < len(found.fields)
    ours = clock_of(facts) | reading.before | names
    theirs = reading.after
    if repeated or theirs.keys() & OURS or any(key[:1] == "$" for key in keys):
        theirs = {"$line": quote(found.text.decode())}
    attributes = as_object(ours | theirs)
    flaw = found.flaw or ("duplicate_key" if repeated else reading.flaw)
    if given := reading.given:
        record = named(
            offset, size, given.key, given.name, scope=given.scope, stream=reading.stream
        )
        attributes = f"{str(record.attributes)[:-1]},{str(attributes)[1:]}"
        return record._replace(category=reading.category, attributes=attributes, flaw=flaw)
    return Record(
        offset, size, reading.kind, reading.stream, None, None, reading.name, reading.category,
        None, None, reading.start, reading.end, attributes, flaw, facts,
    )  # fmt: skip


def bracket(offset: int, line: bytes) -> Record:
    """Return the record of a line of brackets. The record keeps the line's text, except for `[` at the file's beginning
    and `]` at any other position."""
    usual = line.removesuffix(b"\n") == (b"]" if offset else b"[")
    attributes = None if usual else as_object({"$line": quote(line.decode())})
    return session_record(offset, len(line), "bracket", attributes)


def phase_of(found: FoundFields) -> str:
    """Return the JSON text of `ph`: a text such as `"X"`, or a number in releases that number their events by `id`."""
    phase: str = next(field.text for field in reversed(found.fields) if field.key == "ph")
    return phase[1:-1] if phase in QUOTED_PHASES else phase


def clock_of(facts: SessionFacts | None) -> Texts:
    if facts is None or facts.ticks_per_second is None:
        return {}
    ticks = str(int(facts.ticks_per_second))
    return {"clock": '"unix_ns"', "ticks_per_second": ticks, "epoch": "0"}
