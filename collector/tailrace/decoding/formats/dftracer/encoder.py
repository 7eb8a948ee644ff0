"""Turn DFTracer records back into lines.

The table has the values of the common fields, and whether `ph` is a number or a text. For all other fields, it has the
producer's own text. Numbers get quotes if the arguments have names instead of hashes, as in releases before 1.0. With
`repair`, the encoder writes valid JSON, one record a line, and a missing closing bracket."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.dftracer.line import OF_EVENTS
from tailrace.decoding.formats.dftracer.salvage import BITS, COMMA
from tailrace.decoding.json_object import Texts, read_object, texts_of
from tailrace.decoding.lines import BYTE_ORDER_MARK, without_content
from tailrace.model.record import FLAW_OF_ROW, KEY, NAMES_OF_MEMBERS, SCOPE, Kind, Record

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
        return respelled(fields, _raw)
    line = ("{" + ",".join(f"{quote(key)}:{text}" for key, text in fields) + "}").encode()
    if flaw == COMMA:
        return line[:-1] + b",}"
    if flaw == "backslash" and b"\\" not in line:
        return line.replace(b'"name"', b'"n\\u0061me"', 1)
    return line


def respelled(fields: Iterable[tuple[str, str]], spell: Callable[[str], bytes]) -> bytes:
    """Return the fields as the JSON object of a line. `spell` returns the bytes of each value, and of each name and
    value in `args`."""
    parts = []
    for key, text in fields:
        members = read_object(text.encode()) if key == "args" else None
        if isinstance(members, list):
            args = b",".join(spell(quote(each.key)) + b":" + spell(each.text) for each in members)
            parts.append(b'"args":{' + args + b"}")
        else:
            parts.append(quote(key).encode() + b":" + spell(text))
    return b"{" + b",".join(parts) + b"}"


def _raw(text: str) -> bytes:
    """Return the bytes that the tracer wrote for a value: without escapes, and with any repair by `salvage` undone."""
    if text.startswith('"'):
        string: str = json.loads(text)
        return b'"' + string.encode(errors="surrogateescape") + b'"'
    if text.startswith(('{"$bytes":"', '{"$f64":"')):
        value = json.loads(text)
        if "$bytes" in value:
            return b'"' + bytes.fromhex(value["$bytes"]) + b'"'
        return _NAMES.get(value["$f64"], text).encode()
    return text.encode()


def _readable(text: str) -> bytes:
    """Return a value as valid JSON: with replacement characters, and null for nan and inf."""
    if text.startswith('{"$bytes":"'):
        return quote(_raw(text)[1:-1].decode(errors="replace")).encode()
    return b"null" if text.startswith('{"$f64":"') else text.encode()


BLANKS = "  "
"""The two bytes at the beginning of an unfinished file of release 1.0.8, which a bracket replaces at the end."""

_OURS = frozenset(
    {
        "aggregate", "clock", "cmd", "cwd", "epoch", "exec", "fname", "hostname", "thread_name", "ticks_per_second",
        KEY, SCOPE, NAMES_OF_MEMBERS, FLAW_OF_ROW,
    }
)  # fmt: skip
"""Attributes that the decoder adds to the fields that a producer wrote in a record."""

_DERIVED = frozenset({"clock", "process"})
"""Names of the session records without bytes, which the decoder adds before a line's record."""

_PLAIN = re.compile(r"0|-?[1-9][0-9]*").fullmatch
"""Match an integer as JSON spells it, of any length."""


class DFTracerEncoder:
    def __init__(self, repair: bool) -> None:
        self.added: Counter[str] = Counter()
        self._repair = repair
        self._phases: tuple[str, ...] = NUMBERS
        # For each PID, whether `ph` is a number or a text.
        self._of: dict[str, tuple[str, ...]] = {}
        self._coming = (
            False  # Whether to store `_phases` for the PID of the next record of a process.
        )
        self._bracket = False  # Whether a written opening bracket lacks its closing bracket.
        self._in_line = False  # Whether the last written line lacks its newline.
        self._begin = 0  # Offset of the first line of the file.

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:
        if not record.stream and (text := without_content(record.name or "", record.size)):
            self._begin = record.size if text == BYTE_ORDER_MARK else self._begin
            return text
        texts = texts_of(record.attributes)
        if "ticks_per_second" in texts:
            self._phases, self._coming = (TEXTS if "ph" in texts else NUMBERS), True
        if not record.stream and record.name in _DERIVED:
            return self._line_end(following)
        if not record.stream:
            return self._about_session(record, texts, following)
        pid = record.stream.partition("/")[0]
        if self._coming:
            self._of[pid], self._coming = self._phases, False
        self._phases = self._of.get(pid, self._phases)
        if "$line" in texts:
            whole = msgspec.json.decode(texts["$line"]).encode()
            found = read_object(whole)
            fields = [] if isinstance(found, str) else [(field.key, field.text) for field in found]
            line = line_of(fields, record.flaw) if record.flaw in {*REPAIRED, COMMA} else whole
        else:
            fields = list(_fields(record, texts, self._phases).items())
            line = line_of(fields, record.flaw)
        if self._repair and record.flaw in REPAIRED | {"glued", COMMA}:
            self.added["line as JSON"] += 1
            line = respelled(fields, _readable)
        self._in_line = True
        return line + self._line_end(following)

    def _line_end(self, following: Record | None) -> bytes:
        """Return the newline after a written line. Return nothing if the next record is in the same line, or has no
        bytes (see `_DERIVED`)."""
        if not self._in_line or (following is not None and self._is_in_line(following)):
            return b""
        self._in_line = False
        return b"\n"

    def _is_in_line(self, following: Record) -> bool:
        if not following.stream and following.name in _DERIVED:
            return True
        if self._repair or following.stream or following.name != "bracket":
            return following.flaw == "glued" and not self._repair
        # A closing bracket stands in the line of the record before it, and so does a new array that begins directly
        # after the bracket.
        line = msgspec.json.decode(texts_of(following.attributes).get("$line", '""'))
        return line.startswith("]") and not line.endswith("\n")

    def close(self) -> bytes:
        if not self._repair or not self._bracket:
            return b""
        self.added["]"] += 1
        return b"]\n"

    def _about_session(self, record: Record, texts: Texts, following: Record | None) -> bytes:
        """Return the line of a record "bracket", without a newline if it is the last record; otherwise nothing."""
        if record.name != "bracket":
            return b""
        mark = ("[" if record.offset == self._begin else "]") + "\n" * (following is not None)
        line: str = msgspec.json.decode(texts["$line"]) if "$line" in texts else mark
        if line == BLANKS and self._repair:
            self.added["["] += 1
            line = "[\n"
        self._bracket = "[" in line and "]" not in line
        return line.encode()


def _fields(record: Record, texts: Texts, phases: tuple[str, ...]) -> Texts:
    """Return a record's fields as JSON texts, in the order of the tracer's release. `phases` are the values of `ph` in
    this release."""
    theirs = {key: text for key, text in texts.items() if key not in _OURS}
    name, phase = str(record.name), METADATA
    if record.start is None and "ticks_per_second" not in texts:
        phases = (
            NUMBERS if "type" in texts else TEXTS
        )  # only releases that write `ph` as a number write `type` into metadata
    if record.kind == Kind.NAME:
        name = _naming(record, texts, theirs)
    elif record.kind == Kind.COUNTER:
        phase = AGGREGATE if "aggregate" in texts else COUNTER
    elif record.start is not None:
        phase = COMPLETE
        if record.kind == Kind.SESSION and (said := theirs.pop("producer", None)):
            theirs["args"] = texts_of(said)["end"] if name == "end" else said
    else:
        theirs.pop("producer", None)
    own = {"name": theirs.pop("name", quote(name))}
    if record.category is not None:
        own["cat"] = theirs.pop("cat", quote(record.category))
    ph = theirs.pop("ph", phases[phase])
    if phase == AGGREGATE and '"dft_cnt"' not in theirs.get("args", ""):
        ph = NUMBERS[AGGREGATE]
    numbers = _numbers(record, texts)
    return in_order(own, numbers, ph, theirs, counter=phase in {COUNTER, AGGREGATE})


def _numbers(record: Record, texts: Texts) -> Texts:
    """Return the JSON texts of pid, tid, ts and dur, in quotes if the release or a number such as 007 needs them."""
    pid, _, tid = record.stream.partition("/")
    numbers = {"pid": pid, "tid": tid}
    if record.start is not None:
        numbers["ts"] = str(record.start)
        if record.end is not None and "dur" not in texts:
            numbers["dur"] = str(record.end - record.start)
    named = [name for name in OF_EVENTS if name in texts and texts.get("args", "").startswith("{")]
    quoted = any(texts[name] == texts_of(texts["args"]).get(name) for name in named)
    if quoted or not all(map(_PLAIN, numbers.values())):
        return {key: f'"{text}"' for key, text in numbers.items()}
    return numbers


def _naming(record: Record, texts: Texts, theirs: Texts) -> str:
    """Return the field `name` (FH, HH or SH) of a name record. `theirs` has the record's own fields. If `args` is not
    among them, replace `hhash` by `args`."""
    key = msgspec.json.decode(texts[KEY])
    kind, _, value = key.partition(":")
    if "args" not in theirs:
        value = quote(value) if texts[SCOPE] == '"source"' else value
        host = theirs.pop("hhash")
        theirs["args"] = f'{{"hhash":{host},"name":{quote(str(record.name))},"value":{value}}}'
    return str(kind)
