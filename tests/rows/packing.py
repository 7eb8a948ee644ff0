"""Pack records into a block, in Python: what a kernel would yield for them."""

from __future__ import annotations

from array import array
from itertools import accumulate

from tailrace.model.record import Record
from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.rows.fields import with_flaw


def packed(records: list[Record]) -> Block:
    """Return a block of records without details. The records must directly follow each other."""
    columns = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    assert not any(columns["detail"])
    flaws = columns["flaw"]
    attributes = list(map(with_flaw, columns["attributes"], flaws))
    words = {name: _words(columns[name]) for name in ("kind", "stream", "name", "category")}
    integers = {
        name: _integers(columns[name])
        for name in ("substream", "counter", "id", "parent", "start", "end")
    }
    return Block(
        rows=len(records),
        length=sum(columns["size"]),
        offset=Integers.of(columns["offset"]),
        size=Integers.of(columns["size"]),
        attributes=_texts(attributes),
        flaw=_words(flaws) if any(flaws) else None,
        **words,
        **integers,
    )


def _integers(values):
    return None if set(values) == {None} else Integers.of(values)


def _words(values):
    texts = list(dict.fromkeys(value for value in values if value is not None))
    if not texts:
        return None
    codes = [0 if value is None else texts.index(value) for value in values]
    return Words(array("i", codes).tobytes(), texts, len(texts), Integers.of(_marked(values)).valid)


def _marked(values):
    return [None if value is None else 0 for value in values]


def _texts(values):
    if set(values) == {None}:
        return None
    data = [b"" if value is None else value.encode() for value in values]
    ends = array("i", accumulate(map(len, data), initial=0))
    return Texts(ends.tobytes(), b"".join(data), Integers.of(_marked(values)).valid)
