"""Records of ET3 that are no events: what a trace says about itself, and what it lacks."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

from tailrace.decoding.formats.et3.form import MissingLines
from tailrace.decoding.formats.et3.line import Line
from tailrace.model.record import Kind, Record, SessionFacts, missing


def read_other(offset: int, size: int, line: Line) -> Record:
    """Return the record of a comment or of a line with an unknown letter; its place does not matter."""
    if line.kind == "comment":
        kind, name, about = Kind.ANNOTATION, "comment", {"text": quote(line.comment or "")}
    else:
        fields = ",".join(map(quote, line.fields[1:]))
        kind, name, about = Kind.SESSION, line.fields[0], {"fields": f"[{fields}]"}
        if line.comment is not None:
            about["comment"] = quote(line.comment)
    return Record(
        offset, size, kind, "", None, None, name, None, None, None, None, None, as_object(about),
        line.flaw, None,
    )  # fmt: skip


def begun(offset: int, form: str, *, again: bool) -> Record:
    """Return the record of a trace's beginning, or its program's new run: it tells the clock."""
    return Record(
        offset, 0, Kind.SESSION, "", None, None, "trace", None, None, None, None, None,
        f'{{"clock":"logical","form":"{form}"}}', None,
        SessionFacts(clock="logical", starts=again),
    )  # fmt: skip


def lost(offset: int, loss: MissingLines) -> Record:
    """Return a gap, or the heal of one."""
    record = missing(
        offset, loss.reason, loss.lines, stream=loss.stream, first=loss.first, of=loss.of,
        detail=loss.detail,
    )  # fmt: skip
    return record._replace(kind=Kind.HEAL) if loss.heal else record


def with_member(record: Record, member: str) -> Record:
    """Return the record with one more member in its attributes."""
    attributes = record.attributes
    text = f"{attributes[:-1]},{member}}}" if attributes else f"{{{member}}}"
    return record._replace(attributes=text)


def as_object(members: dict[str, str]) -> str | None:
    """Return the attributes of members whose values are JSON texts."""
    if not members:
        return None
    return "{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}"
