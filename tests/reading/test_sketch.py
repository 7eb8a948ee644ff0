"""The drawing of the first rows, read back as XML."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

import tailrace
from tailrace.query.answer import AnswerColumn, Shape
from tailrace.reading.result import BAR, LABEL, LANES, WIDTH, sketch
from tests.query.tables import clocked, make, row, session

NAMES = ("session", "stream", "name", "start", "end", "open", "time", "duration")
TYPES = ("VARCHAR",) * 3 + ("BIGINT",) * 2 + ("BOOLEAN",) + ("BIGINT",) * 2


def drawn(page, names=NAMES):
    columns = [
        AnswerColumn(i, name, type_, Shape.TEXT)
        for i, (name, type_) in enumerate(zip(names, TYPES, strict=False))
    ]
    text = "".join(sketch(columns, page))
    return ElementTree.fromstring(text) if text else None  # noqa: S314 - ours


def span(start, end, *, session="s", stream="1", name="n", rate=2):
    time, duration = (
        (rate * start, rate * (end - start)) if rate and end is not None else (None,) * 2
    )
    time = rate * start if rate else None
    return (
        session,
        stream,
        name,
        start,
        end,
        "false" if end is not None else "true",
        time,
        duration,
    )


def boxes(svg):
    return [
        (float(box.get("x")), float(box.get("y")), float(box.get("width")), box[0].text)
        for box in svg.iter("rect")
    ]


def test_spans_lie_on_an_axis_of_nanoseconds():
    svg = drawn([span(0, 100, name="a"), span(50, 100, name="b", stream="2")])
    room = WIDTH - LABEL - 1
    assert boxes(svg) == [
        (LABEL, 0, room, "a: 200 ns"),
        (LABEL + room / 2, 15, room / 2, "b: 100 ns"),
    ]
    assert [text.text for text in svg.iter("text")] == ["1", "2", "200 ns"]


def test_without_wall_time_the_axis_has_ticks():
    svg = drawn([span(0, 100, rate=None), span(2, 3, rate=None)])
    assert [text for *_, text in boxes(svg)] == ["n: 100 ticks", "n: 1 ticks"]


def test_sessions_without_a_common_clock_are_not_drawn():
    assert drawn([span(0, 9, rate=None), span(0, 9, rate=None, session="t")]) is None
    assert drawn([span(0, 9), span(0, 9, rate=None, session="t")]) is None


def test_an_open_span_reaches_the_end_and_is_dashed():
    svg = drawn([span(0, 100), span(50, None)])
    (x, y, width, text) = boxes(svg)[1]
    assert (text, y) == ("n: open", BAR + 3)
    assert x + width == pytest.approx(WIDTH - 1)
    assert [box.get("stroke-dasharray") for box in svg.iter("rect")] == [None, "3"]


@pytest.mark.parametrize(
    "row_",
    [
        ("s", "1", "n", "0", 9, "false", 0, 9),
        ("s", "1", "n", 0, 9.5, "false", 0, 9),
        ("s", "1", "n", 9, 0, "false", 0, 9),
        ("s", "1", "n", 0, 9, None, 0, 9),
        ("s", "1", "n", 0, 9, "maybe", 0, 9),
        ("s", "1", "n", None, 9, "false", 0, 9),
    ],
)
def test_rows_that_are_no_spans_are_not_drawn(row_):
    assert drawn([row_]) is None


def test_an_answer_without_spans_has_no_drawing():
    assert drawn([(1, 2)], ("a", "start")) is None
    assert drawn([]) is None


def test_names_are_text():
    svg = drawn([span(0, 9, name="</title><script>alert(1)</script>\x00", stream="<b>")])
    assert {each.tag for each in svg.iter()} == {"svg", "title", "text", "rect"}
    assert "<script>alert(1)</script>\\x00" in boxes(svg)[0][3]


SPANS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.one_of(st.none(), st.integers(0, 50)),
        st.sampled_from("ab"),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


@given(SPANS)
def test_no_two_spans_of_a_lane_overlap_and_none_is_left_out(spans):
    page = [
        span(start, None if length is None else start + length, stream=stream, name=str(i))
        for i, (start, length, stream, _) in enumerate(spans)
    ]
    found = boxes(drawn(page))
    assert len(found) == len(spans) <= LANES
    last = max(start + (length or 0) for start, length, *_ in spans)
    first = min(start for start, *_ in spans)
    scale = (WIDTH - LABEL - 1) / ((2 * (last - first)) or 1)
    lanes = {}
    for x, y, _, text in found:
        start, length, stream, _ = spans[int(text.split(":")[0])]
        assert x == pytest.approx(LABEL + 2 * (start - first) * scale, abs=0.06)
        end = float("inf") if length is None else start + length
        lanes.setdefault(y, []).append((start, end, stream))
    for lane in lanes.values():
        assert len({stream for *_, stream in lane}) == 1
        assert all(a[1] <= b[0] for a, b in pairwise(lane))


def test_a_result_shows_its_spans_and_says_how_many_rows_it_shows(tmp_path):
    rows = [clocked(epoch=10**18), session("open", opened=1)]
    rows += [
        row(seq=i, offset=i, name=f"step {i}", start=10 * i, end=10 * i + 9) for i in range(30)
    ]
    make(tmp_path, rows)
    with tailrace.open(tmp_path) as store:
        html = store.spans(order="start")._repr_html_()
    svg = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])  # noqa: S314 - ours
    assert len(boxes(svg)) == 20
    assert "</svg><p>the first 20 rows; " in html
