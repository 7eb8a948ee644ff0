"""`tailrace query` as people and programs use it."""

from __future__ import annotations

import csv
import io
import json
import shlex
import signal
import subprocess

import psutil
import pyarrow as pa
import pytest

from tests.cli.command import COMMAND, ENVIRONMENT, on_terminal, run, start
from tests.query.tables import clocked, row
from tests.system.collector import until

HOSTILE = "a\x1b[31m\n\x00\u202eb"


def commits():
    rows = [row(name=HOSTILE, start=1, end=4), row(name="plain", start=2**63 - 1, id=-1, offset=1)]
    return [[clocked(epoch=1_795_046_400 * 10**9)], rows]


def test_a_table_is_the_default(store):
    lines = run("query", "--store", store, 'FROM spans SELECT name, ticks ORDER BY "offset"')
    assert [line.split("  ")[0] for line in lines.decode().splitlines()] == [
        "name", r"a\x1b[31m\n\x00\u202eb", "plain",
    ]  # fmt: skip


def test_json_is_one_exact_object_a_row(store):
    lines = run("query", "--store", store, "--json", 'FROM events ORDER BY "offset", kind DESC')
    objects = [json.loads(line) for line in lines.splitlines()]
    assert [o["name"] for o in objects] == [HOSTILE, "header", "plain"]
    assert (objects[2]["start"], objects[2]["id"], objects[2]["end"]) == (2**63 - 1, -1, None)
    assert objects[0]["wall"] == "2026-11-19 00:00:00+00"


def test_csv_and_arrow_hold_the_same(store):
    sql = 'FROM spans SELECT name, start ORDER BY "offset"'
    text = run("query", "--store", store, "--csv", sql).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    table = pa.ipc.open_stream(run("query", "--store", store, "--arrow", sql)).read_all()
    assert rows[0] == table.column_names == ["name", "start"]
    assert [(name, int(start)) for name, start in rows[1:]] == [
        (r["name"], r["start"]) for r in table.to_pylist()
    ]


def test_sql_comes_from_standard_input_on_demand(store):
    assert (
        run("query", "--store", store, "--json", "-", input=b"\xef\xbb\xbfSELECT\n  1 AS x;\n")
        == b'{"x":1}\n'
    )


def test_the_store_of_the_configuration_is_the_default(store, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(f"[store]\npath = {json.dumps(store)}\n")
    out = run("query", "--config", config, "--json", "SELECT count(*) AS n FROM spans")
    assert out == b'{"n":2}\n'


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT foo FROM spans", "LINE 1: SELECT foo"),
        ("SELEC 1", "syntax error"),
        ("SELECT error('at run time')", "at run time"),
        ("DROP VIEW events", "DROP"),
        ("FROM read_text('/etc/passwd')", "read_text"),
    ],
)
def test_a_bad_statement_is_the_databases_words_and_exit_1(store, sql, words):
    assert words in run("query", "--store", store, sql, code=1)


def test_a_missing_table_is_named_and_exit_1(tmp_path):
    assert str(tmp_path) in run("query", "--store", tmp_path, "SELECT 1", code=1)


def test_an_answer_without_rows_says_so_to_people_and_to_nobody_else(store):
    nothing = "SELECT name, seq FROM spans WHERE name = 'no such'"
    assert run("query", "--store", store, nothing).decode().splitlines() == ["name  seq", "0 rows"]
    assert run("query", "--store", store, nothing, "--csv") == b"name,seq\n"
    assert run("query", "--store", store, nothing, "--json") == b""


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["SELECT 1", "SELECT 2"], ["--xml", "SELECT 1"], ["--json", "--csv", "SELECT 1"],
        ["--csv", "--json", "SELECT 1"], ["--arrow", "--csv", "SELECT 1"],
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2(store, arguments):
    assert "Usage" in run("query", "--store", store, *arguments, code=2)


@pytest.mark.parametrize("form", ["--json", "--csv", "--arrow", None])
def test_a_reader_that_leaves_early_ends_it_without_a_word(store, form):
    """141 is what the shell says of SIGPIPE; nothing is said on standard error."""
    options = [] if form is None else [form]
    sql = "SELECT i, repeat('x', 100) AS x FROM range(3000000) AS t(i)"
    command = shlex.join([*COMMAND, "query", "--store", store, *options, sql])
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 100 > /dev/null; echo ${{PIPESTATUS[0]}}"],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_ctrl_c_ends_a_long_statement_at_once_and_quietly(store):
    sql = "SELECT count(*) FROM range(10000000000000) AS a(i), range(9) WHERE i % 7 = 3"
    process = start("query", "--store", store, sql)
    try:
        until(lambda: worked(process) > 0.3, "the statement to count")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


def worked(process):
    """Return how long the statement's own process has worked, in seconds."""
    assert process.poll() is None
    return sum(child.cpu_times().user for child in psutil.Process(process.pid).children())


class Terminal:
    """Runs a command with its output, and errors, on a terminal of so many columns."""

    def __init__(self, columns):
        self._columns = columns

    def run(self, *arguments):
        """The exit code and all it printed."""
        return on_terminal(*arguments, columns=self._columns)


def test_a_terminal_gets_a_heading_in_bold_and_lines_that_fit(store):
    code, printed = Terminal(30).run("query", "--store", store, "SELECT name, name AS b FROM spans")
    # On a busy machine the command says first that it takes time, and wipes that away.
    heading, *lines = printed.rpartition("\r\x1b[K")[2].splitlines()
    assert code == 0
    assert heading.startswith("\x1b[1mname")
    assert heading.endswith("\x1b[0m")
    assert [len(line) <= 30 for line in lines] == [True, True]
    assert "…" in lines[0]


def test_a_terminal_gets_no_arrow(store):
    code, printed = Terminal(80).run("query", "--store", store, "--arrow", "SELECT 1")
    assert code == 2
    assert "not for a terminal" in printed


WAITS = "SELECT sleep_ms(1500) AS x"


def test_a_long_wait_is_seen_on_a_terminal_and_wiped_away(store):
    code, printed = Terminal(80).run("query", "--store", store, WAITS)
    assert code == 0
    waiting, wiped, result = printed.rpartition("\r\x1b[K")
    assert "asking ... 1 s" in waiting
    assert wiped
    assert result == "\x1b[1mx\x1b[0m\n-\n"


def test_a_long_wait_is_not_seen_elsewhere(store):
    assert run("query", "--store", store, "--json", WAITS) == b'{"x":null}\n'
