"""What was read of a DFTracer record, as a `Record` with its attributes."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

from tailrace.decoding.formats.dftracer.line import Given, Reading, Texts
from tailrace.decoding.formats.dftracer.salvage import Found
from tailrace.model.record import Kind, Record, SessionFacts, named

_OURS = {
    "aggregate", "clock", "cmd", "cwd", "epoch", "exec", "fname", "hostname", "producer",
    "thread_name", "ticks_per_second",
}  # fmt: skip
"""Members that say something of ours, which a field of the record must not stand in for."""


def to_record(
    offset: int, size: int, found: Found, reading: Reading, names: Texts, facts: SessionFacts | None
) -> Record:
    """`names` are the members that its hashes stand for, `facts` what it tells of the session."""
    keys = {field.key for field in found.fields}
    repeated = len(keys) < len(found.fields)
    ours = _clock(facts) | reading.before | names
    theirs = reading.after
    if repeated or theirs.keys() & _OURS or any(key[:1] == "$" for key in keys):
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
    """A record about the session that the producer did not write as one."""
    return Record(
        offset, size, Kind.SESSION, "", None, None, name, None, None, None, None, None,
        _object(_clock(facts)), None, facts,
    )  # fmt: skip


def _name(offset: int, size: int, given: Given, stream: str, attributes: str | None) -> Record:
    """The name of a hash, with all else that its record says: which host said it, at least."""
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
