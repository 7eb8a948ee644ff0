"""Turn the fields of a DFTracer record into a `Record` with attributes."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

from tailrace.decoding.formats.dftracer.line import QUOTED_PHASES, GivenName, RecordReading, Texts
from tailrace.decoding.formats.dftracer.salvage import FoundFields
from tailrace.model.record import Kind, Record, SessionFacts, named

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
    ours = _clock(facts) | reading.before | names
    theirs = reading.after
    if repeated or theirs.keys() & OURS or any(key[:1] == "$" for key in keys):
        theirs = {"$line": quote(found.text.decode())}
    attributes = _object(ours | theirs)
    flaw = found.flaw or ("duplicate_key" if repeated else reading.flaw)
    if reading.given:
        record = _name(offset, size, reading.given, reading.stream, attributes)
        return record._replace(category=reading.category, flaw=flaw)
    return Record(
        offset, size, reading.kind, reading.stream, None, None, reading.name, reading.category,
        None, None, reading.start, reading.end, attributes, flaw, facts,
    )  # fmt: skip


def about_session(offset: int, size: int, name: str, facts: SessionFacts | None = None) -> Record:
    """Return a session record: for bytes that are no JSON record, such as blank lines, or to state `facts` of the
    session."""
    return Record(
        offset, size, Kind.SESSION, "", None, None, name, None, None, None, None, None,
        _object(_clock(facts)), None, facts,
    )  # fmt: skip


def bracket(offset: int, line: bytes) -> Record:
    """Return the record of a line of brackets. The record keeps the line's text, except for `[` at the file's beginning
    and `]` at any other position."""
    record = about_session(offset, len(line), "bracket")
    if line.removesuffix(b"\n") == (b"]" if offset else b"["):
        return record
    return record._replace(attributes=_object({"$line": quote(line.decode())}))


def phase_of(found: FoundFields) -> str:
    """Return the JSON text of `ph`: a text such as `"X"`, or a number in releases that number their events by `id`."""
    phase: str = next(field.text for field in reversed(found.fields) if field.key == "ph")
    return phase[1:-1] if phase in QUOTED_PHASES else phase


def with_phase(record: Record, phase: str) -> Record:
    before = f"{record.attributes[:-1]}," if record.attributes else "{"
    return record._replace(attributes=f'{before}"ph":{phase}}}')


def _name(offset: int, size: int, given: GivenName, stream: str, attributes: str | None) -> Record:
    record = named(offset, size, given.key, given.name, scope=given.scope, stream=stream)
    return record._replace(attributes=f"{str(record.attributes)[:-1]},{str(attributes)[1:]}")


def _clock(facts: SessionFacts | None) -> Texts:
    if facts is None or facts.ticks_per_second is None:
        return {}
    ticks = str(int(facts.ticks_per_second))
    return {"clock": '"unix_ns"', "ticks_per_second": ticks, "epoch": "0"}


def _object(texts: Texts) -> str | None:
    if not texts:
        return None
    return "{" + ",".join(f"{quote(key)}:{text}" for key, text in texts.items()) + "}"
