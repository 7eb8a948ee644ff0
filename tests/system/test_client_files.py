"""Files that clients wrote, however their programs ended: imported, imported again, and followed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import program, toml
from tests.c.building import HERE, build, play
from tests.query.asking import ask_all
from tests.system.collector import Collector

EVENTS = 10

PYTHON = f"""
import os, signal, sys, threading
import tailrace_client as trace

address, way = f"file://{{sys.argv[1]}}", sys.argv[2]

def emit():
    for number in range({EVENTS}):
        trace.event("e", number=number)

def connected():
    emitter = trace.connect(address)
    emit()
    return emitter

def child(act):
    if os.fork() == 0:
        act()
        sys.exit()
    os.wait()

def killed():
    connected().flush()
    os.kill(os.getpid(), signal.SIGKILL)

if way == "closed":
    connected().close()
elif way == "exit":
    connected()
elif way == "exception":
    connected()
    raise SystemExit("on purpose")
elif way == "killed":
    killed()
elif way == "threads":
    emitter = connected()
    threads = [threading.Thread(target=emit) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
elif way == "forked":
    connected().flush()
    child(emit)
elif way == "forked_killed":
    connected().flush()
    child(lambda: (emit(), trace.flush(), os.kill(os.getpid(), signal.SIGKILL)))
elif way == "reconnected":
    connected().close()
    connected().close()
elif way == "run_twice":
    child(connected)
    child(connected)
elif way == "killed_and_run_again":
    child(killed)
    child(connected)
elif way == "run_again_and_killed":
    child(connected)
    child(killed)
elif way == "rotated":
    connected().close()
    os.rename(sys.argv[1], sys.argv[1] + ".1")
    connected()
elif way == "rotated_open":
    connected().flush()
    os.rename(sys.argv[1], sys.argv[1] + ".1")
    emit()
elif way == "jets":
    with trace.JetsWriter(address) as writer:
        for clock in range({EVENTS}):
            with writer.record(clock, "r", "R"):
                pass
"""

C = {
    "closed": ["connect -", "many 10", "close"],
    "exit": ["connect -", "many 10"],
    "killed": ["connect -", "many 10", "flush 1000", "kill"],
    "forked": ["connect -", "many 10", "flush 1000", "fork many 10"],
    "forked_killed": ["connect -", "many 10", "flush 1000", "fork many 10;flush 1000;kill"],
    "reconnected": ["connect -", "many 10", "close", "connect -", "many 10", "close"],
}

TWICE = {"forked", "forked_killed", "reconnected", "run_twice", "rotated", "rotated_open",
         "killed_and_run_again", "run_again_and_killed"}  # fmt: skip
"""Ways that emit the events twice."""

PYTHON_WAYS = [
    "closed", "exit", "exception", "killed", "threads", "forked", "forked_killed", "reconnected", "run_twice",
    "killed_and_run_again", "run_again_and_killed", "rotated", "rotated_open", "jets",
]  # fmt: skip


def python(file, way, **environ):
    command = [sys.executable, "-c", PYTHON, file, way]
    program.run(command, env=environ, stderr=subprocess.DEVNULL, check=False)


def pure(file, way):
    python(file, way, TAILRACE_PURE="1")


def c(file, way):
    code = -9 if way == "killed" else 0
    play(build(HERE / "play.c"), *C[way], code=code, TAILRACE_ADDRESS=f"file://{file}")


def told(store, *paths):
    """Import these paths; return the report."""
    command = [*program.COMMAND, "import", "--store", store, *paths]
    done = program.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def stored(store):
    """The rows that the views show, without what differs between two readings of one file."""
    shown = [
        "SELECT format, stream, seq, kind, name, start, attributes FROM events WHERE kind <> 'session' ORDER BY ALL",
        "SELECT stream, reason, count FROM gaps ORDER BY ALL",
        "SELECT peer, events, unknown::INT, replace(closed, 'at rest', 'end of file') FROM sessions ORDER BY ALL",
    ]
    return ask_all(store, shown)


@pytest.mark.parametrize(
    ("write", "ways"),
    [(python, PYTHON_WAYS), pytest.param(pure, PYTHON_WAYS, marks=pytest.mark.slow), (c, [*C])],
    ids=["python", "pure", "c"],
)
def test_files_that_clients_wrote_are_stored_once(write, ways, tmp_path):
    runs, store = tmp_path / "runs", tmp_path / "store"
    emitted = {}
    for way in ways:
        (runs / way).mkdir(parents=True)
        write(runs / way / "a.trace", way)
        emitted[way] = EVENTS * (5 if way == "threads" else 2 if way in TWICE else 1)
    said = told(store, runs)
    assert "empty" not in said
    imported = stored(store)
    counts = re.findall(
        r"events: (\d+) expected, (\d+) seen, 0 of them duplicates, 0 missing", said
    )
    assert [sum(map(int, each)) for each in zip(*counts, strict=True)] == [
        sum(emitted.values())
    ] * 2
    _check(imported, emitted)
    again = told(store, runs)
    files = sum(file.is_file() for file in runs.rglob("*"))
    assert again.startswith("nothing to import\n")
    assert f"\n{files} files are in the table already" in again
    assert stored(store) == imported

    sources = "".join(
        toml.source(name, "tail", name, paths=[f"{runs}/{which}"])
        for name, which in (("heph", "[!j]*"), ("jets", "jets"))
    )
    collector = Collector(tmp_path, sources=sources, store=tmp_path / "followed")
    subprocess.run([*collector.command(), "--rest"], check=True, capture_output=True)
    assert stored(tmp_path / "followed") == imported


def _check(rows, emitted):
    """Each way's events are there once, and an unknown number more is missing where a client was killed."""
    _, gaps, sessions = rows
    for way, events in emitted.items():
        of_way = [session for session in sessions if f"/{way}/" in session[0]]
        assert sum(events for _, events, *_ in of_way) == events, way
        assert any(unknown for *_, unknown, _ in of_way) == ("killed" in way), way
        assert all(closed for *_, closed in of_way), way
    assert len(gaps) == sum("killed" in way for way in emitted)
