"""Hold docs/ADD_A_FORMAT.md to its promise that a format costs one file and one vector.

A copy of the repository gets the page's module and runs the page's commands. Then the format is received,
followed live, imported, stored and queried."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toml
from tests.docs.pages import Shell, blocks, environment
from tests.formats.toy import PAGE, SOURCE
from tests.query.asking import ask_all
from tests.system.collector import until

ROOT = Path(__file__).parents[2]
LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne two\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    copy = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "collector", copy / "collector")
    shutil.copy(ROOT / "pyproject.toml", copy / "pyproject.toml")
    # All that tests import, and no vector but the one that the page makes.
    shutil.copytree(
        ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("vectors", "__pycache__")
    )
    # The one file; the page's commands make the one vector.
    (copy / "collector/tailrace/decoding/formats/toy.py").write_text(SOURCE)
    return copy


@pytest.fixture(scope="module")
def environ(tree):
    return {"PYTHONPATH": str(tree / "collector")}


def run(tree, environ, *command):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=tree, env=os.environ | environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


EVENTS = "SELECT name, format FROM events WHERE kind = 'instant' ORDER BY \"offset\""
GAPS = "SELECT reason, count FROM gaps ORDER BY reason"


def check_table(store):
    """The four events, the name of one of them, and what is missing."""
    events, gaps = ask_all(store, [EVENTS, GAPS])
    assert events == [(name, "toy") for name in ("main", "one", "m", "two")]
    assert gaps == [("malformed", 1), ("network", 3)]


def test_the_page_does_what_it_shows(tree, environ, tmp_path):
    shown = [block for block in blocks(PAGE) if block.language == "sh"]
    assert [block.output is not None for block in shown] == [False, False, True, False, True]
    with Shell(cwd=tree, environ=environment(tmp_path) | environ) as shell:
        for block in shown:
            shell.read(block._replace(text=block.text.replace("/tmp/toy", str(tmp_path))))  # noqa: S108


def test_the_pages_module_is_as_the_house_writes_it(tree):
    path = "collector/tailrace/decoding/formats/toy.py"
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--quiet"], ["format", "--check", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, path], cwd=tree, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_its_files_are_imported(tree, environ, tmp_path):
    (tmp_path / "a.toy").write_bytes(LINES)
    store = tmp_path / "store"
    said = run(tree, environ, "tailrace", "import", "--store", store, "--format", "toy", tmp_path)
    assert "4 missing" in said
    check_table(store)
    said = run(tree, environ, "tailrace", "query", "--store", store, "--json", GAPS)
    assert [json.loads(line)["reason"] for line in said.splitlines()] == ["malformed", "network"]


def test_its_files_are_followed(tree, environ, tmp_path, collectors):
    runs = tmp_path / "runs"
    source = toml.source("toys", "tail", "toy", paths=[runs])
    collector = collectors(sources=source, environ=environ).start()
    runs.mkdir()
    with (runs / "a.toy").open("wb", buffering=0) as file:
        for at in range(0, len(LINES), 7):
            file.write(LINES[at : at + 7])
    until(
        lambda: collector.status()["sources"]["toys"]["received_bytes"] == len(LINES),
        "the file",
    )
    collector.settle()
    check_table(collector.store)
    collector.stop()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_it_is_received(tree, environ, collectors, transport):
    source = toml.source("toys", transport, "toy", listen="127.0.0.1:0")
    collector = collectors(sources=source, environ=environ).start()
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as producer:
        producer.connect(collector.address("toys"))
        for line in LINES.splitlines(keepends=True):
            producer.sendall(line)
    until(
        lambda: collector.status()["sources"]["toys"]["received_bytes"] == len(LINES),
        "the lines",
    )
    collector.settle()
    check_table(collector.store)
    collector.stop()


def test_a_source_that_cannot_carry_it_is_refused(tree, environ, tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text(toml.source("toys", "unix", "toy", listen="/run/toys.sock"))
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "check", config],
        cwd=tree, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "which a unix source can carry; not 'toy'" in done.stdout
