"""The promise that a sixth format costs one file and one vector: a copy of the tree gets just these,
and the format is held to the decoders' contract, received, followed live, imported, stored and queried."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.collector import until

ROOT = Path(__file__).parents[2]
LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne two\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    copy = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "collector", copy / "collector")
    (copy / "tests/decoding").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/decoding/test_conformance.py", "tests/conftest.py"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("tests/system", "tests/metrics"):
        shutil.copytree(ROOT / name, copy / name)
    # The one file and the one vector:
    shutil.copy(Path(__file__).with_name("toy.py"), copy / "collector/tailrace/decoding/formats")
    (copy / "tests/vectors/toy").mkdir(parents=True)
    (copy / "tests/vectors/toy/usual.limit64.in").write_bytes(LINES + b"-" * 65 + b"\ne torn")
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


def query(tree, environ, store, sql):
    answer = run(tree, environ, "tailrace", "query", "--store", store, "--json", sql)
    return [json.loads(line) for line in answer.splitlines()]


def check_table(tree, environ, store):
    """The four events, the name of one of them, and what is missing."""
    events = query(tree, environ, store, "FROM events WHERE kind = 'instant' ORDER BY \"offset\"")
    assert [event["name"] for event in events] == ["main", "one", "m", "two"]
    assert {event["format"] for event in events} == {"toy"}
    gaps = query(tree, environ, store, "SELECT reason, count FROM gaps ORDER BY reason")
    assert gaps == [{"reason": "malformed", "count": 1}, {"reason": "network", "count": 3}]


def test_the_contract_holds_it(tree, environ):
    suite = (
        "pytest",
        "tests/decoding/test_conformance.py",
        "-q",
        "-k",
        "toy",
        "-p",
        "no:cacheprovider",
    )
    run(tree, environ, *suite, "--update-vectors")
    expected = (tree / "tests/vectors/toy/usual.limit64.expect.jsonl").read_text()
    assert len(expected.splitlines()) == 1 + 10
    assert " passed" in run(tree, environ, *suite)


def test_its_files_are_imported(tree, environ, tmp_path):
    (tmp_path / "a.toy").write_bytes(LINES)
    store = tmp_path / "store"
    said = run(tree, environ, "tailrace", "import", "--store", store, "--format", "toy", tmp_path)
    assert "4 missing" in said
    check_table(tree, environ, store)


def test_its_files_are_followed(tree, environ, tmp_path, collectors):
    runs = tmp_path / "runs"
    source = f'[sources.toys]\ntype = "tail"\nformat = "toy"\npaths = ["{runs}"]'
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
    check_table(tree, environ, collector.store)
    collector.stop()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_it_is_received(tree, environ, collectors, transport):
    source = f'[sources.toys]\ntype = "{transport}"\nformat = "toy"\nlisten = "127.0.0.1:0"'
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
    check_table(tree, environ, collector.store)
    collector.stop()


def test_a_source_that_cannot_carry_it_is_refused(tree, environ, tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text('[sources.toys]\ntype = "unix"\nformat = "toy"\nlisten = "/run/toys.sock"\n')
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "check", config],
        cwd=tree, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "which a unix source can carry; not 'toy'" in done.stdout
