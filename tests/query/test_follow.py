"""Test a follower: it yields each row once, in order, whatever upkeep does to the files and the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.errors import StoreError
from tailrace.query.engine import Engine
from tailrace.query.follow import LOOK_EVERY, Follower
from tailrace.rows.schema import COLUMNS
from tailrace.store.log import DeltaLog
from tests.query.tables import commit, compact, gap, later, make, row, session, shorten_log, vacuum
from tests.store.s3_server import RunningS3

NAMES = [column.name for column in COLUMNS]
SEQ = NAMES.index("seq")


def numbered(*seqs, **values):
    return [row(seq=seq, offset=100 * seq, **values) for seq in seqs]


def polled(follower, times=1):
    rows = []
    for _ in range(times):
        rows += [row for page in follower.poll() for row in page]
    return rows


def seqs(follower, times=1):
    return [row[SEQ] for row in polled(follower, times)]


def test_only_what_comes_after_the_start_is_given(tmp_path):
    follower = Follower(make(tmp_path, numbered(0, 1)), {})
    assert polled(follower) == []
    new = [
        row(seq=2, name="n", attributes={"a": 1}, start=5, day=later(1)),
        gap(3, 9, day=later(1)),
    ]
    commit(tmp_path, new)
    assert [dict(zip(NAMES, row, strict=True)) for row in polled(follower)] == new
    assert polled(follower) == []


def test_from_the_start_means_all_rows_the_oldest_files_first(tmp_path):
    make(tmp_path, numbered(4, 5, day=later(1)), numbered(0, 1), numbered(2, 3))
    follower = Follower(str(tmp_path), {}, from_start=True)
    assert seqs(follower) == [0, 1, 2, 3, 4, 5]
    commit(tmp_path, numbered(6))
    assert seqs(follower) == [6]


def test_twenty_commits_and_a_merge_are_given_once_and_in_order(tmp_path):
    follower = Follower(make(tmp_path, numbered(0)), {})
    seen = []
    for number in range(1, 21):
        commit(tmp_path, numbered(2 * number, 2 * number + 1))
        if number % 3 == 0:
            seen += seqs(follower)
        if number in (10, 15):
            compact(tmp_path)
    seen += seqs(follower)
    assert seen == list(range(2, 42))


def test_the_deletion_of_a_day_gives_nothing(tmp_path):
    follower = Follower(make(tmp_path, numbered(0), numbered(1, day=later(1))), {})
    DeltaTable(str(tmp_path / "events")).delete("day = '2026-11-21'")
    commit(tmp_path, numbered(2))
    assert seqs(follower) == [2]


def test_a_log_that_was_shortened_meanwhile_costs_and_repeats_nothing(tmp_path):
    follower = Follower(make(tmp_path, numbered(0, 1)), {})
    commit(tmp_path, numbered(2))
    assert seqs(follower) == [2]
    commit(tmp_path, numbered(3))
    compact(tmp_path)
    commit(tmp_path, numbered(4, 5))
    shorten_log(tmp_path)
    commit(tmp_path, numbered(6))
    assert sorted(seqs(follower, times=LOOK_EVERY)) == [3, 4, 5, 6]
    (notice,) = follower.notices
    assert "versions 3 to 6" in notice
    commit(tmp_path, numbered(7))
    assert seqs(follower) == [7]


def test_files_that_were_deleted_meanwhile_cost_and_repeat_nothing(tmp_path):
    make(tmp_path, numbered(0), [row(seq=50, session="b", offset=1)])
    follower = Follower(str(tmp_path), {})
    commit(tmp_path, [*numbered(1, 2), row(seq=51, session="b", offset=2)])
    assert sorted(seqs(follower)) == [1, 2, 51]
    commit(tmp_path, [*numbered(3), row(seq=70, session="c", offset=0)])
    commit(tmp_path, [row(seq=52, session="b", offset=3)])
    compact(tmp_path)
    vacuum(tmp_path)
    assert sorted(seqs(follower)) == [3, 52, 70]
    assert len(follower.notices) == 1


def test_files_that_were_deleted_before_they_were_given_cost_nothing(tmp_path):
    """The files of one day are merged. The file of the other day stays the same."""
    make(tmp_path, numbered(0, 1), numbered(2), numbered(3, 4, day=later(1)))
    follower = Follower(str(tmp_path), {}, from_start=True)
    compact(tmp_path)
    vacuum(tmp_path)
    assert sorted(seqs(follower)) == [0, 1, 2, 3, 4]
    assert polled(follower) == []


def test_rows_at_one_offset_are_told_apart(tmp_path):
    """The collector's own rows of a session all have the same offset: the number of bytes received so far."""
    follower = Follower(make(tmp_path, [gap(1, 1, offset=9)]), {})
    commit(tmp_path, [gap(1, 2, offset=9), row(seq=5, offset=7)])
    assert sorted(seqs(follower)) == [2, 5]
    commit(tmp_path, [session("close", offset=9), row(seq=6, offset=8)])
    compact(tmp_path)
    vacuum(tmp_path)
    assert sorted(seqs(follower), key=str) == [6, None]


def test_a_follower_that_is_stopped_again_and_again_loses_nothing(tmp_path):
    """Between two calls of the follower, files are merged and deleted."""
    follower = Follower(make(tmp_path, numbered(0)), {})
    seen = []
    for number in range(1, 25):
        commit(tmp_path, numbered(number))
        if number % 2 == 0:
            compact(tmp_path)
        if number % 4 == 0:
            vacuum(tmp_path)
        if number % 3 == 0:
            seen += seqs(follower)
    assert sorted(seen + seqs(follower)) == list(range(1, 25))


def test_a_table_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="not a Tailrace store"):
        Follower(str(tmp_path), {})


@pytest.mark.parametrize("left", ["nothing", "a newline", "a line", "half", "zeros"])
def test_every_reader_refuses_a_damaged_log_file_until_it_is_repaired(left, tmp_path):
    """The Delta library reads the first three as a version without rows."""
    store = make(tmp_path, numbered(0, 1))
    follower, engine = Follower(store, {}), Engine(store, {})
    commit(tmp_path, numbered(2, 3))
    path = DeltaLog(tmp_path / "events").path(2)
    whole = path.read_bytes()
    damaged = {
        "nothing": b"",
        "a newline": b"\n",
        "a line": whole[: whole.index(b"\n") + 1],
        "half": whole[: len(whole) // 2],
        "zeros": bytes(len(whole)),
    }
    path.write_bytes(damaged[left])
    readers = {
        "follow": lambda: seqs(follower),
        "follow from the start": lambda: Follower(store, {}, from_start=True),
        "query": lambda: Engine(store, {}),
        "view": engine.refresh,
    }
    for read in [*readers.values(), engine.refresh]:
        with pytest.raises(StoreError, match=r"cannot (be read|open the table|read the table)"):
            read()
    path.write_bytes(whole)
    assert seqs(follower) == [2, 3]
    engine.refresh()
    for reader in (engine, Engine(store, {})):
        assert sorted(seq for (seq,) in reader.rows("SELECT seq FROM events")) == [0, 1, 2, 3]
    compact(tmp_path)
    shorten_log(tmp_path)
    assert len(list(Engine(store, {}).rows("SELECT seq FROM events"))) == 4


def test_following_beside_a_process_that_merges_and_deletes(tmp_path):
    follower = Follower(make(tmp_path), {})
    script = Path(__file__).with_name("writer.py")
    writer = subprocess.Popen([sys.executable, script, tmp_path, "30"])
    seen = []
    try:
        while writer.poll() is None:
            seen += seqs(follower)
    finally:
        writer.kill()
    assert writer.wait() == 0
    assert sorted(seen + seqs(follower, times=LOOK_EVERY)) == list(range(3000))


def test_a_table_behind_a_url_is_followed_alike():
    with RunningS3() as s3:
        store = make("s3://bucket/prefix", numbered(0), options=s3.options)
        follower = Follower(store, s3.options)
        commit(store, numbered(1, 2), options=s3.options)
        compact(store, options=s3.options)
        commit(store, numbered(3), options=s3.options)
        assert seqs(follower) == [1, 2, 3]
        assert sorted(seqs(Follower(store, s3.options, from_start=True))) == [0, 1, 2, 3]
