"""`tailrace import`: finished files, once, however often and whatever interrupts it."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.configuration import choose as load
from tailrace.importing import importing
from tailrace.importing.choosing import choose
from tailrace.importing.discover import Why, find
from tailrace_client import Emitter
from tests import program, toml
from tests.forms import in_turn
from tests.query.asking import ask, ask_all
from tests.system.collector import Collector, until

VECTORS = Path(__file__).parents[1] / "vectors"
LONG = 80_000
"""Records of a file that is several times as long as a small spool."""


def command(store, *arguments):
    return [*program.COMMAND, "import", "--store", str(store), *map(str, arguments)]


def do(store, *arguments, code=0):
    """Import; what it printed."""
    done = program.run(
        command(store, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def jets(records, *, first=1, footer=True):
    lines = ['{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}']
    lines += [
        f'{{"clk":{n},"type":"record","name":"r","record_type":"R","id":{n},"parent_id":null,"description":""}}'
        for n in range(first, first + records)
    ]
    lines += ['{"type":"footer"}'] * footer
    return "\n".join(lines).encode() + b"\n"


def ids(store):
    """The ids of all JETS records that the views show, in order."""
    shown = "SELECT id FROM events WHERE kind IN ('begin', 'span') AND format = 'jets' ORDER BY id"
    return [id_ for (id_,) in ask(store, shown)]


def rows(store):
    return ask(store, "SELECT count(*) FROM stored")[0][0]


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
    assert f"1 file is not a trace of any known format:\n  {traces}/notes.txt" in said
    assert ask(tmp_path / "store", "SELECT DISTINCT closed FROM sessions") == [("end of file",)]
    lacking = """SELECT DISTINCT format, "of" FROM gaps"""
    assert ask(tmp_path / "store", lacking) == [("et3", "name")]  # its documents are not there


def test_what_was_imported_is_not_imported_again(traces, tmp_path):
    store = tmp_path / "store"
    do(store, traces)
    before = rows(store)
    said = do(store, traces)
    assert "8 files are in the table already (--again imports them once more)" in said
    assert "nothing to import" in said
    assert rows(store) == before
    (traces / "more.jets").write_bytes(jets(3))
    said = do(store, traces)
    assert ask(store, "SELECT count(*) FROM sessions WHERE peer LIKE '%more.jets'") == [(1,)]
    assert rows(store) == before + 4 + 3
    do(store, "--again", traces / "more.jets")
    assert ask(store, "SELECT count(*) FROM sessions WHERE peer LIKE '%more.jets'") == [(2,)]


def interrupt(store, trace, begun, pause, number=signal.SIGKILL):
    """Import a file, and interrupt the import `pause` seconds after `begun` has become true. If the import ended before
    the signal, repeat both on a new store, with half the pause. Return the exit status."""
    while True:
        process = program.start(
            command(store, trace), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        until(lambda: begun() or process.poll() is not None, "the import to begin")  # noqa: B023 - used at once
        time.sleep(pause)
        process.send_signal(number)
        if process.wait(timeout=180):
            return process.returncode
        shutil.rmtree(store)
        pause /= 2


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_import_goes_on_where_it_stopped(number, tmp_path):
    store, records = tmp_path / "store", 100_000
    (tmp_path / "long.jets").write_bytes(jets(records))

    def begun():
        return any(path.stat().st_size for path in (store / "spool").glob("0*"))

    status = interrupt(store, tmp_path / "long.jets", begun, 0.4, number)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    do(store, tmp_path / "long.jets")
    assert ask(
        store, "SELECT count(*), count(DISTINCT id) FROM events WHERE kind IN ('begin', 'span')"
    ) == [(records, records)]
    assert ask(store, "SELECT closed FROM sessions") == [("end of file",)]
    assert ask(store, "FROM gaps") == []


def test_a_file_that_has_grown_is_shown_once_and_whole(tmp_path):
    store, file = tmp_path / "store", tmp_path / "a.jets"
    whole = jets(9)
    for size in (200, 450, len(whole)):
        file.write_bytes(whole[:size])
        do(store, file)
    assert ids(store) == [*range(1, 10)]
    assert ask(store, "FROM gaps") == [], "what the cut lines were said to lack"
    assert ask(store, "SELECT events, closed FROM sessions") == [(9, "end of file")]
    before = rows(store)
    do(store, file)
    assert rows(store) == before


def test_the_file_of_a_client_is_imported_once_and_whole(tmp_path):
    """A client ends its session with a goodbye, before its file ends."""
    store, file = tmp_path / "store", tmp_path / "a.heph"
    emitter = Emitter(f"file://{file}")
    for number in range(9):
        emitter.event("e", number=number)
    assert emitter.close(30)
    whole = file.read_bytes()
    for size in (len(whole) // 2, len(whole)):
        file.write_bytes(whole[:size])
        do(store, file)
    counts = "SELECT count(*), count(DISTINCT seq) FROM events WHERE kind = 'span'"
    assert ask(store, counts) == [(9, 9)]
    assert ask(store, "SELECT closed FROM sessions") == [("goodbye",)]
    assert ask(store, "FROM gaps") == []
    before = rows(store)
    assert "1 file is in the table already" in do(store, file)
    assert rows(store) == before


GROWING = {
    "a.trace": "heph/runtime.in",
    "a.jets": "jets/tracegen_tiny.in",
    "a.pfw": "dftracer/v200_py_brackets.in",
    "trace": "et3/agent_simple.in",
    "loom.l/proc.1/thread.1/stream.obs": "ovni/traces/two-looms-offsets/ovni",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*GROWING], id="all"),
        *(pytest.param([name], id=name, marks=pytest.mark.slow) for name in GROWING),
    ],
)
def test_files_that_have_grown_are_shown_as_if_they_were_read_once(names, tmp_path):
    runs, whole = tmp_path / "runs", {}
    for name in names:
        vector = VECTORS / GROWING[name]
        vector = next(vector.rglob("*.obs")) if vector.is_dir() else vector
        whole[runs / name] = vector.read_bytes()
    for part in (1, 2):
        for file, data in whole.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data[: len(data) * part // 2])
        do(tmp_path / "store", runs)
    do(tmp_path / "other", runs)
    columns = "COLUMNS(lambda c: c NOT IN ('session', 'opened', 'closed_at'))"
    views = ("events WHERE kind <> 'session'", "spans", "gaps", "streams", "sessions")
    shown = [f"SELECT {columns} FROM {view} ORDER BY ALL" for view in views]  # noqa: S608 - our own words
    grown, read_once = (ask_all(tmp_path / name, shown) for name in ("store", "other"))
    for view, ours, theirs in zip(views, grown, read_once, strict=True):
        assert ours == theirs, view


def test_all_runs_of_a_file_that_has_grown_are_replaced(tmp_path):
    """A header within a file is a restart: a session of its own in the views."""
    store, file = tmp_path / "store", tmp_path / "a.jets"
    file.write_bytes(jets(3) + jets(3, first=4))
    do(store, file)
    with file.open("ab") as more:
        more.write(jets(3, first=7))
    do(store, file)
    assert ids(store) == [*range(1, 10)]
    assert ask(store, "SELECT events FROM sessions ORDER BY session") == [(3,), (3,), (3,)]


@pytest.mark.parametrize("second", [jets(5, first=6), jets(3, first=6)], ids=["equal", "shorter"])
def test_a_second_run_into_the_same_file_is_stored_beside_the_first(second, tmp_path):
    store, file = tmp_path / "store", tmp_path / "a.jets"
    file.write_bytes(jets(5))
    do(store, file)
    with file.open("r+b") as same:  # the same inode
        same.truncate()
        same.write(second)
    do(store, file)
    do(store, file)
    assert ids(store) == [*range(1, 6 + second.count(b'"record"'))]


@pytest.mark.parametrize("after", [jets(3), b"", None])
def test_a_file_that_changed_before_it_was_read_is_named_with_what_became_of_it(after, tmp_path):
    file = tmp_path / "a.jets"
    file.write_bytes(jets(5))

    @contextmanager
    def emptied():
        """Empty the file after it was chosen, until it was looked at."""
        file.write_bytes(b"")
        yield lambda _: None
        file.unlink() if after is None else file.write_bytes(after)

    loaded = load(None, str(tmp_path / "store"))
    summary, _ = importing.take(loaded, importing.Wanted((file,)), emptied)
    [left] = summary.left_out
    assert (left.path, left.why) == (
        str(file),
        Why.GONE if after is None else Why.CHANGED if after else Why.EMPTY,
    )
    assert summary.failed
    if after:
        do(tmp_path / "store", file)
        assert ids(tmp_path / "store") == [1, 2, 3]


def test_a_document_that_has_changed_is_taken_in(tmp_path):
    store, trace = tmp_path / "store", tmp_path / "trace"
    shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", trace)
    do(store, trace)
    events = ask(store, "SELECT sum(events) FROM sessions")
    changed = next(trace.rglob("stream.json"))
    changed.write_text(changed.read_text().replace("{", '{"changed": 1, ', 1))
    said = do(store, trace)
    assert "3 files are in the table already" in said
    assert ask(store, "SELECT sum(events) FROM sessions") == events
    said = do(store, trace)
    assert "4 files are in the table already" in said


def test_what_stands_where_a_document_should_be_keeps_nobody_waiting(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    shutil.copy(VECTORS / "et3/agent_simple.in", runs / "trace")
    os.mkfifo(runs / "classs.list")
    do(store, runs, code=1)  # the tail says that it could not read it
    before = rows(store)
    assert "1 file is in the table already" in do(store, runs)
    assert rows(store) == before


def test_copies_are_left_out_and_named_however_often(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    for copy in ("a", "b"):
        shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", runs / copy)
    (runs / "c.jets").write_bytes(jets(20))
    (runs / "c.jets.gz").write_bytes(gzip.compress(jets(20)))
    (runs / "torn.jets").write_bytes(jets(20, first=21))
    (runs / "torn.jets.gz").write_bytes(gzip.compress(jets(20, first=21)[:500]))
    said = do(store, runs)
    assert "6 files are copies of other files, or of parts of others:" in said
    assert f"  {runs}/c.jets.gz: its content is in {runs}/c.jets\n" in said
    assert f"  {runs}/torn.jets.gz: its content is in {runs}/torn.jets\n" in said
    assert f": its content is in {runs}/a/" in said
    assert ids(store) == [*range(1, 41)]
    spans, before = ask(store, "SELECT count(*) FROM spans"), rows(store)
    assert "nothing to import" in do(store, runs)
    (runs / "c.jets").unlink()
    said = do(store, runs)
    assert f"  {runs}/c.jets.gz: its content is in {runs}/c.jets\n" in said
    assert ask(store, "SELECT count(*) FROM spans") == spans
    assert rows(store) == before


def test_copies_in_different_directories_are_one_file(tmp_path):
    """The producer of a moved, packed or renamed file is the same, and so are its events."""
    store, runs = tmp_path / "store", tmp_path / "runs"
    for name in ("a", "b", "c/d", "e"):
        (runs / name).mkdir(parents=True)
    for name in ("a/t.jets", "b/t.jets", "c/d/other.jets"):
        (runs / name).write_bytes(jets(20))
    (runs / "e/t.jets.gz").write_bytes(gzip.compress(jets(20)))
    (runs / "e/less.jets").write_bytes(jets(19))
    (runs / "e/more.jets").write_bytes(jets(20) + jets(1, first=21))
    said = do(store, runs)
    assert "3 files are copies of other files, or of parts of others:" in said
    assert f"  {runs}/e/t.jets.gz: its content is in {runs}/" in said
    assert ids(store) == sorted([*range(1, 21), *range(1, 20), *range(1, 22)])
    before = rows(store)
    assert "nothing to import" in do(store, runs)
    for name in ("moved.jets", "packed.gz"):
        data = jets(20) if name == "moved.jets" else gzip.compress(jets(20))
        (tmp_path / name).write_bytes(data)
        said = do(store, tmp_path / name)
        assert (
            f"1 file is in the table already (--again imports it once more):\n  {tmp_path}/{name}: its"
            in said
        )
    assert rows(store) == before


RECORD = '{{"id":{},"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":{},"dur":1,"ph":"X","args":{{"hostname":"h"}}}}\n'


def dftracer(first, records):
    return "".join(RECORD.format(n, 1000 + n) for n in range(first, first + records))


def test_pieces_of_a_trace_are_left_out_beside_it_and_imported_without_it(tmp_path):
    """dftracer_split writes the lines of all traces of a directory into files of its own, by default below it."""
    store, runs = tmp_path / "store", tmp_path / "runs"
    (runs / "split").mkdir(parents=True)
    (runs / "run.pfw").write_text("[\n" + dftracer(0, 200) + "]")
    for number in range(2):
        piece = f"[\n{dftracer(100 * number, 100)}]"
        (runs / f"split/run_chunk{number}.pfw.gz").write_bytes(gzip.compress(piece.encode()))
    seen = "SELECT count(*), count(DISTINCT start) FROM events WHERE kind = 'span'"
    said = do(store, runs)
    assert ask(store, seen) == [(200, 200)]
    assert "2 files are copies of other files, or of parts of others:" in said
    assert f"  {runs}/split/run_chunk1.pfw.gz: its content is in {runs}/run.pfw\n" in said
    before = rows(store)
    assert "nothing to import" in do(store, runs)
    assert rows(store) == before
    do(tmp_path / "other", runs / "split")
    assert ask(tmp_path / "other", seen) == [(200, 200)]
    (runs / "split/run_chunk0.pfw.gz").write_bytes(gzip.compress(dftracer(150, 60).encode()))
    said = do(tmp_path / "third", runs)
    assert ask(tmp_path / "third", seen)[0][1] == 210, "a piece with a line more is no copy"
    assert "1 file is a copy of another file, or of a part of others:" in said


@pytest.mark.parametrize(
    ("name", "options"),
    in_turn(
        ["split/a.pfw", ".hidden/a.pfw", ".a.pfw", "a.log", "a.1", "a"],
        [[], ["--format", "dftracer"]],
    ),
)
def test_a_trace_is_one_by_its_content_whatever_its_name_is(name, options, tmp_path):
    store, file = tmp_path / "store", tmp_path / "runs" / name
    file.parent.mkdir(parents=True)
    file.write_text("[\n" + dftracer(0, 5))
    do(store, tmp_path / "runs", *options)
    assert ask(store, "SELECT count(*) FROM events WHERE kind = 'span'") == [(5,)]


def test_each_format_is_recognised_by_its_content(traces, tmp_path):
    """ovni's streams have their names and places from libovni; the other tracers' files are renamed."""
    for number, name in enumerate(("hep.trace", "out.jets", "trace-1-app.pfw", "trace")):
        (traces / name).rename(traces / f".{number}.log")
    (traces / "package.json").write_text('{"name": "a", "cat": "b", "pid": 3}\n')
    said = do(tmp_path / "store", traces)
    found = ask(tmp_path / "store", "SELECT format, count(*) FROM sessions GROUP BY ALL ORDER BY 1")
    assert found == [("dftracer", 1), ("et3", 1), ("heph", 1), ("jets", 1), ("ovni", 4)]
    assert "2 files are not traces of any known format" in said
    said = do(tmp_path / "other", traces, "--format", "et3")
    assert ask(tmp_path / "other", "SELECT format FROM sessions") == [("et3",)]
    assert "neither their names nor their contents are of et3; list the files themselves" in said


def test_files_that_only_begin_alike_are_no_copies(tmp_path):
    """The tail's rule looks at the first bytes while files grow; a finished one is compared whole."""
    store = tmp_path / "store"
    (tmp_path / "a.jets").write_bytes(jets(20))
    (tmp_path / "a.jets.gz").write_bytes(gzip.compress(jets(10) + jets(10, first=21)))
    said = do(store, tmp_path / "a.jets", tmp_path / "a.jets.gz")
    assert ids(store) == sorted([*range(1, 21), *range(1, 11), *range(21, 31)])
    assert "copy" not in said
    assert "2 files are in the table already" in do(
        store, tmp_path / "a.jets", tmp_path / "a.jets.gz"
    )


def test_an_interrupted_import_of_several_formats_and_copies_ends_like_another(tmp_path):
    """The rest, when it is repeated, may be of one format: the sources keep their names.

    The repeated import first stores the spool's content. A session that stops there gets rows about its pending record
    or its unresolved names; how many depends on the moment of the kill."""
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    (runs / "long.jets").write_bytes(jets(LONG))
    (runs / "long.jets.gz").write_bytes(gzip.compress(jets(LONG), 1))
    shutil.copy(VECTORS / "et3/spec_simple.in", runs / "trace")
    killed_once(store, runs)
    do(store, runs)
    do(tmp_path / "other", runs)
    kinds = (
        "SELECT source, kind, name, count(*) FROM stored WHERE (kind, name) <> ('session', 'rest')"
        " GROUP BY ALL ORDER BY ALL"
    )
    assert ask(store, kinds) == ask(tmp_path / "other", kinds)
    rests = (
        "SELECT session, arg_max(attributes->>'rest', wall) FROM stored WHERE (kind, name) = ('session', 'rest')"
        " GROUP BY ALL"
    )
    for each in (store, tmp_path / "other"):
        assert {rest for _, rest in ask(each, rests)} <= {""}, "no session rests in the end"
    sessions = "SELECT source, format, events, missing, closed FROM sessions ORDER BY ALL"
    assert ask(store, sessions) == ask(tmp_path / "other", sessions)


def test_a_file_that_is_compressed_after_an_interruption_is_shown_once(tmp_path):
    store, file = tmp_path / "store", tmp_path / "long.jets"
    file.write_bytes(jets(LONG))
    killed_once(store, file)
    (tmp_path / "long.jets.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
    file.unlink()
    do(store, tmp_path / "long.jets.gz")
    assert ask(
        store, "SELECT count(*), count(DISTINCT id) FROM events WHERE kind IN ('begin', 'span')"
    ) == [(LONG, LONG)]


def test_links_out_of_a_directory_are_named_and_not_followed(tmp_path):
    """Somebody else may have put them there. Within the directory, and by name, they are what they lead to."""
    store, place, other = tmp_path / "store", tmp_path / "traces", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    (place / "own.jets").write_bytes(jets(3))
    (place / "within.jets").symlink_to("own.jets")
    for name in ("a", "b"):
        (other / f"{name}.jets").write_bytes(jets(3, first=100))
    (place / "away.jets").symlink_to(other / "a.jets")
    (place / "up.jets").symlink_to("../other/a.jets")
    (place / "around").symlink_to(other)
    (place / "secret.txt").symlink_to("/etc/passwd")
    said = do(store, place, code=1)
    assert ids(store) == [1, 2, 3]
    assert (
        "4 files are links out of the directory, and are not followed; give them by name:" in said
    )
    for name in ("around", "away.jets", "up.jets", "secret.txt"):
        assert f"  {place / name}\n" in said
    (place / "alias").symlink_to(place)
    for name in ("around", "away.jets", "up.jets", "secret.txt"):
        (place / name).unlink()
    do(store, place / "alias")
    do(store, place, other / "a.jets")
    assert ids(store) == [1, 2, 3, 100, 101, 102]


def test_a_link_that_takes_the_place_of_a_file_that_was_found_is_not_followed(tmp_path):
    place, secret = tmp_path / "traces", tmp_path / "secret"
    place.mkdir()
    secret.write_bytes(jets(5, first=100))
    for name in ("a", "b"):
        (place / f"{name}.jets").write_bytes(jets(3, first=ord(name)))
    found = find([place], None)
    choice = choose(found.traces, [], again=False)
    (place / "b.jets").unlink()
    (place / "b.jets").symlink_to(secret)
    loaded = load(None, str(tmp_path / "store"))
    wanted = importing.sources("import", choice.taken, "auto", formats=1)
    done = importing.run(loaded, wanted, choice.taken, found.within, lambda _: None)
    assert done.status.sources["import"].refused == {"outside": 1}
    assert ids(tmp_path / "store") == [97, 98, 99]


def test_nothing_garbage_and_strangers_are_failures(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    assert "nothing to import" in do(store, runs, code=1)
    (runs / "notes.txt").write_text("nothing that a tracer wrote\n")
    assert "is not a trace of any known format" in do(store, runs, code=1)
    (runs / "a.jets").write_bytes(jets(2))
    do(store, runs)
    said = do(store, runs / "a.jets", runs / "notes.txt", code=1)
    assert "is not a trace of any known format" in said
    assert "no event" not in said
    for _ in range(2):
        said = do(store, "--format", "jets", runs / "notes.txt", code=1)
        assert "no file contains an event" in said


def test_a_trace_without_a_byte_is_named(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    (runs / "a.jets").write_bytes(jets(2))
    (runs / "job.err").touch()
    assert f"1 file has no content:\n  {runs}/job.err" in do(store, "--max-loss", 0, runs)
    (runs / "b.jets").touch()
    (runs / "c.jets.gz").write_bytes(gzip.compress(b""))
    said = do(store, "--max-loss", 0, runs, code=4)
    assert (
        f"3 files have no content:\n  {runs}/b.jets\n  {runs}/c.jets.gz\n  {runs}/job.err" in said
    )
    do(store, runs)
    (runs / "c.jets.gz").write_bytes(gzip.compress(jets(2))[:14])  # no content can be seen yet
    assert f"  {runs}/c.jets.gz: compressed data" in do(store, "--format", "jets", runs)
    do(store, runs / "b.jets", code=1)


def test_a_loss_beyond_the_budget_is_said_whenever_the_command_is_given(tmp_path):
    store = tmp_path / "store"
    (tmp_path / "a.jets").write_bytes(
        jets(8, footer=False) + b'{"type":"footer","total_records":10}\n'
    )
    for _ in range(2):
        assert "more than 1 event is missing" in do(
            store, "--max-loss", 1, tmp_path / "a.jets", code=4
        )
        do(store, "--max-loss", 2, tmp_path / "a.jets")
    (tmp_path / "b.jets").write_bytes(jets(2))
    do(store, "--max-loss", 0, tmp_path / "b.jets")


def test_its_figures_are_of_this_import(tmp_path):
    store = tmp_path / "store"
    (tmp_path / "a.jets").write_bytes(
        jets(8, footer=False) + b'{"type":"footer","total_records":10}\n'
    )
    (tmp_path / "b.jets").write_bytes(
        jets(3, footer=False) + b'{"type":"footer","total_records":4}\n'
    )
    do(store, tmp_path / "a.jets")
    said = do(store, tmp_path / "b.jets")
    assert f"{(tmp_path / 'b.jets').stat().st_size} bytes in 1 session:" in said
    assert "4 expected, 3 seen, 0 of them duplicates, 1 missing" in said
    assert "gaps found: network 1" in said


def test_the_summary_is_there_for_machines(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    (runs / "a.jets").write_bytes(jets(8, footer=False) + b'{"type":"footer","total_records":10}\n')
    (runs / "a.jets.gz").write_bytes(gzip.compress((runs / "a.jets").read_bytes()))
    first = json.loads(do(store, "--json", runs))
    (file,) = first["files"]
    session = file.pop("session")
    assert file == {
        "path": f"{runs}/a.jets", "format": "jets", "source": "import", "events": 8,
        "missing": {"network": 2}, "unknown": False,
    }  # fmt: skip
    copy = {"path": f"{runs}/a.jets.gz", "why": "copy", "of": f"{runs}/a.jets"}
    assert first["left_out"] == [copy]
    assert (first["events"], first["missing"], first["unknown"]) == (8, {"network": 2}, False)
    second = json.loads(do(store, "--json", runs))
    assert second["left_out"] == [
        {"path": f"{runs}/a.jets", "why": "imported", "sessions": [session]}, copy,
    ]  # fmt: skip
    assert (second["files"], second["events"], second["missing"]) == ([], 0, {})
    assert second["imported_before"] == [file | {"session": session}]
    failed = json.loads(
        do(store, "--json", "--max-loss", 0, runs, code=4).partition("more than")[0]
    )
    assert failed == second


SMALL_SPOOL = {
    "TAILRACE_SPOOL_SEGMENT_SIZE": "1MiB",
    "TAILRACE_SPOOL_MAX_SIZE": "2MiB",
    "TAILRACE_STORE_COMMIT_ROWS": "5000",
}


def killed_once(store, *paths):
    """Import, and be killed when short files are in the table, and of a long one a part: a small
    spool holds no more of it."""
    process = program.start(
        command(store, *paths), env=os.environ | SMALL_SPOOL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    until(lambda: len(list(store.glob("events/**/*.parquet"))) > 1, "the second commit", pause=0.01)
    process.kill()
    said, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL, said
    assert ask(store, "SELECT count(*) FROM stored WHERE kind IN ('begin', 'span')")[0][0] < LONG


def test_a_killed_import_is_to_be_repeated_and_then_the_ledger_adds_up(tmp_path):
    store, file = tmp_path / "store", tmp_path / "long.jets"
    file.write_bytes(jets(LONG))
    killed_once(store, file)
    asked = [*program.COMMAND, "gaps", "--store", store]
    said = program.run(asked, capture_output=True, text=True, check=True).stdout
    assert "did not read its files to their end; repeat the same command to continue it" in said
    assert "collector" not in said
    said = do(store, file)
    bytes_, sessions, decoded, rest = map(
        int, re.findall(r"(\d+) [bsdm]", said.splitlines()[1])[:4]
    )
    assert (sessions, rest) == (1, 0)
    assert 0 < bytes_ == decoded < file.stat().st_size
    assert f"stored in {store} as import: {LONG} events of 1 file\n" in said
    asked = program.run(asked, capture_output=True, text=True, check=True).stdout
    assert asked == "no gaps: nothing is known to be missing\n"


def test_files_that_lack_events_are_named(tmp_path):
    store, runs = tmp_path / "store", tmp_path / "runs"
    runs.mkdir()
    (runs / "whole.jets").write_bytes(jets(3))
    (runs / "torn.jets").write_bytes(jets(5, footer=False)[:-30])
    (runs / "cut.jets").write_bytes(jets(2, footer=False))
    said = do(store, runs)
    lines = [
        "2 files lack events:",
        f"  {runs}/cut.jets: an unknown number missing",
        f"  {runs}/torn.jets: 1 (truncated 1) and an unknown number more missing",
    ]
    assert f"stored in {store} as import: 9 events of 3 files" in said
    assert "\n".join(lines) in said
    assert "\n".join(lines) in do(store, runs), "said whenever the command is given"
    for name in ("gaps", "streams"):
        shown = program.run(
            [*program.COMMAND, name, "--store", store, "--json"], capture_output=True, check=True
        )
        peers = {json.loads(line)["peer"] for line in shown.stdout.splitlines()}
        wanted = {"cut.jets", "torn.jets"} | ({"whole.jets"} if name == "streams" else set())
        assert peers == {f"{runs}/{file}" for file in wanted}


def test_an_imported_file_of_another_format_is_named_as_what_it_is(tmp_path):
    store, file = tmp_path / "store", tmp_path / "a.jets"
    file.write_bytes(jets(3))
    do(store, file)
    before = rows(store)
    assert f"  {file}, imported as jets\n" in do(store, "--format", "heph", file)
    assert rows(store) == before
    do(store, "--format", "heph", "--again", file, code=1)
    assert ask(store, "SELECT DISTINCT format FROM sessions ORDER BY ALL") == [("heph",), ("jets",)]


def test_where_nothing_is_to_be_found_one_sentence_says_so(tmp_path):
    empty, file = tmp_path / "empty", tmp_path / "a.jets"
    empty.mkdir()
    file.write_bytes(jets(3))
    said = do(tmp_path / "store", empty, code=1)
    assert said == "nothing to import\nthere is no file in the directories that were given\n"
    assert "is not a directory" in do(file, file, code=1)
    done = program.run(
        [*program.COMMAND, "gaps", "--store", file], capture_output=True, text=True, check=False
    )
    assert f"{file}: is a file; a store is a directory" in done.stderr


def test_a_file_is_what_it_is_said_to_be(tmp_path):
    (tmp_path / "whatever").write_bytes(jets(5))
    do(tmp_path / "store", "--format", "jets", tmp_path / "whatever")
    assert ask(
        tmp_path / "store", "SELECT count(*) FROM events WHERE kind IN ('begin', 'span')"
    ) == [(5,)]


def test_mistakes_are_clear(tmp_path):
    store = tmp_path / "store"
    (tmp_path / "a.trace").write_bytes((VECTORS / "et3/spec_simple.in").read_bytes())
    assert "no-such: does not exist" in do(store, tmp_path / "no-such", code=2)
    said = do(store, "--format", "et3", "--dialect", "odd", tmp_path / "a.trace", code=2)
    assert "dialect: must be one of auto, specification, agent for et3" in said
    assert "is not a valid name for a source" in do(
        store, "--source", "A b", tmp_path / "a.trace", code=2
    )
    assert "'nonsense' is not" in do(store, "--format", "nonsense", tmp_path / "a.trace", code=2)


def test_an_import_beside_a_running_collector_is_a_collector_of_its_own(collector, tmp_path):
    """Interrupted or not, it goes on where it stopped, and stores nothing twice once the collector has ended."""
    store, file = collector.store, tmp_path / "a.jets"
    file.write_bytes(jets(3))
    do(store, file)
    (tmp_path / "long.jets").write_bytes(jets(LONG, first=4))
    killed_once(store, tmp_path / "long.jets")
    do(store, tmp_path / "long.jets")
    assert ids(store) == [*range(1, LONG + 4)]
    assert collector.running
    collector.stop()
    assert "2 files are in the table already" in do(store, file, tmp_path / "long.jets")
    assert ids(store) == [*range(1, LONG + 4)]
    assert ask(store, "SELECT DISTINCT closed FROM sessions WHERE source = 'import'") == [
        ("end of file",)
    ]


KILLED_AT_REMOVAL = """
import os, signal, sys
def hook(event, arguments):
    if event == "os.remove" and str(arguments[0]).endswith("/import/unfinished"):
        os.rename(arguments[0], "{gone}")
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from tailrace.cli.commands import tailrace
tailrace()
"""
"""The program, killed as soon as it has removed the mark of an import that did not finish."""


def test_an_import_with_open_sessions_never_counts_as_finished(collector, tmp_path):
    """Otherwise the files are read again from their beginnings, once the collector beside it has ended."""
    store, file = collector.store, tmp_path / "long.jets"
    file.write_bytes(jets(LONG))
    hooked = [sys.executable, "-c", KILLED_AT_REMOVAL.format(gone=tmp_path / "gone")]
    process = program.start(
        [*hooked, *command(store, file)[len(program.COMMAND) :]], env=os.environ | SMALL_SPOOL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    until(lambda: len(list(store.glob("events/**/*.parquet"))) > 1, "the second commit", pause=0.01)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=180)
    other = tmp_path / "other.jets"
    other.write_bytes(jets(3, first=LONG + 1))
    do(store, other, "--source", "other")
    collector.stop()
    do(store, file)
    assert ids(store) == [*range(1, LONG + 4)]
    assert process.returncode == 128 + signal.SIGINT, said


def test_what_a_collector_has_taken_over_of_an_import_is_not_stored_twice(collectors, tmp_path):
    collector, file = collectors(), tmp_path / "long.jets"
    file.write_bytes(jets(LONG))
    killed_once(collector.store, file)
    collector.start()
    said = do(collector.store, file, code=1)
    assert f"{file}: an interrupted import has read a part of this file" in said
    collector.stop()
    do(collector.store, file)
    assert ids(collector.store) == [*range(1, LONG + 1)]


def test_sessions_that_a_daemon_left_open_stay_open(collectors, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "live.jets").write_bytes(jets(10, footer=False))
    source = toml.source("runs", "tail", "jets", paths=[runs])
    collector: Collector = collectors(sources=source).start()

    def seen():
        return collector.status()["sources"]["runs"]["seen_events"]

    until(lambda: seen() == 10, "the file to be read")
    collector.stop()
    (tmp_path / "a.jets").write_bytes(jets(2))
    do(collector.store, tmp_path / "a.jets")
    with (runs / "live.jets").open("ab") as file:
        file.write(jets(11, footer=False).splitlines(keepends=True)[-1])
    collector.start()
    until(lambda: seen() == 11, "the file to be read on")
    collector.stop()
    assert len(ask(collector.store, "SELECT session FROM sessions WHERE source = 'runs'")) == 1


def test_progress_is_shown_on_a_terminal(tmp_path):
    (tmp_path / "long.jets").write_bytes(jets(50_000))
    ours, theirs = pty.openpty()
    process = program.start(
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
    assert process.wait(timeout=180) == 0
    assert b"1/1 file" in shown
    assert b"rows" in shown
