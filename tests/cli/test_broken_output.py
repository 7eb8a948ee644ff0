"""Standard streams that are closed, full, unread, non-blocking or of a narrow encoding, for every command.

Output that was asked for arrives, or the exit code says that it did not; words on standard error are no reason for
another end. Commands that collect or serve are in `tests/system/test_unread_output.py`."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.cli.commands import COMMANDS
from tests import program
from tests.cli.command import ENVIRONMENT
from tests.forms import in_turn
from tests.program import COMMAND
from tests.system.collector import Collector

WHOLE = Path(__file__).parents[1] / "vectors/ovni/traces/two-looms-offsets"
HEADER = '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\n'
RECORD = '{"clk":%d,"type":"record","name":"ü%d","record_type":"T","id":%d,"parent_id":null,"description":"d"}\n'

JOB = {
    "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1",
}  # fmt: skip

SERVE = {"serve", "view"}
TRIED = [name for name in COMMANDS if name not in SERVE]
QUIET = {"run"}
"""Commands that print nothing on standard output, which is their program's."""
BROKEN_STDOUT = {"closed": 1, "full": 1, "unread": 141}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a store that a collector has, a trace and a configuration."""
    place = tmp_path_factory.mktemp("place")
    records = (RECORD % (n * 10, n, n) for n in range(1, 200))
    (place / "ü.jets").write_text(HEADER + "".join(records))
    made = program.run(
        [*COMMAND, "import", "--store", place / "store", place / "ü.jets"], check=True
    )
    assert made.returncode == 0
    rank = "import tailrace_client as trace; trace.event('e'); trace.close()"
    program.run(
        [*COMMAND, "run", "--store", place / "job", "--", sys.executable, "-c", rank],
        env=ENVIRONMENT | JOB, capture_output=True, check=True,
    )  # fmt: skip
    collector = Collector(place, store=place / "live").start()
    yield place
    collector.stop()


def arguments(command, place):
    """The arguments of a command that has output, and that succeeds."""
    store = ["--store", place / "store"]
    fresh = place / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    (place / "facts.tar.gz").unlink(missing_ok=True)
    more = {
        "check": [place / "tailrace.toml"],
        "run": ["--store", fresh, "--", "true"],
        "verify": [place / "store"],
        "merge": ["--into", fresh, place / "job"],
        "ranks": ["--store", place / "job" / "n1"],
        "import": ["--store", fresh, place / "ü.jets"],
        "verdict": [WHOLE],
        "query": [*store, "FROM events ORDER BY ALL"],
        "diff": [place / "store", place / "store"],
        "follow": [*store, "--from-start", "--lines", "3"],
        "top": ["--store", place / "live", "--count", "1", "--json"],
        "collectors": [*store, "--metrics"],
        "export": [*store, "--to", "csv", "-o", "-"],
        "doctor": ["--help"],  # itself takes five seconds
        "demo": ["--help"],
        "completion": ["fish"],
        "bundle": [*store, "-o", place / "facts.tar.gz"],
    }
    return [command, *map(str, more.get(command, store))]


def in_shell(given, redirections, **options):
    """Run a command whose streams a shell redirects. A process that is forked has all of them, so this one is not."""
    shell = ["sh", "-c", f'exec "$@" {redirections}', "sh", *COMMAND, *given]
    return subprocess.run(
        shell, env=ENVIRONMENT, capture_output=True, timeout=120, check=False, **options
    )


@contextmanager
def broken(how):
    """A descriptor whose device is full, or a pipe whose reader is gone."""
    if how == "full":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
        os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def test_every_command_is_tried():
    assert COMMANDS.keys() > SERVE
    assert {arguments(name, Path("/nowhere"))[0] for name in COMMANDS} == COMMANDS.keys()


@pytest.mark.parametrize(("command", "how"), in_turn(TRIED, [*BROKEN_STDOUT]))
def test_output_that_does_not_arrive_is_an_error(command, how, place):
    given = arguments(command, place)
    if how == "closed":
        done = in_shell(given, ">&-")
    else:
        with broken(how) as descriptor:
            done = program.run(
                [*COMMAND, *given], env=ENVIRONMENT, stdout=descriptor, stderr=subprocess.PIPE
            )
    errors = done.stderr.decode()
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    if command in QUIET:
        assert done.returncode == 0, errors
        return
    assert done.returncode == BROKEN_STDOUT[how], errors
    assert ("tailrace: standard output: " in errors) == (how != "unread")


@pytest.mark.parametrize(("command", "how"), in_turn(TRIED, ["closed", "full"]))
def test_words_that_do_not_arrive_change_nothing(command, how, place):
    given = arguments(command, place)
    if how == "closed":
        done = in_shell(given, "<&- 2>&-")
    else:
        with broken(how) as descriptor:
            done = program.run(
                [*COMMAND, *given], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=descriptor
            )
    assert done.returncode == 0
    assert (done.stdout != b"") == (command not in QUIET)
    assert b"Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("command", "encoding"),
    in_turn(
        ["check", "query", "streams", "import", "follow", "export"], ["ascii:strict", "utf-16"]
    ),
)
def test_output_is_the_same_in_any_encoding(command, encoding, place):
    wide, narrow = (
        program.run(
            [*COMMAND, *arguments(command, place)],
            env=ENVIRONMENT | {"PYTHONIOENCODING": each},
            capture_output=True,
            executable=each == encoding,
        )
        for each in ("utf-8", encoding)
    )
    assert narrow.returncode == 0, narrow.stderr
    assert b"Traceback" not in narrow.stderr
    assert narrow.stdout == wide.stdout


def test_a_file_whose_name_is_no_text_is_named_on_output(place):
    odd = os.fsencode(place) + b"/\xff.jets"
    shutil.copy(place / "ü.jets", odd)
    given = [*COMMAND, "import", "--store", str(place / "odd"), os.fsdecode(odd)]
    done = subprocess.run([*given, "--json"], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    again = subprocess.run(given, env=ENVIRONMENT, capture_output=True, check=False)
    assert (again.returncode, again.stderr) == (0, b"")
    assert rb"\udcff.jets" in again.stdout or rb"\xff.jets" in again.stdout


@pytest.mark.parametrize("command", ["query", "export", "follow"])
def test_a_slow_reader_of_a_nonblocking_pipe_gets_everything(command, place):
    given = arguments(command, place)[: -2 if command == "follow" else None]
    if command == "follow":
        given += ["--lines", "199"]
    whole = program.run([*COMMAND, *given], env=ENVIRONMENT, capture_output=True).stdout
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    assert len(whole) > 4096
    process = program.start(
        [*COMMAND, *given], env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    time.sleep(1)  # the pipe fills meanwhile
    with os.fdopen(reading, "rb") as file:
        read = file.read()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert read == whole


def test_a_statement_that_cannot_be_read_is_an_error(place):
    query = ["query", "--store", str(place / "store"), "-"]
    closed = in_shell(query, "<&-")
    assert (closed.returncode, closed.stderr) == (
        1, b"tailrace: standard input: Bad file descriptor\n"
    )  # fmt: skip
    odd = program.run([*COMMAND, *query], env=ENVIRONMENT, input=b"\xff", capture_output=True)
    assert odd.returncode == 2
    assert b"is not UTF-8" in odd.stderr


def test_a_statement_arrives_through_a_nonblocking_pipe(place):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = program.start(
        [*COMMAND, "query", "--store", place / "store", "--csv", "-"],
        env=ENVIRONMENT, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(reading)
    time.sleep(1)
    os.write(writing, b"SELECT 1 AS one")
    os.close(writing)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"one\n1\n"), errors


def test_a_closed_reader_ends_a_long_answer_quietly(place):
    """The pipe is full before its reader goes."""
    statement = "SELECT * FROM range(10_000_000)"
    with subprocess.Popen(
        [*COMMAND, "query", "--store", place / "store", "--csv", statement],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"range\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


PROGRAM = """
import os, sys
print([os.path.exists(f"/proc/self/fd/{number}") for number in range(3)], file=open(sys.argv[1], "w"))
raise SystemExit(7)
"""


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_is_run_with_the_streams_as_they_were_given(closed, place, tmp_path):
    seen = tmp_path / "seen"
    given = ["run", "--store", str(tmp_path / "store"), "--", sys.executable, "-c", PROGRAM, seen]
    done = in_shell([*map(str, given)], closed)
    assert done.returncode == 7, done.stderr
    expected = [("<" not in closed), (" >" not in f" {closed}"), ("2>" not in closed)]
    assert seen.read_text() == f"{expected}\n"


def test_a_program_is_run_though_nobody_reads_our_words(tmp_path):
    """Standard error is a full pipe; the certificate's lines do not fit, and its end waits for nobody."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    store = tmp_path / "store"
    with program.start(
        [*COMMAND, "run", "--store", store, "--", "sh", "-c", "exit 7"],
        env=ENVIRONMENT, stderr=writing, stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        ended = threading.Timer(60, process.kill)
        ended.start()
        assert process.wait() == 7
        ended.cancel()
    os.close(writing)
    os.close(reading)
    assert (store / "certificate.json").exists()
