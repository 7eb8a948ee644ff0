"""Random stores whose rows are drawn: tied, untied and logical clocks, runs, overlaps, open spans, gaps."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.query.tables import SECOND, gap, row, session

EPOCH = 1_795_000_000 * SECOND
NAMES = ["step", "Ünï \x1b[31m", '"quoted", \n', "a" * 300]
CLOCKS = [
    {"ticks_per_second": SECOND, "epoch": EPOCH},
    {"ticks_per_second": 10**6, "epoch": EPOCH + 17},
    {"ticks_per_second": 3 * SECOND, "epoch": EPOCH - 5},
    {"ticks_per_second": 0.3, "epoch": EPOCH},
    {"ticks_per_second": SECOND},
    {"ticks_per_second": SECOND, "clock_offset": -7},
    {},
]
KINDS = ["span", "span", "span", "instant", "counter", "annotation", "begin", "end"]
ATTRIBUTES = [None, {}, {"value": 3}, {"value": 1.5, "deep": [1, {"x": None}]}, {"big": 2**64 - 1},
              {"args": {"a": 1, "b": "text"}}, {"seq": "mine"}, "no json"]  # fmt: skip
CROWD = 4
"""So many stores are in one of `crowds`."""
LENGTHS = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 30]) | st.integers(0, 30)
"""Mostly such as begin or end a range of lengths."""


@st.composite
def stores(draw):
    """Rows of one or two sources, in no order."""
    rows = []
    for source in draw(st.sampled_from([["sim"], ["sim", "files"]])):
        for name in draw(st.sampled_from([["aa"], ["aa", "ab"], ["ab", "b"]])):
            rows += draw(_session(source, name))
    return draw(st.permutations(rows)) if len(rows) < 40 else rows


@st.composite
def crowds(draw):
    """Rows of several random stores in one table, which costs little more than one of them: each has sources of its own,
    those of the first under the names that they have in `stores`."""
    rows = draw(stores())
    for number in range(1, CROWD):
        rows += [row | {"source": f"{row['source']}{number}"} for row in draw(stores())]
    return rows


@st.composite
def _session(draw, source, name):
    mine = {"source": source, "session": name}
    facts = draw(st.sampled_from(CLOCKS))
    run = draw(st.sampled_from([{}, {"group": "run"}]))
    rows = [
        session("open", opened=EPOCH + draw(st.integers(0, 100)), **run, **mine),
        session("clock", clock="clk", **facts, **mine),
    ]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(KINDS))
        start = draw(st.integers(0, 40))
        length = draw(LENGTHS) if kind == "span" else 0
        begins = None if kind == "end" or draw(st.integers(0, 9)) == 0 else start
        time = _time(facts, begins)
        rows.append(
            row(
                kind,
                stream=draw(st.sampled_from(["1", "2"])),
                substream=draw(st.sampled_from([None, None, 4])),
                seq=draw(st.sampled_from([None, number])),
                offset=10 * number,
                name=draw(st.sampled_from([*NAMES, None])),
                category=draw(st.sampled_from([None, "solver"])),
                id=number if kind in {"begin", "span"} else None,
                parent=draw(st.sampled_from([None, 1])),
                start=begins,
                end=start + length if kind in {"span", "end"} else None,
                time=draw(st.sampled_from([None, time])),
                attributes=draw(st.sampled_from(ATTRIBUTES)),
                **mine,
            )
        )
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.sampled_from([None, 2, 30]))
        rows.append(
            gap(
                draw(st.integers(0, 5)),
                first,
                stream=draw(st.sampled_from(["1", "2", "9", ""])),
                offset=draw(st.integers(0, 130)),
                **mine,
            )
        )
    return rows


def _time(facts, start):
    if start is None or "epoch" not in facts or facts["ticks_per_second"] < 1:
        return None
    return facts["epoch"] + start * SECOND // facts["ticks_per_second"]
