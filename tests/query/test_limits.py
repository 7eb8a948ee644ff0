"""Test the limits of statements, with statements that DuckDB's own limits do not end, through the command and through
`tailrace.open`.

The kernel ends each statement in a process of its own. The program that asked continues, and gets an answer to its next
question. No test measures time: without the limits, these statements would run for minutes or take gigabytes."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import IncompleteError, QueryError
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits, make_room, verdict
from tailrace.query.remote import RemoteEngine
from tests.cli.command import COMMAND, ENVIRONMENT, run
from tests.query.tables import commit, make, row

MEMORY = 256 * 2**20

SLOW = [
    "SELECT sleep_ms(300000)",
    "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
    "SELECT max(hash(i)) FROM generate_series(1, 1000000000000) AS t(i)",
    "WITH RECURSIVE x AS (SELECT 1::HUGEINT AS i UNION ALL SELECT i + 1 FROM x) SELECT count(*) FROM x",
]
LARGE = [
    "SELECT printf('%1500000000d', 1)",
    "SELECT repeat('x', 1500000000)",
    "SELECT list(i) FROM range(200000000) AS t(i)",
]
DEEP = f"SELECT from_json('{'[' * 20_000}{']' * 20_000}', '{'[' * 20_000}\"INT\"{']' * 20_000}')"


def commits():
    return [[row(name="one"), row(name="two", offset=1)]]


@pytest.fixture
def rooms(tmp_path, monkeypatch):
    """The directory in which the processes of statements create their private directories. At the end of a test, it
    must be empty."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sql", SLOW)
def test_what_takes_too_long_is_ended_whatever_it_does(store, rooms, sql):
    held = tailrace.open(store, limits=Limits(seconds=0.5, threads=1))
    with held as opened, pytest.raises(QueryError, match=r"longer than its limit of 500 ms"):
        opened.sql(sql).arrow()
    assert tailrace.open(store).events().count() == 2


def test_the_command_ends_it_as_well(store, tmp_path):
    said = run(
        *("query", "--store", store, "--timeout", "1 s", SLOW[0]),
        code=1,
        variables={"TMPDIR": str(tmp_path)},
    )
    assert said == "tailrace: the statement was ended: it took longer than its limit of 1 s\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sql", LARGE)
def test_what_needs_too_much_is_ended_before_it_has_it(store, rooms, sql):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with tailrace.open(store, limits=Limits(memory=MEMORY)) as opened:
        with pytest.raises(QueryError, match=r"(?i)memory"):
            list(opened.sql(sql))
        assert len(list(opened.events())) == 2
    # The engine itself takes some memory, and a forked process has the memory of its parent.
    most = max(before, (MEMORY + 400 * 2**20) // 1024)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= most


def test_the_command_ends_it_before_it_has_it(store):
    said = run("query", "--store", store, "--memory", "256 MiB", LARGE[0], code=1)
    assert said.startswith("tailrace: ")
    assert "emory" in said


def test_a_crash_is_an_error_of_the_statement(store, rooms):
    """Without a memory limit, the recursion continues until the stack overflows."""
    with tailrace.open(store, limits=Limits()) as opened:
        with pytest.raises(QueryError, match=r"crashed the database|emory"):
            list(opened.sql(DEEP))
        assert len(list(opened.events())) == 2


def test_a_crash_is_one_message_of_the_command(store):
    said = run("query", "--store", store, "-", code=1, input=DEEP.encode())
    assert len(said.splitlines()) == 1
    assert said.startswith("tailrace: ")


def test_how_a_process_ended_is_said_in_words():
    limits = Limits(seconds=3, memory=MEMORY)
    assert "limit of 3 s" in verdict(-signal.SIGALRM, limits)
    assert "limit of 3 s" in verdict(-signal.SIGXCPU, limits)
    assert "killed" in verdict(-signal.SIGKILL, limits)
    assert "SIGSEGV" in verdict(-signal.SIGSEGV, limits)


EXACT = """
    SELECT seq, name, seq::HUGEINT * 10000000000000000000 AS large, 1.50::DECIMAL(5, 2) AS decimal,
           [1, NULL] AS list, 'nan'::DOUBLE AS nan, true AS truth, TIMESTAMP '2026-01-02 03:04:05' AS time
    FROM events ORDER BY "offset"
"""


@pytest.mark.parametrize("sql", [EXACT, "SELECT 1 WHERE false"])
def test_the_answer_is_the_same_as_without(store, rooms, sql):
    with tailrace.open(store) as free, tailrace.open(store, limits=Limits()) as held:
        mine, theirs = free.sql(sql), held.sql(sql)
        assert repr(list(theirs)) == repr(list(mine))
        assert repr(theirs.arrow().to_pylist()) == repr(mine.arrow().to_pylist())
        assert theirs.arrow().schema.equals(mine.arrow().schema, check_metadata=True)
        assert theirs.count() == mine.count()
        assert str(theirs) == str(mine)


def test_keywords_and_parameters_and_completeness_are_the_same(store, rooms):
    with tailrace.open(store, limits=Limits(), complete_only=True) as held:
        assert [r["name"] for r in held.spans(name="two")] == ["two"]
        assert list(held.sql("SELECT $x + 1 AS y", {"x": 41})) == [{"y": 42}]
    empty = tailrace.open(make(rooms / "empty"), limits=Limits(), complete_only=True)
    with empty as held, pytest.raises(IncompleteError):
        list(held.events())
    shutil.rmtree(rooms / "empty")


def test_an_answer_that_nobody_reads_on_goes_when_it_is_closed_or_forgotten(store, rooms):
    sql = "SELECT repeat('x', 1000) AS x FROM range(1000000)"
    with tailrace.open(store, limits=Limits()) as opened:
        reader = iter(opened.sql(sql))
        assert len(next(reader)["x"]) == 1000
        reader.close()
        batches = opened.sql(sql).batches()
        assert batches.read_next_batch().num_rows
        del batches
        opened.sql(sql).batches().schema  # noqa: B018 - begun, and never read


def test_an_answer_that_is_read_to_its_end_stays_at_its_end(store, rooms):
    remote = RemoteEngine(Engine(store), Limits())
    answer = remote.ask("FROM events SELECT name")
    assert [len(answer.next_page()) for _ in range(3)] == [2, 0, 0]
    batches = remote.ask_arrow("FROM events SELECT name")
    assert batches.next_batch().num_rows == 2
    assert [batches.next_batch() for _ in range(2)] == [None, None]


def test_where_no_directory_can_be_made_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(QueryError, match="TMPDIR"):
        make_room()


def test_questions_are_of_the_snapshot_until_it_is_refreshed(tmp_path):
    make(tmp_path, [row(name="one")])
    with tailrace.open(tmp_path, limits=Limits()) as opened:
        commit(tmp_path, [row(name="two")])
        assert [r["name"] for r in opened.events()] == ["one"]
        assert opened.refresh()
        assert opened.events().count() == 2


PARENT = """
import sys, tailrace
with tailrace.open(sys.argv[1], limits=tailrace.Limits()) as opened:
    print("ready", flush=True)
    list(opened.sql("SELECT sleep_ms(300000)"))
"""


@pytest.mark.parametrize("way", ["open", "query"])
def test_the_process_does_not_outlive_who_asked(store, way, tmp_path):
    """This also holds if the program is killed, so that it cannot end the process."""
    command = {
        "open": [sys.executable, "-c", PARENT, store],
        "query": [*COMMAND, "query", "--store", store, "SELECT sleep_ms(300000)"],
    }[way]
    asking = subprocess.Popen(command, env=ENVIRONMENT | {"TMPDIR": str(tmp_path)})
    try:
        child = _wait_for_child(asking.pid)
        ended = os.pidfd_open(child)
    finally:
        asking.kill()
        asking.communicate()
    assert select.select([ended], [], [], 120)[0]
    os.close(ended)


def _wait_for_child(pid):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                if children := (task / "children").read_text().split():
                    return int(children[0])
        time.sleep(0.02)
    raise AssertionError("no statement was begun")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--timeout", "3", "is not a duration"),
        ("--timeout", "0 s", "greater than 0"),
        ("--memory", "lots", "is not a size"),
    ],
)
def test_a_limit_that_is_none_is_wrong_usage(store, option, value, words):
    assert words in run("query", "--store", store, option, value, "SELECT 1", code=2)


INTERRUPTED = """
import os, signal, time
from tailrace.query.limits import Limits, go_apart

os.register_at_fork({when}=lambda: os.kill({process}, signal.SIGINT))
try:
    go_apart(Limits())
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("when", "process"),
    [("before", "os.getpid()"), ("after_in_parent", "os.getpid()"), ("after_in_child", "os.getppid()")],
)  # fmt: skip
def test_an_interrupt_within_the_fork_ends_the_statement(when, process, tmp_path):
    """Python ignores an exception in a callback of the fork."""
    program = INTERRUPTED.format(when=when, process=process)
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False, capture_output=True, text=True, timeout=30, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("interrupted\n", "", [])
