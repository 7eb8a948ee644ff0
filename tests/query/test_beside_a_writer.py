"""Test queries while another process appends, merges and deletes files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tailrace.query.engine import Engine
from tests.query.tables import dicts, make
from tests.query.writer import ROWS

WRITER = Path(__file__).with_name("writer.py")
COMMITS = 36


def test_every_answer_is_of_one_version_and_none_fails(tmp_path):
    engine = Engine(make(tmp_path))
    writer = subprocess.Popen([sys.executable, WRITER, tmp_path, str(COMMITS)])
    counts = [0]
    try:
        while counts[-1] < ROWS * COMMITS:
            assert writer.poll() in (None, 0)
            engine.refresh()
            (answer,) = dicts(
                engine.ask(
                    "SELECT count(*) AS n, count(DISTINCT seq) AS d, max(seq) AS m FROM events"
                )
            )
            count = answer["n"]
            assert count % ROWS == 0
            assert answer["d"] == count
            assert answer["m"] == (count - 1 if count else None)
            assert count >= counts[-1]
            counts.append(count)
    finally:
        writer.kill()
        writer.wait()
    assert len(set(counts)) > 2


def test_a_snapshot_that_is_overtaken_again_and_again_is_replaced(tmp_path):
    """`refresh` is never called: the engine moves to a newer version only because files of its version are deleted."""
    engine = Engine(make(tmp_path))
    writer = subprocess.Popen([sys.executable, WRITER, tmp_path, "29"])
    seen = []
    try:
        while writer.poll() is None:
            seen += [
                a["n"]
                for a in dicts(engine.ask("SELECT count(*) AS n FROM events WHERE start IS NULL"))
            ]
    finally:
        writer.kill()
    assert writer.wait() == 0
    assert seen == sorted(seen)
    assert all(count % ROWS == 0 for count in seen)
