"""Test the kernel of Heph: which packets it reads, and its limits. `test_kernels.py` has the tests for all kernels."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace import kernels
from tailrace.rows.block import Block
from tests.decoding.blockwise import records
from tests.decoding.pair import Pair, rows
from tests.decoding.test_heph import attribute, attribute_lists, event, f64, string, u64

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)


def both(data, limit=1 << 20):
    """Return what the decoder with the kernel returns. The Python decoder must return the same records."""
    return Pair("heph", limit).feed(data)


@given(st.lists(attribute_lists, max_size=5))
def test_any_attributes_are_the_same(lists):
    both(b"".join(event(b"d", b"".join(attribute(*a) for a in one)) for one in lists))


@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.text(max_size=40), max_size=5))
def test_any_names_and_strings_are_the_same(raws, texts):
    for text in [*raws, *(text.encode(errors="surrogatepass") for text in texts)]:
        both(event(text))
        both(event(b"d", string(b"s") + b"\x04" + string(text)))
        both(event(b"d", string(text) + b"\x04" + string(b"s")))


@given(f64, u64)
def test_any_number_is_the_same(number, bits):
    float_ = attribute("f", "f64", number)
    both(event(b"d", float_ + string(b"u") + b"\x01" + bits.to_bytes(8, "big")))
    both(event(b"d", string(b"i") + b"\x02" + bits.to_bytes(8, "big")))
    both(event(b"d", string(b"f") + b"\x03" + bits.to_bytes(8, "big")))


@given(st.integers(1, 40 * 50), st.data())
def test_an_event_that_a_cut_tears_begins_the_next_block(cut, drawn):
    """Otherwise the event would be a single record between two blocks, which all later stages would process as a
    separate part.
    """
    data = b"".join(event(b"event %2d" % i) for i in range(80))
    pair = Pair("heph")
    pair.feed(data[:cut])
    if drawn.draw(st.booleans()):  # after a restart in between
        pair.exchange()
    assert [type(unit) for unit in pair.feed(data[cut:])] == [Block]


def test_what_is_usual_takes_the_kernel():
    fields = [
        attribute("u", "u64", 2**64 - 1), attribute("i", "i64", 5), attribute("j", "i64", -5), attribute("", "f64", 0.5),
        attribute('quote"\\', "string", "\x00\x1f\n\"\\ é 電 😀"),
    ]  # fmt: skip
    counter = attribute("tailrace.counter", "u64", 1)
    usual = [
        event(b""),
        event("é".encode(), b"".join(fields)),
        event(b"c", counter),
        event(b"d", end=2**63 - 1),
    ]
    assert rows(both(b"".join(usual))) == len(usual)


@pytest.mark.parametrize(
    "unusual",
    [
        event(b"\xff"), event(b"d", start=2**63), event(b"d", attribute("$n", "u64", 1)),
        event(b"d", attribute("n", "u64", 1) * 2), event(b"d", attribute("n", "u64[]", [1])),
        event(b"d", attribute("n", "f64", float("nan"))), event(b"d", attribute("n" * 256, "u64", 1)),
        event(b"d", attribute("n", "u64", 1)[:-1]), event(b"d", b"\x00"), event(b"d" * 4096),
        event(b"d", b"".join(attribute(f"n{i}", "u64", i) for i in range(65))),
        event(b"d", string(b"n") + b"\x05" + bytes(8)),
    ],
    ids=[
        "name", "time", "dollar", "twice", "array", "nan", "long name", "torn", "one byte", "long", "many", "type",
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python_alone(unusual):
    units = both(event(b"a") + unusual + event(b"b"))
    assert rows(units) == 2
    assert len(records(units)) >= 3


def test_more_attributes_than_a_block_takes_are_several_blocks():
    long = event(b"d", b"".join(attribute(n, "string", "\x01" * 1900) for n in "ab"))
    units = both(long * 200)
    assert rows(units) == 200
    assert all(isinstance(unit, Block) for unit in units)
    assert len(units) > 2


def test_more_names_and_streams_than_are_remembered_begin_new_lists():
    """Earlier blocks keep their names and streams."""
    data = b"".join(event(b"name %d" % i, stream=i) for i in range(20_000))
    units = both(data)
    assert rows(units) == 20_000
    assert len({id(unit.name.texts) for unit in units}) > 2
    assert len({id(unit.stream.texts) for unit in units}) > 1
    assert all(unit.name.known <= len(unit.name.texts) <= 4096 for unit in units)
    assert all(unit.stream.known <= len(unit.stream.texts) <= 8192 for unit in units)


def test_long_names_are_bounded_by_their_bytes():
    data = b"".join(event(b"%d" % i + b"n" * 4000) for i in range(1000))
    units = both(data)
    assert rows(units) == 1000
    assert all(sum(map(len, unit.name.texts)) <= 2**20 for unit in units)


def test_where_no_event_has_attributes_there_is_no_column():
    (block,) = both(event(b"d") * 9)
    assert block.attributes is None
