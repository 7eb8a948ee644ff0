"""Write records of JETS as lines again.

The table keeps what a line says, with the producer's own text of every value, and not how keys and spaces were arranged.
Known writers arrange them in few ways: `clk` first and no spaces (dialect C), or `type` first, with the spaces of Python's
`json` or without them (A and B). The encoder takes the way that has as many bytes as the line had, so the lines of these
writers come out as they were. In any other line, spaces before the newline make up for what is missing.

To repair is to end the records that are open, the last one first, at the latest `clk`, and to write a footer where none
came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.jets.line import BYTE_ORDER_MARK, number_of
from tailrace.model.record import BEGIN_WORDS, FLAW_OF_ROW, Kind, Record

Texts = dict[str, str]
"""Keys and the JSON texts of their values, in order."""

PADDING_MAX = 65_536
"""The most spaces that fill up a line. A larger distance to the next record means that whole lines are gone."""

SHAPES = {
    "header": ("type", "version", "metadata"),
    "record": ("clk", "type", "name", "record_type", "id", "parent_id", "description", "data"),
    "record_end": ("clk", "type", "record_id", "id"),
    "event": ("clk", "type", "name", "record_id", "description", "data"),
    "annotation": ("type", "name", "record_id", "description", "data"),
    "footer": ("type", "capture_end_clk"),
}
"""The order of keys in each type of line, where `clk` comes first. Other keys follow in their own order."""

OTHER = ("clk", "type")
FIRST = frozenset({"description", "data"})
"""The fields that a decoder moves to the front of the attributes."""

_TOTALS = {
    "total_records": Kind.BEGIN,
    "total_annotations": Kind.ANNOTATION,
    "total_events": Kind.INSTANT,
}
_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JetsEncoder:
    """The encoder of one session."""

    def __init__(self, repair: bool) -> None:
        self.added: dict[str, int] = {}
        self._repair = repair
        self._clk_first = True
        self._spaced = False  # whether the last line has the spaces of Python's `json`
        self._open: dict[int, str] = {}  # the ids of open records, and their texts
        self._clk = 0
        self._counts = dict.fromkeys(_TOTALS.values(), 0)
        self._closed = False
        self._blank_size = 0
        self._blank_to = -1  # where blank lines end; behind them the last line has no newline

    def encode(self, record: Record, *, last: bool) -> bytes:
        texts = _members(record.attributes)
        after_blank = record.offset == self._blank_to
        if record.kind == Kind.SESSION and record.name == "blank_lines" and record.flaw is None:
            self._blank_to, self._blank_size = record.offset + record.size, record.size
            return (
                b" " * record.size if last and after_blank else _fitted([b""], record.size, b"\n")
            )
        if record.kind in {Kind.BEGIN, Kind.END} and None not in {record.start, record.end}:
            begins, ends = _both(record, texts)
            texts = begins if record.kind == Kind.BEGIN else ends
        self._note(record, texts)
        mark = BYTE_ORDER_MARK if record.flaw == "byte_order_mark" else b""
        if "$line" in texts:
            ways = [mark + msgspec.json.decode(texts["$line"]).encode()]
        else:
            ways = [mark + line.encode() for line in self._ways(record, texts)]
        likely = ways[int(self._spaced) :: 2] or ways
        if last and (after_blank or min(map(len, ways)) >= record.size > 0):
            return _fitted(ways, record.size, b"")
        # A line may have been read before its newline came. Spaces before a line are no sign of that.
        spaces = after_blank and self._blank_size > len(b"\r\n")
        written = _fitted(ways, record.size, b"\n", bare=() if spaces else likely)
        self._spaced = written.rstrip() in ways[1::2]
        return written

    def close(self) -> bytes:
        if not self._repair:
            return b""
        lines = [
            f'{{"clk":{self._clk},"type":"record_end","record_id":{id_}}}'
            for id_ in reversed(self._open.values())
        ]
        if lines:
            self.added["record_end"] = len(lines)
        if not self._closed:
            totals = ",".join(f'"{key}":{self._counts[kind]}' for key, kind in _TOTALS.items())
            lines.append(f'{{"type":"footer","capture_end_clk":{self._clk},{totals}}}')
            self.added["footer"] = 1
        return "".join(f"{line}\n" for line in lines).encode()

    def _note(self, record: Record, texts: Texts) -> None:
        """Remember what a repair must know, and in which order the writer puts keys."""
        if record.kind in self._counts:
            self._counts[Kind(record.kind)] += 1
            self._clk_first = "description" in texts and texts.keys().isdisjoint(
                {"id", "record_id"}
            )
        self._closed = record.kind == Kind.SESSION and record.name == "footer"
        if record.kind == Kind.BEGIN and record.id is not None:
            self._open[record.id] = texts.get("id") or _unsigned(record.id)
        elif record.kind == Kind.END and record.id is not None:
            self._open.pop(record.id, None)
        clk = record.end if record.kind == Kind.END else record.start
        self._clk = max(self._clk, clk or 0)

    def _ways(self, record: Record, texts: Texts) -> Iterator[str]:
        """Yield the ways to write a line, the likeliest first."""
        for type_, own, theirs in _lines(record, texts):
            ordered = _ordered(type_, own, theirs, clk_first=self._clk_first)
            yield _object(ordered, ",", ":")
            yield _object(ordered, ", ", ": ")


def _fitted(ways: list[bytes], size: int, newline: bytes, *, bare: Sequence[bytes] = ()) -> bytes:
    """Return the first of these lines that has the size, newline included, or of `bare` without a newline; else the
    shortest, made as long as that.

    `bare` has only lines spelled as the line before: another spelling without its newline may be as long as a line with
    spaces around it, and would join two lines."""
    for ending in (newline, b"\r" + newline):
        for line in ways:
            if len(line) + len(ending) == size:
                return line + ending
    for line in bare:
        if len(line) == size:
            return line
    shortest = min(ways, key=len)
    missing = size - len(shortest) - len(newline)
    return shortest + b" " * (missing if 0 < missing <= PADDING_MAX else 0) + newline


# Lines


def _lines(record: Record, texts: Texts) -> Iterator[tuple[str, Texts, Texts]]:
    """Yield a line's type, the fields that have columns, and the others, in each of the ways in which a producer may
    have written it."""
    name = {} if record.name is None else {"name": quote(record.name)}
    if record.kind == Kind.BEGIN:
        own = _clk(record.start) | name | {"record_type": quote(str(record.category))}
        own |= _id("id", record.id, texts) | _id("parent_id", record.parent, texts)
        yield "record", own, texts
        if "parent_id" not in own | texts:
            yield "record", own | {"parent_id": "null"}, texts
    elif record.kind == Kind.END:
        told = "record_id" in texts or _names(texts.get("id"), record.id)
        for key in ("record_id",) if "id" in texts else ("record_id", "id"):
            own = {} if told else _id(key, record.id, texts)
            yield "record_end", _clk(record.end) | own, texts
    elif record.kind == Kind.INSTANT:
        yield "event", _clk(record.start) | name | _id("record_id", record.parent, texts), texts
    elif record.kind == Kind.ANNOTATION:
        yield "annotation", name | _id("record_id", record.parent, texts), texts
    elif record.kind == Kind.SESSION:
        yield str(record.name), _clk(record.start), _of_session(record, texts)


def _of_session(record: Record, texts: Texts) -> Texts:
    """Return the fields of a header, a footer or a line of another type, in their order."""
    if record.name == "header":
        return _members(texts.get("producer"))
    if record.name == "footer":
        rest = {key: text for key, text in texts.items() if key != "totals"}
        return rest | _members(texts.get("totals"))
    return texts


def _clk(clk: int | None) -> Texts:
    return {} if clk is None else {"clk": str(clk)}


def _id(key: str, id_: int | None, texts: Texts) -> Texts:
    """Return a field with an id, unless the attributes have the field."""
    return {} if id_ is None or key in texts else {key: _unsigned(id_)}


def _unsigned(id_: int) -> str:
    return str(id_ % 2**64)


def _ordered(type_: str, own: Texts, theirs: Texts, *, clk_first: bool) -> Texts:
    """Return all fields in their writer's order, unless that would change the order of those without columns."""
    fields = {"type": quote(type_)} | own | theirs
    shape = SHAPES.get(type_, OTHER)
    if not clk_first:
        shape = ("type", "clk", *(key for key in shape if key not in OTHER))
    keys = [key for key in shape if key in fields]
    keys += [key for key in theirs if key not in shape]
    if [key for key in keys if key in theirs and key not in FIRST] != [
        key for key in theirs if key not in FIRST
    ]:
        keys = list(fields)
    return {key: fields[key] for key in keys}


def _object(texts: Texts, comma: str, colon: str) -> str:
    return "{" + comma.join(f"{quote(key)}{colon}{text}" for key, text in texts.items()) + "}"


# Attributes


def _members(text: str | None) -> Texts:
    """Return the members of an object, which the decoder has written or read before."""
    return {} if text is None else {key: str(raw, "utf-8") for key, raw in _read(text).items()}


def _both(record: Record, texts: Texts) -> tuple[Texts, Texts]:
    """Return the attributes of the lines that begin and that end a record, given those of its span.

    Those of the end come first (`normalize.united`), and a line's description and data come before its other fields. A
    flaw stands in front of the attributes that it came with."""
    changed = _members(texts.get(BEGIN_WORDS))
    changed.pop(FLAW_OF_ROW, None)
    flawed = list(texts).index(FLAW_OF_ROW) if FLAW_OF_ROW in texts else 0
    keys = [key for key in texts if key not in {BEGIN_WORDS, FLAW_OF_ROW}]
    names = [key for key in ("record_id", "id") if _names(texts.get(key), record.id)]
    columns = [
        key
        for key in keys
        if key in {"name", "record_type"} or (key in {"id", "parent_id"} and texts[key][0] != '"')
    ]  # a line that begins a record would have them in its columns
    last = max((keys.index(key) for key in (*names[:1], *changed, *columns)), default=-1)
    last = max(last, flawed - 1)
    others = False
    for at in range(last + 1, len(keys)):
        if keys[at] in FIRST and others:
            last, others = at - 1, False
        others = others or keys[at] not in FIRST
    ends = {key: texts[key] for key in keys[: last + 1]}
    begins = changed | {key: texts[key] for key in keys if key not in ends}
    if "id" in names and "id" not in begins:
        begins = {"id": texts["id"]} | begins
    return begins, ends


def _names(text: str | None, id_: int | None) -> bool:
    """Return whether a text is a string that stands for an id."""
    return text is not None and text[0] == '"' and number_of(msgspec.json.decode(text)) == id_
