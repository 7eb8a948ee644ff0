"""Write records of DFTracer as lines again.

The table keeps a record's fields with the producer's own text, and not how its release spells what all records have: the
phase, and whether numbers stand in quotes. The encoder takes the spelling that has as many bytes as the line had, first
that of the line before (`spelling`). Where a line was longer in any spelling, spaces make up for what is missing.

A repair writes records that are no JSON as JSON, each on a line of its own, and closes the brackets of releases that have
them.
"""

from __future__ import annotations

from collections import Counter
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.dftracer.encoding.spelling import (
    AGGREGATE,
    COMPLETE,
    COUNTER,
    METADATA,
    REPAIRED,
    SPELLINGS,
    RecordFields,
    Spelling,
    lines_of,
    plain_json,
    readable,
)
from tailrace.decoding.formats.dftracer.salvage import COMMA
from tailrace.model.record import FLAW_OF_ROW, KEY, NAMES_OF_MEMBERS, SCOPE, Kind, Record

PADDING_MAX = 65_536
"""The most spaces that fill up a line. A larger distance to the next record means that whole lines are gone."""

BLANKS = b"  "
"""The bytes at the beginning of a file of release 1.0.8. The tracer replaces them by a bracket when it finishes."""

_OURS = frozenset(
    {
        "aggregate", "clock", "cmd", "cwd", "epoch", "exec", "fname", "hostname", "thread_name", "ticks_per_second",
        KEY, SCOPE, NAMES_OF_MEMBERS, FLAW_OF_ROW,
    }
)  # fmt: skip
"""Members that the decoder adds to a record's own fields."""

_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class DFTracerEncoder:
    """The encoder of one file."""

    def __init__(self, repair: bool) -> None:
        self._added: Counter[str] = Counter()
        self._repair = repair
        self._spelling = SPELLINGS[0]
        self._bracket = False  # whether a bracket is open
        self._blank_to = -1  # where blank lines end

    @property
    def added(self) -> dict[str, int]:
        return dict(self._added)

    def encode(self, record: Record, *, last: bool) -> bytes | None:
        texts = _members(record.attributes)
        if not record.stream:
            return self._about_session(record, texts, last=last)
        if "$line" in texts:
            ways = [(msgspec.json.decode(texts["$line"]).encode(), self._spelling)]
        else:
            ways = list(lines_of(_line(record, texts), self._spelling, record.flaw))
        if self._repair:
            return self._repaired(record, texts, ways)
        written, self._spelling = _fitted(ways, record, self._spelling, last=last)
        return written

    def close(self) -> bytes:
        if not self._repair or not self._bracket:
            return b""
        self._added["]"] += 1
        return b"]\n"

    def _about_session(self, record: Record, texts: dict[str, str], *, last: bool) -> bytes:
        """Return the bytes of a line that is no record."""
        if record.name == "blank_lines":
            after_blank, self._blank_to = (
                record.offset == self._blank_to,
                record.offset + record.size,
            )
            if last and after_blank:
                return b" " * record.size
            return b" " * (record.size - 1) + b"\n"
        if record.name != "bracket":
            return b""
        mark = "[" if record.offset == 0 else "]"
        line = msgspec.json.decode(texts["$line"]) if "$line" in texts else f"{mark}\n"
        self._bracket = "]" not in line
        data = line.encode()
        return data if self._repair or record.size != len(data) - 1 else data[:-1]

    def _repaired(
        self, record: Record, texts: dict[str, str], ways: list[tuple[bytes, Spelling]]
    ) -> bytes:
        """Return a record as JSON on a line of its own."""
        sizes = {len(way): spelling for way, spelling in reversed(ways)}
        self._spelling = sizes.get(record.size - 1, self._spelling)
        begin = b""
        if record.offset == 0 and record.size - 1 - len(BLANKS) in sizes:
            self._spelling = sizes[record.size - 1 - len(BLANKS)]
            begin, self._bracket = b"[\n", True
            self._added["["] += 1
        if "$line" in texts or record.flaw not in REPAIRED | {"glued", COMMA}:
            line = next((way for way, spelling in ways if spelling == self._spelling), ways[0][0])
            return begin + line + b"\n"
        fields = _line(record, texts).fields(self._spelling)
        self._added["line as JSON"] += 1
        return begin + plain_json(readable(fields)) + b"\n"


def _members(text: str | None) -> dict[str, str]:
    return {} if text is None else {key: str(raw, "utf-8") for key, raw in _read(text).items()}


def _line(record: Record, texts: dict[str, str]) -> RecordFields:
    """Return the fields of a record, given its attributes."""
    pid, _, tid = record.stream.partition("/")
    theirs = {key: text for key, text in texts.items() if key not in _OURS}
    name, phase, numbers = str(record.name), METADATA, {"pid": pid, "tid": tid}
    if record.kind == Kind.NAME:
        name = _naming(record, texts, theirs)
    elif record.kind == Kind.COUNTER:
        aggregate = "aggregate" in texts
        phase = AGGREGATE if aggregate else COUNTER
    elif record.start is not None:
        phase = COMPLETE
        if record.kind == Kind.SESSION and (said := theirs.pop("producer", None)):
            theirs["args"] = _members(said)["end"] if name == "end" else said
    if record.kind == Kind.SESSION and record.start is None:
        theirs.pop("producer", None)
    if record.start is not None:
        numbers["ts"] = str(record.start)
        if record.end is not None and "dur" not in theirs:
            numbers["dur"] = str(record.end - record.start)
    own = {"name": theirs.pop("name", quote(name))}
    if record.category is not None:
        own["cat"] = theirs.pop("cat", quote(record.category))
    certain = theirs.pop("ph", None)
    if phase == AGGREGATE and '"dft_cnt"' not in theirs.get("args", ""):
        certain = "3"
    return RecordFields(own, numbers, theirs, phase, certain)


def _naming(record: Record, texts: dict[str, str], theirs: dict[str, str]) -> str:
    """Return the name of a record that names a hash, and put its arguments into `theirs`."""
    key = msgspec.json.decode(texts[KEY])
    kind, _, value = key.partition(":")
    if "args" not in theirs:
        value = quote(value) if texts[SCOPE] == '"source"' else value
        host = theirs.pop("hhash")
        theirs["args"] = f'{{"hhash":{host},"name":{quote(str(record.name))},"value":{value}}}'
    return str(kind)


def _fitted(
    ways: list[tuple[bytes, Spelling]], record: Record, before: Spelling, *, last: bool
) -> tuple[bytes, Spelling]:
    """Return the first of these lines that has the record's size, and its spelling; else the shortest, made as long as that.

    A line that lacks its newline is spelled as the one `before`."""
    for ending in (b"\n", b"", b"\r\n") if last else (b"\n", b"\r\n", b""):
        for way, spelling in ways:
            if len(way) + len(ending) == record.size and (ending or spelling == before):
                return way + ending, spelling
    for way, spelling in ways:
        if record.offset == 0 and len(BLANKS) + len(way) + 1 == record.size:
            return BLANKS + way + b"\n", spelling
    shortest, spelling = min(ways, key=lambda way: len(way[0]))
    missing = record.size - len(shortest) - 1
    padding = b" " * (missing if 0 < missing <= PADDING_MAX else 0)
    return shortest + padding + b"\n", spelling
