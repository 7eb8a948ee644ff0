"""`tailrace gaps`: what is missing, or that nothing is."""

from __future__ import annotations

import json

from tailrace.cli.losses import GAP_COLUMNS, SPARE_OF_GAPS
from tailrace.query.engine import Engine
from tailrace.query.output import layout
from tailrace.query.views import GAPS
from tests.cli.command import run
from tests.query.tables import gap, heal, make, row


def commits():
    return [
        [gap(5, 10), gap(2, 30, "late_join"), gap(4, stream="2", reason="kernel", offset=3)],
        [heal(2, 11), heal(2, 30, "late_join"), gap(0, stream="", reason="malformed", offset=9)],
        [gap(7, 1, source="other", session="b")],
        [told(0, "stale_tail", source="runs", session="c", stream="node.x/proc.7/thread.8")],
    ]


def told(count, detail, **values):
    """A gap that a decoder knows of."""
    about = {"count": count, "detail": detail}
    return gap(count, reason="truncated", attributes=about, **values)


def lines(*arguments):
    return [line.split() for line in run("gaps", *arguments).decode().splitlines()]


def test_each_gap_is_a_line_and_then_come_the_totals(store):
    heading, *gaps, totals = lines("--store", store)
    assert heading == [
        "source", "session", "stream", "reason", "detail", "first", "last", "count", "remaining",
        "id", "peer",
    ]  # fmt: skip
    assert gaps == [
        ["other", "b", "1", "network", "-", "1", "7", "7", "7", "-", "-"],
        ["runs", "c", "node.x/proc.7/thread.8", "truncated", "stale_tail", *"------"],
        ["sim", "a", "1", "network", "-", "10", "14", "5", "3", "-", "-"],
        ["sim", "a", "2", "kernel", "-", "-", "-", "4", "4", "-", "-"],
        ["sim", "a", "malformed", *"-------"],
    ]
    assert " ".join(totals) == (
        "5 gaps: 14 events are missing (kernel 4, network 10), and 2 gaps of unknown size"
    )


def test_all_gaps_include_those_that_were_repaid(store):
    _, *gaps, totals = lines("--store", store, "--all")
    assert ["sim", "a", "1", "late_join", "-", "30", "31", "2", "0", "-", "2", "-"] in gaps
    assert totals[:2] == ["6", "gaps:"]


def test_no_gap_is_said_in_so_many_words(tmp_path):
    make(tmp_path, [row(seq=0), gap(1, 1), heal(1, 1)])
    assert run("gaps", "--store", tmp_path) == b"no gaps: nothing is known to be missing\n"
    assert run("gaps", "--store", tmp_path, "--json") == b""


def test_a_terminal_of_80_columns_has_a_line_for_each_gap(tmp_path):
    number = 10**9
    wide = {
        "source": "simulators",
        "session": "0123456789abcdef",
        "stream": "node.x/proc.7/thread.8",
    }
    make(tmp_path, [told(number, "stale_tail", seq=number, id=number, **wide)])
    engine = Engine(str(tmp_path))
    asked = (
        f"SELECT {', '.join(GAP_COLUMNS[:-1])}, '/scratch/runs/node.x/run.trace' AS peer FROM gaps"  # noqa: S608 - our own words
    )
    answer = engine.ask(asked)
    heading, line = layout(answer.columns, [answer.next_page()], width=80, spare=SPARE_OF_GAPS)
    engine.close()
    assert heading.split() == [
        "source",
        "session",
        "stream",
        "reason",
        "remaining",
    ]
    assert line.split() == [
        "simulators",
        wide["session"],
        wide["stream"],
        "truncated",
        str(number),
    ]
    assert len(line) <= 80


def test_filters_choose_gaps(store):
    assert [line[0] for line in lines("--store", store, "--source", "other")[1:-1]] == ["other"]
    assert len(lines("--store", store, "--session", "a")) == 5


def test_json_has_every_column(store):
    objects = [json.loads(line) for line in run("gaps", "--store", store, "--json").splitlines()]
    assert all(list(o) == [*(column.name for column in GAPS.columns), "peer"] for o in objects)
    assert [o["remaining"] for o in objects] == [7, None, 3, 4, None]


def test_a_missing_table_is_named_and_exit_1(tmp_path):
    assert str(tmp_path) in run("gaps", "--store", tmp_path, code=1)
