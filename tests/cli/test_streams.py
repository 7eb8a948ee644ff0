"""`tailrace streams`: what is there."""

from __future__ import annotations

import json

from tailrace.query.views import STREAMS
from tests.cli.command import run
from tests.query.tables import clocked, gap, make, row


def commits():
    first = [row(seq=seq, start=seq, offset=seq, stream="2") for seq in range(9)]
    second = [row(seq=seq, start=seq, offset=seq, stream="10") for seq in range(99_999)]
    gaps = [gap(1, 9, stream="2"), gap(1, 99_999, stream="10")]
    other = [
        row("begin", id=1, start=5, source="other", session="b"),
        gap(0, reason="malformed", source="other", session="b", stream="1"),
    ]
    return [[clocked(epoch=1_795_046_400 * 10**9), *first, *gaps], second, other]


def lines(*arguments):
    return [line.split() for line in run("streams", *arguments).decode().splitlines()]


def test_each_stream_is_a_line_and_then_come_the_totals(store):
    heading, other, two, ten, totals = lines("--store", store)
    assert heading == [
        "source", "format", "session", "stream", "events", "missing", "complete", "state", "open",
        "first", "last", "silent", "since", "peer",
    ]  # fmt: skip
    assert other == ["other", "heph", "b", "1", "1", "0", "-", "unwatched", "1", "-", "-", "-", "-"]
    assert two[3:10] == ["2", "9", "1", "90.0000", "%", "unwatched", "0"]
    assert ten[3:8] == ["10", "99999", "1", "99.9990", "%"]
    assert two[10:] == [*["2026-11-19", "00:00:00"] * 3, "-"]
    assert " ".join(totals) == (
        "3 streams: 100009 events, 2 missing and an unknown number more, 1 open span"
    )


def test_what_is_not_whole_is_never_called_whole(tmp_path):
    make(tmp_path, [row(), gap(1, 1)], [row("instant", offset=i) for i in range(2_000_000 // 50)])
    _, line, totals = lines("--store", tmp_path)
    assert line[6:8] == ["99.9975", "%"]
    assert "99.9975 % complete" in " ".join(totals)


def test_filters_choose_streams(store):
    assert [line[3] for line in lines("--store", store, "--source", "sim")[1:-1]] == ["2", "10"]
    assert [line[0] for line in lines("--store", store, "--session", "b")[1:-1]] == ["other"]


def test_json_has_every_column(store):
    objects = [json.loads(line) for line in run("streams", "--store", store, "--json").splitlines()]
    assert [o["stream"] for o in objects] == ["1", "2", "10"]
    assert all(list(o) == [*(column.name for column in STREAMS.columns), "peer"] for o in objects)
    assert objects[1]["completeness"] == 0.9


def test_an_empty_table_has_no_streams(tmp_path):
    assert lines("--store", make(tmp_path))[-1][:2] == ["0", "streams:"]


def test_a_missing_table_is_named_and_exit_1(tmp_path):
    assert str(tmp_path) in run("streams", "--store", tmp_path, code=1)
