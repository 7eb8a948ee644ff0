"""Turn JETS records back into lines, with the values as the producer spelled them.

The encoder writes no spaces, and the keys in the order of the specification: `clk` first. With `repair`, it ends open
records, the last one first, at the latest `clk`, and writes a missing footer."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.jets.line import number_of
from tailrace.decoding.json_object import Texts, texts_of
from tailrace.decoding.lines import BYTE_ORDER_MARK, without_content
from tailrace.model.record import BEGIN_WORDS, FLAW_OF_ROW, Kind, Record

SHAPES = {
    "header": ("type", "version", "metadata"),
    "record": ("clk", "type", "name", "record_type", "id", "parent_id", "description", "data"),
    "record_end": ("clk", "type", "record_id", "id"),
    "event": ("clk", "type", "name", "record_id", "description", "data"),
    "annotation": ("type", "name", "record_id", "description", "data"),
    "footer": ("type", "capture_end_clk"),
}
"""The order of the keys in each type of line. Further keys follow in the order in which they are stored."""

OTHER = ("clk", "type")
FIRST = frozenset({"description", "data"})
"""The fields that the decoder moves to the front of the attributes."""

_TOTALS = {
    "total_records": Kind.BEGIN,
    "total_annotations": Kind.ANNOTATION,
    "total_events": Kind.INSTANT,
}


class JetsEncoder:
    def __init__(self, repair: bool) -> None:
        self.added: dict[str, int] = {}
        self._repair = repair
        # The JSON text of the id of each begun and not yet ended JETS record. The key is the value of the column `id`.
        self._open: dict[int, str] = {}
        self._clk = 0
        self._counts = dict.fromkeys(_TOTALS.values(), 0)
        self._closed = False

    def encode(self, record: Record, *, following: Record | None) -> bytes:  # noqa: ARG002 - a line stands alone
        if (record.kind, record.flaw, record.detail) == (Kind.SESSION, None, None) and (
            text := without_content(record.name or "", record.size)
        ):
            return text
        texts = texts_of(record.attributes)
        if record.kind in {Kind.BEGIN, Kind.END} and None not in {record.start, record.end}:
            begins, ends = _both(record, texts)
            texts = begins if record.kind == Kind.BEGIN else ends
        # Count records and remember open ones, so that `close` can end them and write a footer.
        if record.kind in self._counts:
            self._counts[Kind(record.kind)] += 1
        self._closed = record.kind == Kind.SESSION and record.name == "footer"
        if record.kind == Kind.BEGIN and record.id is not None:
            self._open[record.id] = texts.get("id") or _unsigned(record.id)
        elif record.kind == Kind.END and record.id is not None:
            self._open.pop(record.id, None)
        self._clk = max(self._clk, (record.end if record.kind == Kind.END else record.start) or 0)
        mark = BYTE_ORDER_MARK if record.flaw == "byte_order_mark" else b""
        line = msgspec.json.decode(texts["$line"]) if "$line" in texts else _line(record, texts)
        return mark + line.encode() + b"\n"

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


# Functions that compose the line of a record


def _line(record: Record, texts: Texts) -> str:
    """Return the line of a record. `texts` has the fields for which the table has no column."""
    name = {} if record.name is None else {"name": quote(record.name)}
    clk = record.end if record.kind == Kind.END else record.start
    own = {} if clk is None else {"clk": str(clk)}
    type_ = str(record.name)
    if record.kind == Kind.BEGIN:
        type_, own = "record", own | name | {"record_type": quote(str(record.category))}
        own |= _id("id", record.id, texts)
        own |= _id("parent_id", record.parent, texts) or {"parent_id": "null"}
    elif record.kind == Kind.END:
        type_ = "record_end"
        if not _names(texts.get("id"), record.id):
            own |= _id("record_id", record.id, texts)
    elif record.kind in {Kind.INSTANT, Kind.ANNOTATION}:
        type_ = "event" if record.kind == Kind.INSTANT else "annotation"
        own |= name | _id("record_id", record.parent, texts)
    elif record.name == "header":
        texts = texts_of(texts.get("producer"))
    elif record.name == "footer" and texts.get("totals", "").startswith("{"):
        totals = texts_of(texts.pop("totals"))
        texts |= totals
    fields = _ordered(type_, own, texts)
    return "{" + ",".join(f"{quote(key)}:{text}" for key, text in fields.items()) + "}"


def _id(key: str, id_: int | None, texts: Texts) -> Texts:
    """Return the field `key` with an id. Return no field if the id is None, or if the attributes already have the
    field."""
    return {} if id_ is None or key in texts else {key: _unsigned(id_)}


def _unsigned(id_: int) -> str:
    return str(id_ % 2**64)


def _ordered(type_: str, own: Texts, theirs: Texts) -> Texts:
    """Return the fields from columns (`own`) and attributes (`theirs`) in the order of the specification.

    The fields in `theirs` keep the producer's order. If this order contradicts the specification, return all of `own`
    before `theirs` instead."""
    fields = {"type": quote(type_)} | own | theirs
    shape = SHAPES.get(type_, OTHER)
    keys = [key for key in shape if key in fields]
    keys += [key for key in theirs if key not in shape]
    if [key for key in keys if key in theirs and key not in FIRST] != [
        key for key in theirs if key not in FIRST
    ]:
        keys = list(fields)
    return {key: fields[key] for key in keys}


# Functions that split stored attributes into the fields of lines


def _both(record: Record, texts: Texts) -> tuple[Texts, Texts]:
    """Return the attributes of a span's begin line and of its end line. Those of the end come first in `texts`."""
    changed = texts_of(texts.get(BEGIN_WORDS))
    changed.pop(FLAW_OF_ROW, None)
    flawed = list(texts).index(FLAW_OF_ROW) if FLAW_OF_ROW in texts else 0
    keys = [key for key in texts if key not in {BEGIN_WORDS, FLAW_OF_ROW}]
    names = [key for key in ("record_id", "id") if _names(texts.get(key), record.id)]
    # Fields of a begin line that have a column are not in the attributes, so attributes of these names come from the
    # end line. There is one exception: the attributes contain a `parent_id` of the begin line that is not an id.
    bad_parent = texts.get(FLAW_OF_ROW) == '"bad_parent"' and "parent_id" not in changed
    of_ids = {"id"} if bad_parent else {"id", "parent_id"}
    columns = [
        key
        for key in keys
        if key in {"name", "record_type"} or (key in of_ids and texts[key][0] != '"')
    ]
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
    """Return whether a JSON text is the string id from which `number_of` made the number `id_` in the id column."""
    return text is not None and text[0] == '"' and number_of(msgspec.json.decode(text)) == id_
