"""Records of ET3 that are no event: what a trace says of itself, or does not hold."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

from tailrace.decoding.formats.et3.form import Loss
from tailrace.decoding.formats.et3.line import Line
from tailrace.model.record import Kind, Record, SessionFacts, missing


def read_other(offset: int, size: int, line: Line) -> Record:
    """A comment, or a line whose letter is not known: it does not matter where it stands."""
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
    """A trace begins here, or its program anew: what its clock is."""
    return Record(
        offset, 0, Kind.SESSION, "", None, None, "trace", None, None, None, None, None,
        f'{{"clock":"logical","form":"{form}"}}', None,
        SessionFacts(clock="logical", starts=again),
    )  # fmt: skip


def lost(offset: int, loss: Loss) -> Record:
    """A gap, or what repays one."""
    record = missing(
        offset, loss.reason, loss.lines, stream=loss.stream, first=loss.first, of=loss.of,
        detail=loss.detail,
    )  # fmt: skip
    return record._replace(kind=Kind.HEAL) if loss.heal else record


def with_member(record: Record, member: str) -> Record:
    """With one more member in its attributes."""
    attributes = record.attributes
    text = f"{attributes[:-1]},{member}}}" if attributes else f"{{{member}}}"
    return record._replace(attributes=text)


def as_object(members: dict[str, str]) -> str | None:
    """Attributes of which the values are JSON texts."""
    if not members:
        return None
    return "{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}"
