"""Followed directories that belong to somebody else: what lies outside of them is never read, and what
is no file is left alone."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.system.collector import until
from tests.system.test_import import VECTORS, jets

SECRET = b"root:x:0:0:known-to-root-alone"


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def outside(tmp_path):
    """A directory with what must not be read: whole lines of it, and what looks like a trace."""
    directory = tmp_path / "outside"
    directory.mkdir()
    for name in ("passwd", "stream.json", "metadata.json", "clock-offsets.txt", "method_list"):
        (directory / name).write_bytes(SECRET + b"\n")
    (directory / "secret.jets").write_bytes(jets(3).replace(b'"r"', b'"' + SECRET + b'"'))
    return directory


def source(format_, *paths):
    listed = ", ".join(f'"{path}"' for path in paths)
    more = 'poll_interval = "20 ms"\nidle_interval = "50 ms"\n'
    return f'[sources.runs]\ntype = "tail"\nformat = "{format_}"\npaths = [{listed}]\n{more}'


def figures(collector):
    return collector.status()["sources"]["runs"]


def told(collector):
    """Whether anything of the secret is in the table, the spool, the quarantine or the log."""
    collector.settle()
    texts = {str(value) for row in collector.rows() for value in row.values()}
    files = [path for path in collector.store.rglob("*") if path.is_file()]
    kept = [path for path in files if SECRET in path.read_bytes()]
    return kept or SECRET.decode() in collector.log() or any(SECRET.decode() in t for t in texts)


def test_links_pipes_and_devices_in_a_followed_directory(collector_of, runs, outside):
    (runs / "honest.jets").write_bytes(jets(10))
    (runs / "link.jets").symlink_to(outside / "secret.jets")
    (runs / "directory").symlink_to(outside)
    (runs / "on.jets").symlink_to("link.jets")
    (runs / "root").symlink_to("/")
    (runs / "self").symlink_to(".")
    (runs / "proc.jets").symlink_to("/proc/self/environ")
    os.mkfifo(runs / "pipe.jets")
    if not os.geteuid():
        os.mknod(runs / "zero.jets", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    strange = os.fsdecode(bytes(runs) + b"/\xff\n2026-01-01 error forged\n\x1b[31m.jets")
    Path(strange).write_bytes(jets(5))
    collector = collector_of(sources=source("jets", runs))
    until(lambda: figures(collector)["records"].get("begin") == 15, "what is honest")
    until(lambda: figures(collector)["refused"]["outside"] == 5, "links out to be counted")
    assert collector.get("/healthz")[0] == 200
    assert figures(collector)["open"] == 2
    assert not told(collector)
    assert not [
        line for line in collector.log().splitlines() if line.startswith("2026-01-01 error")
    ]
    assert "\x1b" not in collector.log()


def test_links_put_in_the_place_of_files_while_they_are_followed(collector_of, runs, outside):
    """Over and over, as somebody would who waits for the one moment."""
    (runs / "honest.jets").write_bytes(jets(10))
    (runs / "in").mkdir()
    (runs / "in/secret.jets").write_bytes(jets(1))
    collector = collector_of(sources=source("jets", runs))
    until(lambda: figures(collector)["records"].get("begin") == 11, "what is there")
    link, file = runs / "link", runs / "file"
    for round_ in range(300):
        link.symlink_to(outside / "secret.jets")
        link.rename(runs / "secret.jets")
        file.write_bytes(jets(1) + b" " * round_)
        file.rename(runs / "secret.jets")
        (runs / "in").rename(runs / "out")
        (runs / "in").symlink_to(outside)
        (runs / "in").unlink()
        (runs / "out").rename(runs / "in")
    link.symlink_to(outside / "secret.jets")
    link.rename(runs / "secret.jets")
    until(lambda: figures(collector)["refused"]["outside"] >= 1, "the link to be counted")
    with (runs / "honest.jets").open("ab") as file:
        file.write(jets(3).split(b"\n", 1)[1])
    until(lambda: figures(collector)["records"]["begin"] >= 14, "the honest file to be read on")
    assert collector.get("/healthz")[0] == 200
    assert not told(collector)


def test_documents_that_are_links_or_name_other_paths(collector_of, runs, outside):
    shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", runs / "ovni")
    for document in [*(runs / "ovni").rglob("*.json"), *(runs / "ovni").rglob("clock-offsets.txt")]:
        document.unlink()
        document.symlink_to(outside / document.name)
    thread = next((runs / "ovni").rglob("stream.obs")).parent
    (thread / "stream.json").unlink()
    (thread / "stream.json").write_text(
        '{"version": 3, "ovni": {"part": "thread", "tid": "../../../../../outside/passwd", "pid":'
        ' -1, "loom": "../../outside", "lib": {"version": "../passwd"}, "require":'
        ' {"../../outside/passwd": "1.0.0"}}}'
    )
    collector = collector_of(sources=source("ovni", runs))
    streams = len(list(runs.rglob("stream.obs")))
    until(lambda: figures(collector)["sessions_opened"] == streams, "all streams")
    until(lambda: figures(collector)["errors"].get("EXDEV", 0) >= streams, "documents to be left")
    assert collector.get("/healthz")[0] == 200
    assert not told(collector)
