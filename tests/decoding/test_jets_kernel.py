"""Test the kernel of JETS: which lines it reads, and its limits. `test_kernels.py` has the tests for all kernels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from benchmarks.spellings import OF_FORMAT, SPELLINGS
from tailrace import kernels
from tailrace.decoding.formats.jets import FORMAT
from tailrace.decoding.formats.jets.decoder import JetsDecoder
from tailrace.decoding.formats.jets.line import read_line, read_usual
from tailrace.decoding.lines import split_lines
from tests.decoding.blockwise import records
from tests.decoding.jets_lines import FOOTER, HEADER
from tests.decoding.pair import Pair, rows

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)
SPELLED = SPELLINGS | OF_FORMAT["jets"]
EVENT = b'{"clk":5,"type":"event","name":"e","record_id":1,"description":"d"}\n'


def both(data, limit=1 << 20):
    """Return what the decoder with the kernel returns. The Python decoder must return the same records."""
    return Pair("jets", limit).feed(data)


def event(**fields):
    return line({"clk": 5, "type": "event", "name": "e", "record_id": 1} | fields)


def line(fields):
    return json.dumps(fields).encode() + b"\n"


def _slot(key):
    """Return the first slot of a key in `key_set`."""
    found = 2166136261
    for byte in key.encode():
        found = (found ^ byte) * 16777619 & 0xFFFFFFFF
    return (found ^ found >> 15) & 1023


COLLIDING = [key for key in map("k{}".format, range(40_000)) if _slot(key) == 0][:17]
"""More keys with one slot than `key_set` compares with one another."""

USUAL = [
    EVENT,
    b'{"type":"record","clk":-9223372036854775807,"id":18446744073709551615,"record_type":"T","name":"\xc3\xa9"}\n',
    b'{"clk":0,"type":"record","name":"","record_type":"","id":1,"parent_id":null,"data":{"a":[1,-2.5e+3,true,{}]}}\n',
    b'{"clk":9223372036854775807,"type":"record_end","record_id":1}\n',
    b'{ "clk" : 1 , "type" : "record_end" , "id" : 1 , "x" : "\\u00e9" } \r\n',
    b'{"type":"annotation","name":"n","record_id":0,"data":null,"clk":7}\n',
    b'{"type":"event","clk":1,"name":"e","record_id":1,"description":"\\"\\\\\\n","parent_id":4,"_vendor":[[1],{"k":"\\ud83d"}]}\n'
    .replace(b"\\ud83d", b"\\u0041"),
    event(description="é/\x00\"😀", name="é", x="😀"),
    event(record_id=""),
    EVENT.replace(b":1,", b':"' + "é".encode() * 64 + b'",'),
    b'{"type":"record","clk":1,"id":"a","parent_id":"b","record_type":"T","data":1,"name":"n","x":2,"description":"d"}\n',
    b'{"type":"record_end","clk":1000,"id":"a"}\n',
    b'{"type":"annotation","name":"n","record_id":"a","data":1}\n', b'{"type":"annotation","name":"n","record_id":2e0,"data":1}\n',
    event(clk=1.0, record_id=1e3), event(record_id=-0.0), EVENT.replace(b":1,", b":15E-1,").replace(b"15E-1", b"150E-1"),
    event(record_id="r" * 128), event(record_id="r" * 129), event(record_id="r" * 1000), EVENT.replace(b":1,", rb':"\u0061\/b",'),
    EVENT.replace(b"event", b"\\u0065vent"), EVENT[:-2] + b',"\\u0078":1}\n', EVENT.replace(b"name", b"n\\u0061me"),
    event(**{f"k{i}": 1 for i in range(40)}), event(**{f"k{i}": 1 for i in range(256)}), EVENT[:-2] + b',"x":' + b"[" * 126 + b"]" * 126 + b"}\n",
    b'{"type":"record","clk":1,"id":"a","record_type":"T"}\n', b'{"type":"event","clk":1,"record_id":"a"}\n',
    EVENT.replace(b'"e"', rb'"\/\u001F"').replace(b'"d"', rb'"\/\u000a\u0022\u005c\u007f\b"'),
]  # fmt: skip


@pytest.mark.parametrize("one", USUAL)
def test_what_is_usual_takes_the_kernel(one):
    assert rows(both(HEADER + one)) == 1


@pytest.mark.parametrize(
    "unusual",
    [
        b'{"clk":-9223372036854775808,"type":"record_end","record_id":1}\n', event(record_id='r"'), event(clk=2**63),
        event(clk=1.5), event(clk=1e16), event(record_id=2**64), event(record_id=-1), event(record_id=-1.0), event(name="\ud83d"),
        event(description=None), event(**{"$x": 1}), event(type="note"), event(**{f"k{i}": 1 for i in range(257)}),
        event(**{f"k{i}": 1 for i in range(7)})[:-2] + b',"k0":2}\n', event(**{f"k{i}": 1 for i in range(8)})[:-2] + b',"k0":2}\n',
        event(**{f"k{i}": 1 for i in range(200)})[:-2] + b',"k199":2}\n', event(**{f"k{i}": 1 for i in range(200)})[:-2] + rb',"\u006b7":2}' + b"\n",
        event(**dict.fromkeys(COLLIDING, 1)),
        event(x=float("nan")), EVENT[:-2] + b',"clk":5}\n', EVENT[:-2] + b',"x":1,"x":2}\n', EVENT[:-2] + b',"x":1,}\n',
        EVENT[:-2] + b',"\\u0078":1,"x":2}\n', EVENT[:-2] + b',"\\u0024x":1}\n', EVENT[:-2] + b',"x":"\\ud800"}\n', EVENT[:-2] + b',"x":"\xff"}\n',
        EVENT[:-2] + b',"x":' + b"[" * 127 + b"]" * 127 + b"}\n", b'{"type":"annotation","name":"n","record_id":1}\n',
        b'{"clk":1,"type":"record_end","record_id":1,"id":1}\n', b"{}\n", b"\0" + EVENT, HEADER,
        b'{"clk":1,"type":"record","record_type":"T","id":1}\n',
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python_alone(unusual):
    units = both(HEADER + EVENT + unusual + EVENT)
    assert rows(units) == 2
    assert len(records(units)) >= 4


SPELLABLE = [
    each.decode().strip()
    for each in [
        *USUAL[:4], event(record_id="r"), *[EVENT] * 90,
        b'{"type":"record","clk":1,"id":"a","parent_id":"b","record_type":"T","data":1,"name":"n","x":2,"description":"d"}',
        b'{"type":"record","clk":1,"parent_id":"b","id":"a","record_type":"T"}', b'{"type":"record_end","clk":1000,"id":"a"}',
        b'{"type":"record_end","clk":1,"id":7}', b'{"type":"annotation","name":"n","record_id":8,"data":{"a":1},"clk":7}',
    ]
]  # fmt: skip
"""Usual lines of each type and dialect, most of them alike, so that a spelling of the others cannot hide behind theirs."""


@pytest.mark.parametrize("spelling", SPELLED)
def test_no_spelling_of_a_usual_line_leaves_the_kernel(spelling):
    assert rows(both(HEADER + SPELLED[spelling](SPELLABLE))) == len(SPELLABLE)


@pytest.mark.parametrize("spelling", SPELLED)
def test_no_spelling_of_a_usual_line_is_slow_in_python(spelling):
    data = SPELLED[spelling](SPELLABLE)
    offset = 0
    for record, each in zip(read_usual(0, data), split_lines(data), strict=True):
        assert record == read_line(offset, each)
        offset += len(each)


def test_lines_outside_a_session_are_left_to_python():
    assert rows(both(EVENT)) == 0
    assert rows(both(HEADER + FOOTER + EVENT)) == 0
    assert rows(both(EVENT + EVENT)) == 1


def test_a_line_over_the_limit_is_left_to_python():
    assert rows(both(HEADER + EVENT * 2, len(EVENT))) == 2
    assert rows(both(HEADER + EVENT * 2, len(EVENT) - 1)) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=8,
)
INTEGERS = st.integers(-(2**64), 2**65)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans(), INTEGERS, INTEGERS)
def test_any_fields_are_the_same(fields, ascii_, clk, id_):
    given_ = {"clk": clk, "type": "event", "name": "e", "record_id": id_} | fields
    text = json.dumps(given_, ensure_ascii=ascii_)
    both(HEADER + text.encode(errors="surrogatepass") + b"\n" + EVENT)


def test_unusual_lines_one_after_the_other_are_read_together(monkeypatch):
    """The kernel must not slow down the reading of lines that it cannot read."""
    reads, feed = [], JetsDecoder.feed
    data = HEADER + event(record_id="rec_1") * 20_000
    expected = JetsDecoder(1 << 20).feed(data)
    monkeypatch.setattr(
        JetsDecoder, "feed", lambda self, part: reads.append(part) or feed(self, part)
    )
    assert records(FORMAT.decoder(1 << 20, None).blocks(data)) == expected
    assert len(reads) < len(data) / 10_000


def test_more_attributes_than_a_block_takes_are_several_blocks():
    units = both(HEADER + event(data="x" * 1900) * 1200)
    assert rows(units) == 1200
    assert len(units) == 4


def test_more_names_than_are_remembered_begin_new_lists():
    """Earlier blocks keep their names."""
    record = b'{"clk":5,"type":"record","name":"n%d","record_type":"t%d","id":%d}\n'
    units = both(HEADER + b"".join(record % (i, i, i) for i in range(20_000)))[1:]
    assert rows(units) == 20_000
    assert len({id(unit.name.texts) for unit in units}) > 1
    assert len({id(unit.category.texts) for unit in units}) > 2
    assert all(unit.name.known <= len(unit.name.texts) <= 8192 for unit in units)
    assert all(unit.category.known <= len(unit.category.texts) <= 1024 for unit in units)


def test_long_names_are_bounded_by_their_bytes():
    data = b"".join(event(name=f"{i}" + "n" * 4000) for i in range(1000))
    units = both(HEADER + data)[1:]
    assert rows(units) == 1000
    assert all(sum(map(len, unit.name.texts)) <= 2**20 for unit in units)
    assert rows(both(HEADER + event(name="n" * 2**20) + EVENT, 1 << 21)) == 1


def test_columns_without_values_are_none():
    _, block = both(HEADER + EVENT * 9)
    assert (block.category, block.id, block.end) == (None, None, None)
    assert block.start.valid is block.parent.valid is block.name.valid is None
    _, block = both(HEADER + b'{"clk":9,"type":"record_end","record_id":1}\n' * 9)
    assert (block.name, block.category, block.parent, block.start, block.attributes) == (None,) * 5
