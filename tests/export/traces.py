"""Make random stores whose rows are drawn: with clocks related to wall time and without, logical clocks, runs,
overlaps, open spans, gaps.
"""

from __future__ import annotations

import json

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
    {"ticks_per_second": 1e-304},
    {"ticks_per_second": 1e300},
    {},
]
KINDS = ["span", "span", "span", "instant", "counter", "annotation", "begin", "end"]
ATTRIBUTES = [None, {}, {"value": 3}, {"value": 1.5, "deep": [1, {"x": None}]}, {"big": 2**64 - 1},
              {"args": {"a": 1, "b": "text"}}, {"seq": "mine"}, "no json"]  # fmt: skip
CROWD = 4
"""Number of stores in one example of `crowds`."""
LENGTHS = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 30]) | st.integers(0, 30)
"""Durations of spans. Most lie at the begin or end of a range of lengths."""


@st.composite
def stores(draw):
    """Return rows of one or two sources, in no order."""
    rows = []
    for source in draw(st.sampled_from([["sim"], ["sim", "files"]])):
        for name in draw(st.sampled_from([["aa"], ["aa", "ab"], ["ab", "b"]])):
            rows += draw(_session(source, name))
    return draw(st.permutations(rows)) if len(rows) < 40 else rows


@st.composite
def crowds(draw):
    """Return rows of several random stores in one table, which costs little more than one store.

    Each has sources of its own; those of the first store have the same names as in `stores`.
    """
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


LOWEST, HIGHEST = -(2**63), 2**63 - 1
TEXTS = [
    None, "", " ", "plain", "null", "NaN", "=1+1", "a,b", 'a"b', "a\nb", "a\r\nb", "a\x00b", "\u202eevil\u202c", "\u05d0\u05d1",
    "\ufeffbom", "\U0001f600", "\x1b[31m", "\\N", "'", "\u2028", "1 MiB",
]  # fmt: skip
"""Texts that are null, a formula, a line or a control character in some format. `grown` makes the last one long."""
MEMBERS = [
    None, "", "{}", "[]", "null", "no json", '{"x":NaN}', f'{{"big":{2**64 - 1},"bigger":{10**30}}}', '{"nul":"a\\u0000b"}', '{"a":1,"a":2}',
    '{"x":1e999}', '{"deep":' + "[" * 300 + "]" * 300 + "}", '{"":{"":[null,true,-0.0]}}', '{"rtl":"\u202e"}', '{"t":"1 MiB"}',
    '{"value":18446744073709551615}', '{"value":1e999}', '{"value":-0.0}', '{"args":{"a":2.5,"b":99999999999999999999}}',
    '{"kind":"mine","tailrace.open":true}',
]  # fmt: skip
NUMBERS = st.sampled_from([None, LOWEST, LOWEST + 1, -1, 0, 1, 2**53 + 1, HIGHEST - 1, HIGHEST])
STARTS = [LOWEST, -SECOND, -1, 0, 1, 999, 2**53 + 1, EPOCH, HIGHEST - 5, HIGHEST]
PROGRAMS = st.fixed_dictionaries(
    {
        **dict.fromkeys(("process", "host", "node", "job"), st.sampled_from(TEXTS)),
        "pid": st.sampled_from([None, 7, "7", -1, 0, 2**40, 2**64, "x"]),
        "rank": st.sampled_from([None, 0, HIGHEST, LOWEST, 2**64, "x"]),
        "labels": st.dictionaries(st.sampled_from(TEXTS[1:]), st.sampled_from(TEXTS), max_size=2),
    }
)
"""Facts that a client announces about its program."""
AWKWARD_CLOCKS = [
    {"ticks_per_second": SECOND, "epoch": 0},
    {"ticks_per_second": SECOND, "epoch": -SECOND},
    {"ticks_per_second": SECOND, "epoch": HIGHEST - 10},
    {"ticks_per_second": SECOND},
    {"ticks_per_second": 1e-304, "epoch": EPOCH},
    {"ticks_per_second": 1e-20, "epoch": EPOCH},
    {},
]


@st.composite
def awkward(draw):
    """Return rows of one source with values in which formats and their readers differ: the largest numbers, times
    before 1970 and after 2262, texts with control characters, texts that are partly JSON.
    """
    rows = []
    for name in draw(st.sampled_from([["aa"], ["aa", "b"]])):
        facts = draw(st.sampled_from(AWKWARD_CLOCKS))
        opened = draw(st.sampled_from([0, EPOCH, HIGHEST]))
        rows += [
            session("open", opened=opened, session=name),
            session("clock", clock="clk", session=name, **facts),
            session("tailrace.session", session=name, value={}, **draw(PROGRAMS)),
        ]
        for number in range(draw(st.integers(1, 8))):
            kind = draw(st.sampled_from(KINDS))
            start = draw(st.sampled_from(STARTS))
            length = draw(st.sampled_from([-1, 0, 1, 2**62, HIGHEST])) if kind == "span" else 0
            rows.append(
                row(
                    kind,
                    session=name,
                    stream=draw(st.sampled_from(["", "1", "2"])),
                    substream=draw(st.sampled_from([None, None, 4])),
                    seq=draw(NUMBERS),
                    offset=10 * number,
                    name=draw(st.sampled_from(TEXTS)),
                    category=draw(st.sampled_from(TEXTS[:10])),
                    id=draw(NUMBERS),
                    parent=draw(NUMBERS),
                    start=start,
                    end=max(LOWEST, min(start + length, HIGHEST))
                    if kind in {"span", "end"}
                    else None,
                    attributes=draw(st.sampled_from(MEMBERS)),
                )
            )
        for _ in range(draw(st.integers(0, 2))):
            first = draw(st.sampled_from([None, 1, HIGHEST]))
            stream = draw(st.sampled_from(["1", "2", ""]))
            offset = draw(st.integers(0, 90))
            rows.append(
                gap(draw(st.integers(0, 5)), first, stream=stream, offset=offset, session=name)
            )
    return rows


def grown(rows):
    """Return the rows of `awkward` with their long texts, which are too long for a strategy, and with attributes as
    text.
    """
    return [row | {name: _grown(row[name]) for name in ("name", "attributes")} for row in rows]


def _grown(value):
    text = json.dumps(value) if isinstance(value, dict) else value
    return text and text.replace("1 MiB", "x" * 2**20)
