"""Spans of blocks are the same rows, flaws and states as those of lists."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace.kernels import active
from tailrace.model.record import Kind, Record
from tests.forms import examples
from tests.rows.packing import packed

if active():
    from tests.ingest.span_matching import Sides

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")

TEXTS = st.sampled_from([None, "", "n", "näme"])
ATTRIBUTES = [
    None, "{}", '{"a":1}', '{"a":2,"b":{"c":[1,"a"]}}', '{"c":"\\"a\\":"}', '{"b":"a","é":"c","d":null}',
    '{"$name":"task:1","$late":{"x":"k"}}', '{"e":"x y","f":[{"a":1}]}',
    # An end's, and the same with more members
    '{"m":3}', '{"m":3,"r":4}', '{"m":31}', '{"m":3,"r":4,"x":5}', '{"m":3,"m":5}', '{"m":3,"é":{"a,":[1,2],"b":","}}',
    '{"m":3,"r":"}"}', '{"m":3,"r":"\\u0041"}', '{"n":{"m":3},"o":1}', '{"n":{"m":3},"o":1,"m":3}', '{"$late":{"x":"k"}}',
    '{"$late":{"x":"k"},"m":3}', '{"$name":"m:1","m":3}', '{"$name":"m:1","m":3,"r":4}', '{"m":3,"r":[1,2]}', '{"m":3,"r":{}}',
]  # fmt: skip
TICKS = st.integers(0, 9) | st.sampled_from([None, -(2**63), 2**63 - 1])


@st.composite
def histories(draw):
    """Chunks of records whose ids mostly follow each other, as most ends do their begins."""
    chunks, open_, last, offset = [], [], draw(st.sampled_from([0, 0, 41, 2**63 - 30, -3])), 0
    for _ in range(draw(st.integers(1, 4))):
        chunk = []
        for _ in range(draw(st.sampled_from([3, 20, 60]))):
            kind = draw(st.sampled_from(["begin", "begin", "end", "end", "instant", "counter"]))
            odd = draw(st.integers(0, 30))
            id_ = parent = None
            start, end = draw(TICKS), None
            inner = open_[-1] if open_ and odd % 3 else None
            if kind == "begin":
                last = min(last + 1 + (odd == 1), 2**63 - 1)
                id_, parent = last - (odd == 2), inner
                open_.append(id_)
            elif kind == "end":
                start, end = None, draw(TICKS)
                id_ = open_.pop(0 if odd % 5 == 3 else -1) if open_ else draw(st.integers(0, 9))
                open_ += [id_] * (odd == 4)
            else:
                parent = inner
            parent = draw(st.integers(0, 80)) if odd in {5, 6} else parent
            id_ = None if odd == 7 else id_
            size = draw(st.integers(1, 9))
            chunk.append(
                Record(
                    offset, size, kind, draw(st.sampled_from(["s", "t"])), draw(TICKS) if odd == 8 else None,
                    None, draw(TEXTS), draw(TEXTS), id_, parent, start, end, draw(st.sampled_from(ATTRIBUTES)), None, None,
                )
            )  # fmt: skip
            offset += size
        chunks.append(chunk)
    return chunks


def both(chunks, *, expire=False, **limits):
    """Take chunks as lists and as blocks; return how many rows the kernel made."""
    sides = Sides(**limits)
    for chunk in chunks:
        sides.take([packed(chunk)])
        if expire:
            sides.lists.expire()
            sides.blocks.expire()
            sides.compare()
    return sides.blocks.by_kernel


@examples(150)
@given(histories(), st.booleans(), st.sampled_from([2**20, 8]))
def test_any_records(chunks, expire, most):
    both(chunks, expire=expire, open_spans_max=most, references_max=most)


def record(kind, id_=None, parent=None, at=0, offset=0, name=None, attributes=None):
    times = (None, at) if kind == Kind.END else (at, None)
    return Record(
        offset, 1, kind, "s", None, None, name, None, id_, parent, *times, attributes, None, None
    )


def usual(spans):
    """A tree of spans with an instant in each, over chunks."""
    chunks, id_ = [], 0
    for _ in range(3):
        chunk = []
        for _ in range(spans):
            outer, inner, id_ = id_ + 1, id_ + 2, id_ + 2
            chunk += [
                record("begin", outer, attributes='{"mcv":"VS["}'), record("begin", inner, outer, name="x"),
                record("instant", None, inner, attributes='{"i":1}'), record("end", inner, at=2),
                record("end", outer, at=3, attributes='{"end_mcv":"VS]"}'),
            ]  # fmt: skip
        chunks.append(chunk)
    return [
        [each._replace(offset=i) for i, each in enumerate(chunk, 10**4 * number)]
        for number, chunk in enumerate(chunks)
    ]


def test_what_breaks_no_rule_takes_the_kernel():
    assert both(usual(100)) >= 0.95 * 3 * 300


def test_spans_go_on_over_blocks():
    """The first records of all are decided in Python."""
    records = [each for chunk in usual(100) for each in chunk]
    first, rest = records[:20], records[20:]
    assert both([first, *(rest[i : i + 7] for i in range(0, len(rest), 7))]) > 800


@pytest.mark.parametrize("apart", [False, True])
def test_any_two_attributes_of_a_begin_and_its_end(apart):
    """Within a block, and where the begin was in an earlier one."""
    pairs = [(begin, end) for begin in ATTRIBUTES for end in ATTRIBUTES]
    begins = [record("begin", n, attributes=pair[0]) for n, pair in enumerate(pairs, 1)]
    ends = [record("end", n, attributes=pair[1], at=9) for n, pair in enumerate(pairs, 1)]
    chunks = [begins, ends] if apart else [begins + ends]
    assert both([[each._replace(offset=i) for i, each in enumerate(chunk)] for chunk in chunks])


def test_ids_that_were_referred_to_are_left_to_python():
    chunks = usual(50)
    chunks[1].insert(3, record("instant", None, 260, offset=10_003))
    both(chunks)
    both(chunks, expire=True)
