"""`tailrace follow` beside a process that writes, merges and deletes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tests.query.tables
from tests.cli.command import on_terminal, run, start
from tests.query.tables import make, row

WRITER = Path(tests.query.tables.__file__).with_name("writer.py")
COMMITS = 20


def write(store):
    subprocess.run([sys.executable, WRITER, store, str(COMMITS)], check=True, timeout=60)


def test_each_row_of_twenty_commits_is_printed_once(tmp_path):
    """Rows from the start on, so that there is no race about when it begins."""
    make(tmp_path, [row(seq=-1)])
    total = 100 * COMMITS + 1
    follower = start("follow", "--store", tmp_path, "--json", "--from-start", "--lines", str(total))
    try:
        assert json.loads(follower.stdout.readline())["seq"] == -1
        write(tmp_path)
        out, err = follower.communicate(timeout=60)
    finally:
        follower.kill()
    assert follower.returncode == 0
    assert sorted(json.loads(line)["seq"] for line in out.splitlines()) == list(range(total - 1))
    assert b"Traceback" not in err


def test_rows_are_lines_for_eyes(tmp_path):
    rows = [
        row("session", stream="", name="open", time=1_795_046_400 * 10**9 + 7),
        row(seq=3, name="w\x1b[2J", start=5, end=9, time=1_795_046_400 * 10**9, offset=1),
        row("begin", start=-8, name=None, session="0123456789", attributes={"a": 1}, offset=2),
    ]
    make(tmp_path, rows)
    out = run("follow", "--store", tmp_path, "--from-start", "--lines", "3").decode()
    assert out.splitlines() == [
        "2026-11-19 00:00:00.000000007  sim/a/  session  open",
        "2026-11-19 00:00:00.000000000  sim/a/1  span  w\\x1b[2J  #3  +4",
        '@-8  sim/0123456789/1  begin  {"a": 1}',
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_rows_fit_a_terminal_with_whole_ids_and_words(tmp_path, width):
    session = "8c1f0a2b3c4d5e6f70819203"
    about = {"name": "exchange of halos", "attributes": {"text": "x" * 300}}
    make(
        tmp_path, [row(session=session, seq=3, start=5, end=9, time=1_795_046_400 * 10**9, **about)]
    )
    follow = ("follow", "--store", tmp_path, "--from-start", "--lines", "1")
    code, printed = on_terminal(*follow, columns=width)
    shown = printed.replace("\r", "").splitlines()
    assert code == 0
    assert max(len(line) for line in shown) <= width
    text = " ".join(" ".join(shown).split())
    assert f"2026-11-19 00:00:00.000000000 sim/{session}/1 span exchange of halos #3 +4" in text
    assert text.endswith("…")


def test_one_source_can_be_chosen(tmp_path):
    make(tmp_path, [row(seq=i, source="ab"[i % 2]) for i in range(10)])
    out = run(
        "follow", "--store", tmp_path, "--json", "--source", "b", "--from-start", "--lines", "4"
    )
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 3, 5, 7]


def test_attributes_are_objects_in_json(tmp_path):
    make(tmp_path, [row(attributes={"a": [1]}), row(offset=1)])
    out = run("follow", "--store", tmp_path, "--json", "--from-start", "--lines", "2")
    assert [json.loads(line)["attributes"] for line in out.splitlines()] == [{"a": [1]}, None]


def test_ctrl_c_ends_it_without_a_word(tmp_path):
    make(tmp_path, [row(seq=1)])
    follower = start("follow", "--store", tmp_path, "--from-start")
    try:
        assert follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=120)
    finally:
        follower.kill()
    assert (follower.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_leaves_ends_it_without_a_word(tmp_path):
    make(tmp_path, [row(seq=i, offset=i) for i in range(5000)])
    follower = start("follow", "--store", tmp_path, "--from-start")
    try:
        assert follower.stdout.readline()
        follower.stdout.close()
        assert follower.wait(timeout=120) == 141
        assert follower.stderr.read() == b""
    finally:
        follower.kill()
        follower.stderr.close()


def test_wrong_usage_is_exit_2(tmp_path):
    assert "Usage" in run("follow", "--store", tmp_path, "--lines", "0", code=2)


def test_a_missing_table_is_named_and_exit_1(tmp_path):
    assert str(tmp_path) in run("follow", "--store", tmp_path, code=1)
