"""Turn DFTracer records back into lines.

The table has the values of the common fields, and whether `ph` is a number or a text. For all other fields, it has the
producer's own text. Numbers get quotes if the arguments have names instead of hashes, as in releases before 1.0. With
`repair`, the encoder writes valid JSON, one record a line, and a missing closing bracket."""

from __future__ import annotations

import re
from collections import Counter
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.dftracer.encoding.spelling import (
    AGGREGATE,
    COMPLETE,
    COUNTER,
    METADATA,
    NUMBERS,
    REPAIRED,
    TEXTS,
    in_order,
    line_of,
    plain_json,
    readable,
)
from tailrace.decoding.formats.dftracer.line import OF_EVENTS, Texts
from tailrace.decoding.formats.dftracer.salvage import COMMA
from tailrace.decoding.json_object import read_object
from tailrace.decoding.lines import BYTE_ORDER_MARK, without_content
from tailrace.model.record import FLAW_OF_ROW, KEY, NAMES_OF_MEMBERS, SCOPE, Kind, Record

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

_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_PLAIN = re.compile(r"0|-?[1-9][0-9]*").fullmatch
"""Match an integer as JSON spells it, of any length."""


class DFTracerEncoder:
    """Encodes the records of one DFTracer file as lines."""

    def __init__(self, repair: bool) -> None:
        self._added: Counter[str] = Counter()
        self._repair = repair
        self._phases: tuple[str, ...] = NUMBERS
        # For each PID, whether `ph` is a number or a text.
        self._of: dict[str, tuple[str, ...]] = {}
        self._coming = (
            False  # Whether `_phases` applies to the PID of the next record of a process.
        )
        self._bracket = False  # Whether a written opening bracket lacks its closing bracket.
        self._in_line = False  # Whether the last written line lacks its newline.
        self._begin = 0  # Offset of the first line of the file.

    @property
    def added(self) -> dict[str, int]:
        return dict(self._added)

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:
        if not record.stream and (text := without_content(record.name or "", record.size)):
            self._begin = record.size if text == BYTE_ORDER_MARK else self._begin
            return text
        texts = _members(record.attributes)
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
            self._added["line as JSON"] += 1
            line = plain_json(readable(fields))
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
        # A closing bracket is in the line of the record before it, and so is an array that begins behind the bracket.
        line = msgspec.json.decode(_members(following.attributes).get("$line", '""'))
        return line.startswith("]") and not line.endswith("\n")

    def close(self) -> bytes:
        if not self._repair or not self._bracket:
            return b""
        self._added["]"] += 1
        return b"]\n"

    def _about_session(self, record: Record, texts: Texts, following: Record | None) -> bytes:
        """Return the line of a record "bracket", without a newline if it is the last record; otherwise nothing."""
        if record.name != "bracket":
            return b""
        mark = ("[" if record.offset == self._begin else "]") + "\n" * (following is not None)
        line: str = msgspec.json.decode(texts["$line"]) if "$line" in texts else mark
        if line == BLANKS and self._repair:
            self._added["["] += 1
            line = "[\n"
        self._bracket = "[" in line and "]" not in line
        return line.encode()


def _members(text: str | None) -> Texts:
    return {} if text is None else {key: str(raw, "utf-8") for key, raw in _read(text).items()}


def _fields(record: Record, texts: Texts, phases: tuple[str, ...]) -> Texts:
    """Return a record's fields as JSON texts, in the order of its release. `phases` has the values of `ph` in this
    release."""
    theirs = {key: text for key, text in texts.items() if key not in _OURS}
    name, phase = str(record.name), METADATA
    if record.start is None and "ticks_per_second" not in texts:
        phases = (
            NUMBERS if "type" in texts else TEXTS
        )  # in metadata, only the field `type` shows that the release writes `ph` as a number
    if record.kind == Kind.NAME:
        name = _naming(record, texts, theirs)
    elif record.kind == Kind.COUNTER:
        phase = AGGREGATE if "aggregate" in texts else COUNTER
    elif record.start is not None:
        phase = COMPLETE
        if record.kind == Kind.SESSION and (said := theirs.pop("producer", None)):
            theirs["args"] = _members(said)["end"] if name == "end" else said
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
    quoted = any(texts[name] == _members(texts["args"]).get(name) for name in named)
    if quoted or not all(map(_PLAIN, numbers.values())):
        return {key: f'"{text}"' for key, text in numbers.items()}
    return numbers


def _naming(record: Record, texts: Texts, theirs: Texts) -> str:
    """Return the field `name` (FH, HH or SH) of a record that gives a name to a hash. Add the field `args` to `theirs`
    if it is missing there."""
    key = msgspec.json.decode(texts[KEY])
    kind, _, value = key.partition(":")
    if "args" not in theirs:
        value = quote(value) if texts[SCOPE] == '"source"' else value
        host = theirs.pop("hhash")
        theirs["args"] = f'{{"hhash":{host},"name":{quote(str(record.name))},"value":{value}}}'
    return str(kind)
