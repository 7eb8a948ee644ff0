"""Records as lists and in a block are the same to all that is asked of them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace.kernels import active
from tailrace.model.record import Kind, Record, SessionFacts
from tailrace.rows.records import BlockRecords, gathered, joined, listed, numbered
from tests.forms import examples
from tests.rows.packing import packed

ASKED = (
    "begin",
    "length",
    "kinds",
    "latest_end",
    "latest_tick",
    "times",
    "alone",
)
TIMES = st.integers(0, 100) | st.none()


def event(number, offset=0, stream="1", start=5, end=9):
    return Record(
        offset, 40, Kind.SPAN, stream, None, number, "n", None, None, None, start, end, None, None, None
    )  # fmt: skip


def statement(offset):
    return event(0, offset)._replace(kind=Kind.SESSION, counter=None, detail=SessionFacts(epoch=7))


@st.composite
def events(draw):
    number = draw(st.integers(1, 40))
    streams = st.sampled_from(["1", "2"])
    return [event(n, 40 * n, draw(streams), draw(TIMES), draw(TIMES)) for n in range(number)]


def records(chunk):
    return [part.record(row) for part in chunk for row in range(part.rows)]


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
@examples(100)
@given(events(), st.data())
def test_both_forms_answer_alike(made, data):
    (lists,) = listed(made)
    block = BlockRecords(packed(made))
    assert [getattr(block, name) for name in ASKED] == [getattr(lists, name) for name in ASKED]
    assert set(block.streams) == set(lists.streams)
    assert (block.packed, lists.packed) == (len(made), 0)
    begin, stop = (data.draw(st.integers(0, len(made))) for _ in range(2))
    for form in (lists, block):
        assert records([form]) == made
        assert records(form.slice(begin, stop)) == made[begin:stop]
        assert records([form.moved(7)]) == [each._replace(offset=each.offset + 7) for each in made]
        assert form.event_from(0) == numbered([form])[0]
        assert list(form.begin_ids()) == []
        assert [form.behind(row) for row in range(len(made))] == [*made[1:], None]
    assert numbered([block]) == numbered([lists])
    assert records([joined([lists, block])]) == made * 2


def test_what_decoders_yield_keeps_its_order():
    made = [event(n, 40 * n) for n in range(6)]
    assert gathered([]) == listed([]) == []
    chunk = gathered([*made[:2], packed(made[2:4]), packed(made[4:5]), made[5]])
    assert [part.rows for part in chunk] == [2, 2, 1, 1]
    assert records(chunk) == made


def test_rows_of_records_that_are_processed_alone_are_found():
    made = [event(0), event(1, 40), statement(80), event(2, 120), event(3, 160)]
    (lists,) = listed(made)
    assert lists.alone == [2]
    assert lists.event_from(2) == numbered(listed(made[3:4]))[0]


def test_rows_are_picked_in_their_order():
    made = [event(n) for n in range(5)]
    (lists,) = listed(made)
    for rows in ([], [2], [1, 2, 3], [0, 2, 4]):
        assert records(lists.pick(rows)) == [made[row] for row in rows]
