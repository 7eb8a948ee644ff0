"""`tailrace stats`: the figures of spans, and what they lack."""

from __future__ import annotations

import json

from tests.cli.command import run
from tests.query.tables import clocked, gap, row

EPOCH = 1_795_046_400 * 10**9


def commits():
    spans = [
        row("span", name="step", start=0, end=5_000_000, offset=1),
        row("span", name="read", start=1_000_000, end=3_000_000, offset=2, category="io"),
        row("begin", name="step", start=9_000_000, id=1, offset=3),
    ]
    logical = row("span", name="tick", start=0, end=7, source="other", session="b")
    return [[clocked(epoch=EPOCH), *spans, gap(3, 7), logical]]


def printed(*arguments, **options):
    return [line.split() for line in run("stats", *arguments, **options).decode().splitlines()]


def test_each_name_has_its_figures_the_longest_total_first(store):
    heading, step, read, tick, last = printed("--store", store)
    assert heading == [
        "name",
        "unit",
        "count",
        "open",
        "total",
        "self",
        "min",
        "p50",
        "p90",
        "p95",
        "p99",
        "max",
    ]
    assert step[:4] == ["step", "ns", "1–5", "1"]  # noqa: RUF001 - a range
    assert " ".join(
        step[4:]
    ) == "at least 5 ms cannot be told at most 5 ms cannot be told " + " ".join(
        ["at least 5 ms"] * 4
    )
    assert read[:4] == ["read", "ns", "1–4", "0"]  # noqa: RUF001 - a range
    assert tick == ["tick", "ticks", "1", "0", *["7"] * 8]
    assert " ".join(last) == "3 groups; 3 events are missing (network 3)"


def test_json_has_whole_numbers_and_says_on_standard_error_what_is_missing(store):
    out = run("stats", "--store", store, "--source", "sim", "--json")
    step, read = map(json.loads, out.splitlines())
    assert step == {
        "name": "step", "unit": "ns", "count": 1, "open": 1, "total": 5_000_000, "self": 3_000_000,
        "min": 5_000_000, "p50": 5_000_000, "p90": 5_000_000, "p95": 5_000_000, "p99": 5_000_000,
        "max": 5_000_000,
        "bounds": {
            "count": [1, 5], "total": [5_000_000, None], "self": [0, None], "min": [0, 5_000_000],
            "p50": [0, None], "p90": [5_000_000, None], "p95": [5_000_000, None],
            "p99": [5_000_000, None], "max": [5_000_000, None],
        },
    }  # fmt: skip
    assert read["self"] == 2_000_000


def test_other_keys_group_and_self_time_may_be_left_out(store):
    rows = printed("--store", store, "--by", "category", "--by", "source", "--no-self-time")
    assert rows[0][:2] == ["category", "source"]
    assert sorted(row[:3] for row in rows[1:-1]) == [
        ["-", "other", "ticks"],
        ["-", "sim", "ns"],
        ["io", "sim", "ns"],
    ]
    assert all("-" in row[3:] for row in rows[1:-1])


def test_a_time_selects_by_begin(store):
    rows = printed("--store", store, "--since", EPOCH + 1, "--until", EPOCH + 8_000_000)
    assert [row[0] for row in rows[1:-1]] == ["read"]


def test_an_unknown_key_or_source_is_wrong_usage(store):
    run("stats", "--store", store, "--by", "nam", code=2)
    run("stats", "--store", store, "--source", "nobody", code=2)


def test_completeness_can_be_demanded(store):
    said = run("stats", "--store", store, "--complete-only", code=3)
    assert "3 events are missing (network 3)" in said
