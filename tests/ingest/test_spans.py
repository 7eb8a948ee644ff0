"""A span is one row, with all that its begin and its end say; an open span is visible; no begin is lost."""

from __future__ import annotations

import json

import msgspec
import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.ingest.spans import DEPTH, END_OFFSET, ForgottenSpans, OpenSpan, Spans
from tailrace.ledger.references import References, ReferencesState
from tailrace.model.record import Record
from tailrace.rows.fields import ATTRIBUTES, FLAW, KIND, NAME, OFFSET
from tests.ingest.log import Log, rows, run
from tests.ingest.test_machine import of

HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'


def event(kind, *, id_=1, name=None, attributes=None, at=0, parent=None, offset=0):
    return Record(
        offset, 5, kind, "1", None, None, name, None, id_, parent, at, at, attributes, None, None
    )  # fmt: skip


def spans(open_=None, **limits):
    limits = LedgerConfig(**limits)
    references = References(limits, ReferencesState())
    return Spans(limits, references, {} if open_ is None else open_, ForgottenSpans())


def take(spans, *records):
    """The rows that records become now, as (kind, name, attributes, offset, end_offset, depth)."""
    columns, _ = spans.take([list(column) for column in zip(*records, strict=True)], 0)
    chosen = (KIND, NAME, ATTRIBUTES, OFFSET, END_OFFSET, DEPTH)
    return list(zip(*(columns[i] for i in chosen), strict=True))


def begun(spans):
    return [(id_, span.name) for id_, span in spans.begins()]


def test_a_span_is_one_row_that_says_where_both_records_stand():
    found = take(
        spans(),
        event("begin", name="n", attributes='{"a":1,"b":2}', offset=10),
        event("end", attributes='{"b":3}', offset=20, at=1),
    )
    assert found == [("span", "n", '{"b":3,"a":1,"$begin":{"b":2}}', 10, 20, 0)]


def test_a_begin_waits_for_an_end_in_a_later_chunk():
    held = spans()
    assert take(held, event("begin", name="n", offset=10)) == []
    assert take(held, event("instant", id_=7, offset=15)) == [
        ("instant", None, None, 15, None, None)
    ]
    assert take(held, event("end", offset=20)) == [("span", "n", None, 10, 20, 0)]
    assert begun(held) == []


def test_an_open_span_gets_one_row_of_its_own():
    held = spans()
    take(held, event("begin", id_=1, name="a"), event("begin", id_=2, name="b"))
    assert held.waiting
    assert begun(held) == [(1, "a"), (2, "b")]
    assert not held.waiting
    take(held, event("begin", id_=3, name="c"), event("end", id_=1))
    assert begun(held) == [(3, "c")]
    assert begun(held) == []


def test_a_begin_keeps_its_row_when_its_id_begins_again():
    held = spans()
    take(held, event("begin", name="first", offset=1), event("begin", name="second", offset=2))
    assert take(held, event("end", offset=3)) == [
        ("span", "second", '{"$flaw":"duplicate_id"}', 2, 3, 0)
    ]
    assert begun(held) == [(1, "first")]


def test_a_begin_that_is_evicted_keeps_its_row():
    held = spans()
    take(held, *(event("begin", id_=n, name=f"n{n}") for n in range(1, 9)))
    held.give_way(held.held // 2)
    assert held.evicted
    assert begun(held) == [(n, f"n{n}") for n in range(1, 9)]
    assert len(held.open) == 8 - held.evicted


def test_a_begin_whose_end_comes_after_a_restart_gets_no_second_row():
    open_ = {}
    first = spans(open_)
    take(first, event("begin", id_=1, name="told"))
    first.begins()
    take(first, event("begin", id_=2, name="new", attributes='{"x":1}', offset=9))
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(open_), type=dict[int, OpenSpan])
    second = spans(restored)
    assert second.waiting
    assert begun(second) == [(2, "new")]
    assert take(second, event("end", id_=2, offset=12)) == [("span", "new", '{"x":1}', 9, 12, 0)]


def test_flaws_are_counted_once_when_their_records_come():
    held = spans()
    columns = [list(c) for c in zip(event("begin", parent=1), event("end", at=-1), strict=True)]
    found, flaws = held.take(columns, 0)
    assert flaws == {"self_parent": 1, "end_before_start": 1}
    assert found[FLAW] == [None]
    (attributes,) = found[ATTRIBUTES]
    assert json.loads(attributes) == {
        "$flaw": "end_before_start",
        "$begin": {"$flaw": "self_parent"},
    }


def test_depth_counts_the_spans_around_one():
    held = spans()
    take(
        held,
        event("begin", id_=1),
        event("begin", id_=2, parent=1),
        event("begin", id_=3, parent=2),
    )
    take(held, event("begin", id_=5, parent=4), event("begin", id_=6, parent=5))
    ends = take(held, *(event("end", id_=n) for n in (3, 2, 1, 6, 5)))
    assert [end[-1] for end in ends] == [2, 1, 0, None, None]


@pytest.mark.parametrize("attributes", [None, "{}", '{"y":2}'])
def test_a_span_asks_for_its_name_as_its_begin_did(attributes):
    asks = '{"$name":"task:1","x":1}'
    ((_, name, found, *_),) = take(
        spans(), event("begin", attributes=asks), event("end", attributes=attributes)
    )
    assert name is None
    assert json.loads(found) == json.loads(asks) | json.loads(attributes or "{}")


# In the machine


def begin(id_):
    line = {"type": "record", "id": id_, "clk": id_, "name": f"n{id_}", "record_type": "task"}
    return json.dumps(line).encode() + b"\n"


def end(id_):
    return json.dumps({"type": "record_end", "record_id": id_, "clk": id_ + 5}).encode() + b"\n"


def kinds(found):
    return [(row["kind"], row["id"]) for row in found if row["id"] is not None]


def test_a_commit_shows_what_is_open_and_a_later_one_does_not_repeat_it():
    log = Log()
    session = log.open("jets")
    log.data(session, HEADER + begin(1) + begin(2) + end(2))
    log.data(session, begin(3))
    ingest, found = run(log.entries)
    assert kinds(found) == [("span", 2), ("begin", 1), ("begin", 3)]
    assert not ingest.batch.some
    log.data(session, end(3))
    _, found = run(log.entries[-1:], ingest)
    assert kinds(found) == [("span", 3)]
    assert (found[0]["offset"], found[0]["end_offset"]) == (
        len(HEADER + begin(1) + begin(2) + end(2)),
        len(HEADER + begin(1) + begin(2) + end(2) + begin(3)),
    )


def test_a_begin_alone_is_reason_enough_for_a_commit():
    log = Log()
    session = log.open("jets")
    log.data(session, HEADER)
    ingest, _ = run(log.entries)
    log.data(session, begin(1))
    ingest.apply(log.entries[-1])
    assert not len(ingest.batch)
    assert ingest.batch.some
    assert kinds(rows(ingest.batch.take())) == [("begin", 1)]


def test_a_restored_ingest_writes_the_begins_that_have_no_row():
    log = Log()
    session = log.open("jets")
    log.data(session, HEADER + begin(1))
    ingest, _ = run(log.entries)
    log.data(session, begin(2))
    ingest.apply(log.entries[-1])
    restored = Ingest.restore(ingest.snapshot())
    assert kinds(rows(restored.batch.take())) == [("begin", 2)]


def test_a_session_that_ends_leaves_rows_of_its_open_spans():
    log = Log()
    session = log.open("jets")
    log.data(session, HEADER + begin(1))
    log.close(session)
    _, found = run(log.entries)
    assert kinds(found) == [("begin", 1)]
    assert [row["name"] for row in of(found, "session")][-1] == "close"
