"""`tailrace import`: finished files, once, however often and whatever interrupts it."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.query.asking import ask
from tests.system.collector import Collector, until

VECTORS = Path(__file__).parents[1] / "vectors"


def command(store, *arguments):
    return [sys.executable, "-m", "tailrace", "import", "--store", str(store), *map(str, arguments)]


def do(store, *arguments, code=0):
    """Import; what it printed."""
    done = subprocess.run(
        command(store, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def jets(records):
    lines = ['{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}']
    lines += [
        f'{{"clk":{n},"type":"record","name":"r","record_type":"R","id":{n},"parent_id":null,"description":""}}'
        for n in range(1, records + 1)
    ]
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture
def traces(tmp_path):
    """A finished trace of each format, by the names their producers give them, and a stray file."""
    runs = tmp_path / "runs"
    shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", runs / "ovni")
    for name, vector in {
        "hep.trace": "heph/runtime.in",
        "out.jets": "jets/tracegen_tiny.in",
        "trace-1-app.pfw": "dftracer/v200_py_brackets.in",
        "trace": "et3/spec_simple.in",
    }.items():
        shutil.copy(VECTORS / vector, runs / name)
    (runs / "notes.txt").write_text("nothing that a tracer wrote\n")
    return runs


def test_every_format_is_recognised(traces, tmp_path):
    said = do(tmp_path / "store", traces)
    formats = ask(
        tmp_path / "store", "SELECT format, count(*) FROM sessions GROUP BY ALL ORDER BY ALL"
    )
    assert formats == [("dftracer", 1), ("et3", 1), ("heph", 1), ("jets", 1), ("ovni", 4)]
    assert f"1 files are no trace of any known format: {traces}/notes.txt" in said
    assert ask(tmp_path / "store", "SELECT DISTINCT closed FROM sessions") == [("end of file",)]
    assert ask(tmp_path / "store", "FROM gaps") == []


def test_what_was_imported_is_not_imported_again(traces, tmp_path):
    store = tmp_path / "store"
    do(store, traces)
    rows = ask(store, "SELECT count(*) FROM events")
    said = do(store, traces)
    assert "8 files are in the table already" in said
    assert "nothing to import" in said
    (traces / "more.jets").write_bytes(jets(3))
    said = do(store, traces)
    assert ask(store, "SELECT count(*) FROM sessions WHERE peer LIKE '%more.jets'") == [(1,)]
    assert ask(store, "SELECT count(*) FROM events")[0][0] == rows[0][0] + 4 + 2
    do(store, "--again", traces / "more.jets")
    assert ask(store, "SELECT count(*) FROM sessions WHERE peer LIKE '%more.jets'") == [(2,)]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_import_goes_on_where_it_stopped(number, tmp_path):
    store, records = tmp_path / "store", 100_000
    (tmp_path / "long.jets").write_bytes(jets(records))
    process = subprocess.Popen(
        command(store, tmp_path / "long.jets"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    segments = store / "spool"
    until(
        lambda: (
            sum(p.stat().st_size for p in segments.glob("0*")) > 0 if segments.exists() else False
        ),
        "the import to begin",
    )
    time.sleep(0.4)  # the random moment of an interruption
    assert process.poll() is None, "it was done too soon to be interrupted"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    do(store, tmp_path / "long.jets")
    assert ask(store, "SELECT count(*), count(DISTINCT id) FROM events WHERE kind = 'begin'") == [
        (records, records)
    ]
    assert ask(store, "SELECT closed FROM sessions") == [("end of file",)]
    assert ask(store, "FROM gaps") == []


def test_a_file_is_what_it_is_said_to_be(tmp_path):
    (tmp_path / "whatever").write_bytes(jets(5))
    do(tmp_path / "store", "--format", "jets", tmp_path / "whatever")
    assert ask(tmp_path / "store", "SELECT count(*) FROM events WHERE kind = 'begin'") == [(5,)]


def test_mistakes_are_clear(tmp_path):
    store = tmp_path / "store"
    (tmp_path / "a.trace").write_bytes((VECTORS / "et3/spec_simple.in").read_bytes())
    assert "no-such: there is no such file" in do(store, tmp_path / "no-such", code=2)
    said = do(store, "--format", "et3", "--dialect", "odd", tmp_path / "a.trace", code=2)
    assert "dialect: must be one of auto, specification, agent for et3" in said
    assert "is no name for a source" in do(store, "--source", "A b", tmp_path / "a.trace", code=2)
    assert "'nonsense' is not" in do(store, "--format", "nonsense", tmp_path / "a.trace", code=2)


def test_a_running_daemon_keeps_its_store_to_itself(collector, tmp_path):
    (tmp_path / "a.jets").write_bytes(jets(2))
    said = do(collector.store, tmp_path / "a.jets", code=1)
    assert str(collector.process.pid) in said


def test_sessions_that_a_daemon_left_open_stay_open(collectors, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "live.jets").write_bytes(jets(10))
    source = f'[sources.runs]\ntype = "tail"\nformat = "jets"\npaths = ["{runs}"]'
    collector: Collector = collectors(sources=source).start()

    def seen():
        return collector.status()["sources"]["runs"]["seen_events"]

    until(lambda: seen() == 10, "the file to be read")
    collector.stop()
    (tmp_path / "a.jets").write_bytes(jets(2))
    do(collector.store, tmp_path / "a.jets")
    with (runs / "live.jets").open("ab") as file:
        file.write(jets(11).splitlines(keepends=True)[-1])
    collector.start()
    until(lambda: seen() == 11, "the file to be read on")
    collector.stop()
    assert len(ask(collector.store, "SELECT session FROM sessions WHERE source = 'runs'")) == 1


def test_progress_is_shown_on_a_terminal(tmp_path):
    (tmp_path / "long.jets").write_bytes(jets(50_000))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(tmp_path / "store", tmp_path / "long.jets"),
        stdout=subprocess.DEVNULL, stderr=theirs, env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # the terminal's other end is closed
    finally:
        os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"1/1 files" in shown
    assert b"rows" in shown
