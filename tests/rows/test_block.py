"""Blocks as lists and as records."""

from __future__ import annotations

from array import array

from hypothesis import given, strategies as st

from tailrace.model.record import Kind, Record
from tailrace.rows.block import Block, Integers, Texts, Words
from tests.rows.packing import packed

BLOCK = Block(
    rows=3,
    length=130,
    offset=Integers(array("q", [10, 52, 96]).tobytes()),
    size=Integers(array("q", [42, 44, 44]).tobytes()),
    kind=Words(array("i", [0, 1, 0]).tobytes(), ["span", "counter"], 2),
    stream=Words(array("i", [0, 0, 0]).tobytes(), ["7"], 1),
    substream=Integers(array("q", [0, -1, 5]).tobytes()),
    counter=Integers(array("q", [0, 1, 2]).tobytes()),
    name=Words(array("i", [1, 0, 0]).tobytes(), ["läuft", "step"], 2, bytes([0b101])),
    category=None,
    id=None,
    parent=None,
    start=Integers(array("q", [1, 0, 3]).tobytes(), bytes([0b101])),
    end=Integers(array("q", [2, 3, 2**63 - 1]).tobytes()),
    attributes=Texts(
        array("i", [0, 10, 10, 19]).tobytes(), '{"a":"ä"}{"b":1.5}'.encode(), bytes([0b101])
    ),
)


def test_records_have_the_values_of_their_rows():
    assert list(BLOCK.records()) == [
        Record(10, 42, Kind.SPAN, "7", 0, 0, "step", None, None, None, 1, 2, '{"a":"ä"}', None, None),
        Record(52, 44, Kind.COUNTER, "7", -1, 1, None, None, None, None, None, 3, None, None, None),
        Record(
            96, 44, Kind.SPAN, "7", 5, 2, "läuft", None, None, None, 3, 2**63 - 1, '{"b":1.5}', None, None
        ),
    ]  # fmt: skip


def test_buffers_may_be_longer_than_the_rows():
    longer = BLOCK._replace(end=Integers(array("q", [2, 3, 4, 5, 6]).tobytes()))
    assert longer.column(longer.end) == [2, 3, 4]


def test_a_column_without_values_is_a_list_of_nothing():
    assert BLOCK.column(BLOCK.category) == [None, None, None]
    nameless = BLOCK._replace(name=Words(bytes(12), [], 0, bytes(1)))
    assert nameless.column(nameless.name) == [None, None, None]


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.none() | st.sampled_from(["", "a", "läuft", "step"])
RECORD = st.builds(
    Record,
    offset=st.integers(0, 2**40), size=st.integers(1, 2**20), kind=st.sampled_from(["span", "counter"]),
    stream=st.sampled_from(["1", "2", ""]), substream=st.none() | INT64, counter=st.none() | INT64,
    name=TEXT, category=TEXT, id=st.none() | INT64, parent=st.none() | INT64,
    start=st.none() | INT64, end=st.none() | INT64, attributes=TEXT, flaw=st.none(), detail=st.none(),
)  # fmt: skip


@given(st.lists(RECORD, min_size=1, max_size=30))
def test_packed_records_are_the_same_again(records):
    assert list(packed(records).records()) == records


@given(st.lists(RECORD, min_size=1, max_size=30), st.data())
def test_flaws_stand_in_the_attributes_of_a_block_and_not_of_its_records(records, data):
    flaws, some = st.sampled_from([None, "backslash", "odd"]), st.sampled_from([None, '{"a":1}'])
    records = [one._replace(flaw=data.draw(flaws), attributes=data.draw(some)) for one in records]
    assert list(packed(records).records()) == records


def test_each_column_is_a_list_of_its_own():
    """Writing into a column changes no other."""
    columns = BLOCK.columns()
    assert len({id(column) for column in columns}) == len(Record._fields)


@given(st.lists(RECORD, min_size=1, max_size=30), st.data())
def test_some_rows_have_the_values_of_all(records, data):
    block, rows = packed(records), st.lists(st.integers(0, len(records) - 1), max_size=5)
    for values in block[2:]:
        if values is not None:
            some, every = data.draw(rows), block.column(values)
            assert list(values.of_rows(some)) == [every[row] for row in some]
