"""`tailrace import` of what is no plain readable file: nothing blocks, nothing is passed over without a
word."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.importing.discover import Why, find
from tests import toml
from tests.forms import in_turn
from tests.system.collector import until
from tests.system.test_import import VECTORS, ask, do, interrupt, jets

NOBODY = 65534


@pytest.fixture
def shared():
    """A directory that is everybody's to search, with a file in it and below it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "below").mkdir()
        (directory / "a.jets").write_bytes(jets(1))
        (directory / "below/b.jets").write_bytes(jets(1))
        yield directory
        (directory / "below").chmod(0o755)


@contextmanager
def nobody():
    """As somebody who may not read everything."""
    before = os.geteuid()
    if not before:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]

FULL = 'head -c 4096 /dev/zero > "$1/other"'
READ_ONLY = 'mount -o remount,ro "$1"'

needs_mounts = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*_NAMESPACE, "true"], check=False).returncode,
    reason="no user namespaces",
)


def spoiled(directory, how, code):
    """The output of `code`, whose argument is a directory that is `how`, with a directory `notes` in it."""
    place = f'mount -t tmpfs -o size=4k none "$1" && mkdir "$1/notes" && {how}'
    run = ["sh", "-c", f'{place} && exec "$2" -c "$3" "$1"', "sh", directory, sys.executable, code]
    return subprocess.run([*_NAMESPACE, *run], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("format_", [None, "jets"])
def test_a_pipe_is_not_waited_for(format_, tmp_path):
    os.mkfifo(tmp_path / "a.jets")
    with pytest.raises(ConfigError, match=r"a\.jets: is neither a file nor a directory"):
        find([tmp_path / "a.jets"], format_)
    (tmp_path / "b.jets").write_bytes(jets(1))
    (tmp_path / "pipe.jets").symlink_to("a.jets")
    found = find([tmp_path], format_)
    assert found.traces == {"jets": [str(tmp_path / "b.jets")]}
    assert [(Path(left.path).name, left.why) for left in found.left_out] == [
        ("a.jets", Why.SPECIAL),
        ("pipe.jets", Why.SPECIAL),
    ]


@pytest.mark.parametrize("format_", [None, "jets"])
def test_a_device_is_no_file(format_):
    with pytest.raises(ConfigError, match="/dev/zero: is neither"):
        find([Path("/dev/zero")], format_)


@pytest.mark.parametrize("format_", [None, "jets"])
@pytest.mark.parametrize("place", ["a.jets", "below"])
def test_what_may_not_be_read_is_named(format_, place, shared):
    (shared / place).chmod(0)
    with nobody(), pytest.raises(ConfigError, match=f"{shared / place}: Permission denied"):
        find([shared], format_)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no-such", "does not exist"), ("x" * 300, "File name too long"), ("loop", "Too many")],
)
def test_a_path_that_leads_nowhere_is_a_clear_error(name, problem, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=problem):
        find([tmp_path / name], None)


def test_what_could_not_be_read_in_the_end_is_said_and_is_a_failure(tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", runs)
    document = next(runs.rglob("stream.json"))
    document.rename(tmp_path / "elsewhere.json")
    document.symlink_to(tmp_path / "elsewhere.json")
    said = do(tmp_path / "store", runs, code=1)
    assert "some files could not be read: EXDEV" in said
    assert ask(tmp_path / "store", "SELECT count(*) FROM sessions") == [(4,)]


@pytest.mark.parametrize(
    "name", ["a\nb.jets", " a .jets", "[a]*?.jets", "\x1b[31m.jets", "'\".jets"]
)
def test_a_file_may_have_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(jets(2))
    found, others, _ = find([tmp_path], None)
    assert (found, others) == ({"jets": [str(tmp_path / name)]}, [])


def test_a_name_that_is_no_text_is_taken_in_once(tmp_path):
    strange = Path(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe.jets"))
    strange.write_bytes(jets(2))
    store = tmp_path / "store"
    do(store, strange)
    assert "1 file is in the table already" in do(store, strange)
    assert ask(store, "SELECT peer FROM sessions") == [(f"{tmp_path}/\\xff\\xfe.jets",)]


def test_files_whose_names_are_no_text_are_followed_over_a_restart(collectors, tmp_path):
    """In a directory, and with documents, whose names are none either."""
    runs = Path(os.fsdecode(bytes(tmp_path) + b"/runs/\xe9t\xe9"))
    runs.mkdir(parents=True)
    trace = runs / os.fsdecode(b"\xfe.trace")
    Path(f"{str(trace)[:-5]}method_list").write_bytes(b"7,0,main\n")
    trace.write_bytes(b"M 7 0 1\n")
    source = toml.source("runs", "tail", "et3", paths=[f"{tmp_path}/runs"])
    collector = collectors(sources=source + 'dialect = "specification"').start()

    def seen(events):
        until(
            lambda: collector.status()["sources"]["runs"]["seen_events"] == events,
            f"{events} events to be seen",
        )

    seen(1)
    collector.stop()
    with trace.open("ab") as file:
        file.write(b"M 7 0 2\nE 7 3\n")
    collector.start()
    seen(2)
    collector.stop()
    assert ask(
        collector.store,
        'SELECT kind, name, start, "end" FROM events WHERE start IS NOT NULL ORDER BY start',
    ) == [("begin", "main", 1, None), ("span", "main", 2, 3)]
    assert ask(collector.store, "SELECT count(*) FROM sessions") == [(1,)]


def test_a_file_that_was_read_and_not_committed_when_an_import_was_killed_is_not_read_again(
    tmp_path,
):
    store, trace = tmp_path / "store", tmp_path / "long.jets"
    trace.write_bytes(jets(150_000))
    whole = trace.stat().st_size

    def in_the_spool():
        return any(
            whole < path.stat().st_size - path.read_bytes().count(0)
            for path in (store / "spool").glob("0*")
        )

    pause = 0.2  # for its end to be synced; the table comes later
    assert interrupt(store, trace, in_the_spool, pause) == -signal.SIGKILL
    do(store, trace)
    assert ask(store, "SELECT count(*) FROM events WHERE kind IN ('begin', 'span')") == [(150_000,)]
    assert ask(store, "SELECT closed FROM sessions") == [("end of file",)]


@pytest.mark.parametrize(
    ("size", "format_"), in_turn([10, 4095, 4096, 5000, 10**6 + 7], [[], ["--format", "jets"]])
)
def test_a_trace_behind_a_hole_is_imported(size, format_, tmp_path):
    """Programs go on at their place in a log that a rotation has emptied."""
    runs, store = tmp_path / "runs", tmp_path / "store"
    runs.mkdir()
    with (runs / "a.jets").open("wb") as file:
        file.seek(size)
        file.write(jets(6))
    said = do(store, *format_, runs)
    assert "6 events of 1 file" in said
    assert ask(store, "SELECT count(*) FROM spans") == [(6,)]
    assert ask(store, "SELECT sum(count) FROM gaps WHERE count IS NOT NULL") == [(None,)]
