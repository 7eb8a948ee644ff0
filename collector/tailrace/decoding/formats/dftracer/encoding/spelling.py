"""Write one DFTracer record in the spelling of a tracer release. The tracer does not escape strings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from json.encoder import encode_basestring as quote

from tailrace.decoding.formats.dftracer.line import Texts
from tailrace.decoding.formats.dftracer.salvage import BITS, COMMA
from tailrace.decoding.json_object import read_object

REPAIRED = frozenset({"bare_nan", "invalid_utf8", "split_line", "unescaped"})
"""Flaws of a record whose line in the original file was not valid JSON."""

ORDER = ("id", "name", "cat", "type", "pid", "tid", "ts", "dur", "ph")
"""The order of the common fields in events. Other fields follow, and `args` comes last.

The decoder repairs a record only if the record has no id, or the id is the first field."""
ORDER_OF_COUNTERS = ("id", "name", "cat", "type", "ts", "ph", "pid", "tid")
"""The order of the common fields in counters."""

_NAMES = {bits: name for name, bits in BITS.items()}


NUMBERS, TEXTS = ("1", "2", "3", "4"), ('"X"', '"C"', '"C"', '"M"')
"""Phases of complete events, counters, aggregates and metadata, as numbers (from 2.2 on) and as texts (before)."""
COMPLETE, COUNTER, AGGREGATE, METADATA = range(4)


def in_order(texts: Texts, numbers: Texts, phase: str, theirs: Texts, *, counter: bool) -> Texts:
    """Return all fields of a record in the order of the tracer's release.

    If the fields that have the producer's own text (`theirs`) are in another order, put these fields last and keep
    their order."""
    fields = {**texts, **numbers, "ph": phase, **theirs}
    order = ORDER_OF_COUNTERS if counter else ORDER
    keys = [key for key in order if key in fields]
    keys += [key for key in theirs if key not in order]
    if [key for key in keys if key in theirs and key not in {"id", "type"}] != [
        key for key in theirs if key not in {"id", "type"}
    ]:
        first = [key for key in order if key == "id" or key not in theirs]
        keys = [key for key in first if key in fields]
        keys += [key for key in theirs if key != "id"]
    return {key: fields[key] for key in keys}


def line_of(fields: Iterable[tuple[str, str]], flaw: str | None) -> bytes:
    """Return the fields of a record as a line with the same flaw as in the original file."""
    if flaw in REPAIRED:
        return as_written(fields)
    line = plain_json(fields)
    if flaw == COMMA:
        return line[:-1] + b",}"
    if flaw == "backslash" and b"\\" not in line:
        return line.replace(b'"name"', b'"n\\u0061me"', 1)
    return line


def plain_json(fields: Iterable[tuple[str, str]]) -> bytes:
    return ("{" + ",".join(f"{quote(key)}:{text}" for key, text in fields) + "}").encode()


def as_written(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the fields as the tracer writes them: without escapes, and with the text before a repair."""
    parts = []
    for key, text in fields:
        members = read_object(text.encode()) if key == "args" else None
        if isinstance(members, list):
            args = b",".join(_raw(quote(each.key)) + b":" + _raw(each.text) for each in members)
            parts.append(b'"args":{' + args + b"}")
        else:
            parts.append(quote(key).encode() + b":" + _raw(text))
    return b"{" + b",".join(parts) + b"}"


def readable(fields: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the fields as valid JSON: with replacement characters, and null for nan and inf."""
    found = []
    for key, text in fields:
        members = read_object(text.encode()) if key == "args" else None
        if isinstance(members, list):
            args = ",".join(f"{quote(each.key)}:{_readable(each.text)}" for each in members)
            found.append((key, f"{{{args}}}"))
        else:
            found.append((key, _readable(text)))
    return found


def _raw(text: str) -> bytes:
    """Return the bytes that the tracer wrote for a value, which a repair may have changed (see `salvage`)."""
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
