"""The ways in which releases of DFTracer spell one record, and strings as the tracer writes them, which escapes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring as quote
from typing import NamedTuple

from tailrace.decoding.formats.dftracer.salvage import BITS, COMMA
from tailrace.decoding.json_object import read_object

Texts = dict[str, str]
"""Keys and the JSON texts of their values, in order."""

REPAIRED = frozenset({"bare_nan", "invalid_utf8", "split_line", "unescaped"})
"""Flaws of records that are no JSON as the tracer wrote them."""

ORDER = ("id", "name", "cat", "type", "pid", "tid", "ts", "dur", "ph")
ORDER_OF_COUNTERS = ("id", "name", "cat", "type", "ts", "ph", "pid", "tid")
"""The order of the fields that all releases have. Others follow, and `args` comes last. An id stands first in every record:
the decoder repairs no record in which one stands elsewhere."""

_NAMES = {bits: name for name, bits in BITS.items()}


class Spelling(NamedTuple):
    """How a release spells numbers and phases: those of complete events, counters, aggregates and metadata."""

    phases: tuple[str, str, str, str]
    quoted: bool = False


SPELLINGS = (
    Spelling(("1", "2", "3", "4")),
    Spelling(('"X"', '"C"', '"C"', '"M"')),
    Spelling(('"X"', '"C"', '"C"', '"H"')),
    Spelling(('"X"', '"C"', '"C"', '"M"'), quoted=True),
)
COMPLETE, COUNTER, AGGREGATE, METADATA = range(4)


class RecordFields(NamedTuple):
    """A record's fields: name and category as JSON, numbers as digits, and JSON of the fields without columns."""

    texts: Mapping[str, str]
    numbers: Mapping[str, str]
    theirs: Texts
    phase: int
    phase_text: str | None = None

    def fields(self, spelling: Spelling) -> Texts:
        """Return all fields in their order, unless that would change the order of `theirs`."""
        numbers = {k: f'"{text}"' if spelling.quoted else text for k, text in self.numbers.items()}
        phase = self.phase_text or spelling.phases[self.phase]
        fields = {**self.texts, **numbers, "ph": phase, **self.theirs}
        order = ORDER_OF_COUNTERS if self.phase in {COUNTER, AGGREGATE} else ORDER
        keys = [key for key in order if key in fields]
        keys += [key for key in self.theirs if key not in order]
        if [key for key in keys if key in self.theirs and key not in {"id", "type"}] != [
            key for key in self.theirs if key not in {"id", "type"}
        ]:
            first = [key for key in order if key == "id" or key not in self.theirs]
            keys = [key for key in first if key in fields]
            keys += [key for key in self.theirs if key != "id"]
        return {key: fields[key] for key in keys}


def lines_of(
    line: RecordFields, spelling: Spelling, flaw: str | None
) -> Iterator[tuple[bytes, Spelling]]:
    """Yield the ways to write a record, the likeliest first; `spelling` is that of the line before."""
    for each in (spelling, *(other for other in SPELLINGS if other != spelling)):
        fields = line.fields(each)
        if flaw in REPAIRED or flaw == "glued":
            yield as_written(fields), each
        if flaw == "backslash":
            for escaped in _escaped(line, fields):
                yield plain_json(escaped), each
        if flaw == COMMA:
            for way in _with_commas(plain_json(fields)):
                yield way, each
        elif flaw not in REPAIRED:
            yield plain_json(fields), each


def _with_commas(line: bytes) -> Iterator[bytes]:
    """Yield a record with a comma at the end of its last object, of the record, and of both."""
    nested = line.endswith(b"}}") and not line.endswith(b"{}}")
    if nested:
        yield line[:-2] + b",}}"
    yield line[:-1] + b",}"
    if nested:
        yield line[:-2] + b",},}"


def plain_json(fields: Texts) -> bytes:
    return ("{" + ",".join(f"{quote(key)}:{text}" for key, text in fields.items()) + "}").encode()


def as_written(fields: Texts) -> bytes:
    """Return the fields as the tracer writes them: what a repair has made of strings and numbers is undone."""
    parts = []
    for key, text in fields.items():
        members = read_object(text.encode()) if key == "args" else None
        if isinstance(members, list):
            args = b",".join(_raw(quote(each.key)) + b":" + _raw(each.text) for each in members)
            parts.append(b'"args":{' + args + b"}")
        else:
            parts.append(quote(key).encode() + b":" + _raw(text))
    return b"{" + b",".join(parts) + b"}"


def readable(fields: Texts) -> Texts:
    """Return the fields with strings in UTF-8, and null for numbers that JSON does not have."""
    found = {key: _readable(text) for key, text in fields.items()}
    members = read_object(fields.get("args", "").encode())
    if isinstance(members, list):
        args = ",".join(f"{quote(each.key)}:{_readable(each.text)}" for each in members)
        found["args"] = f"{{{args}}}"
    return found


def _raw(text: str) -> bytes:
    """Return a value as the tracer wrote it, given the JSON that a repair made of it (see `salvage`)."""
    if text.startswith('"'):
        string: str = json.loads(text)
        return b'"' + string.encode(errors="surrogateescape") + b'"'
    if text.startswith(('{"$bytes":"', '{"$f64":"')):
        value = json.loads(text)
        if "$bytes" in value:
            return b'"' + bytes.fromhex(value["$bytes"]) + b'"'
        return _NAMES.get(value["$f64"], text).encode()
    return text.encode()


def _readable(text: str) -> str:
    raw = _raw(text)
    if text.startswith('{"$bytes":"'):
        return quote(raw[1:-1].decode(errors="replace"))
    return "null" if text.startswith('{"$f64":"') else text


def _escaped(line: RecordFields, fields: Texts) -> Iterator[Texts]:
    """Yield spellings of name and category with a backslash, if nothing else has one."""
    if any("\\" in text for text in fields.values()):
        return
    for escape in (json.dumps, lambda text: quote(text).replace("/", "\\/"), _first_escaped):
        texts = {k: text for k, text in line.texts.items() if text.startswith('"')}
        found = fields | {key: escape(json.loads(text)) for key, text in texts.items()}
        if any("\\" in text for text in found.values()):
            yield found


def _first_escaped(text: str) -> str:
    first = json.dumps(text[:1])[1:-1]
    return f'"\\u{ord(text[0]):04x}{quote(text[1:])[1:]}' if len(first) == 1 else json.dumps(text)
