"""`tailrace verdict`: what trace files lack, without a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import program
from tests.cli.command import ENVIRONMENT
from tests.decoding import dftracer_lines
from tests.program import COMMAND

VECTORS = Path(__file__).parents[1] / "vectors"
LINES = [dftracer_lines.event(number, dur=number) for number in range(2, 40)]


def trace(*lines):
    host = dftracer_lines.metadata("HH", "node", dftracer_lines.HOST)
    return dftracer_lines.text(host, dftracer_lines.start(), *lines, dftracer_lines.end(40))


@pytest.fixture
def runs(tmp_path):
    """A directory for traces; temporary stores are made beside it, and must be gone at the end."""
    made = tmp_path / "runs"
    made.mkdir()
    (tmp_path / "stores").mkdir()
    yield made
    assert not list((tmp_path / "stores").iterdir())


def verdict(*arguments, code=0):
    """Return what the command prints. No variable of Tailrace may matter."""
    stores = next(path for path in arguments if isinstance(path, Path)).parents
    stores = next(parent / "stores" for parent in stores if (parent / "stores").exists())
    own = {
        "TMPDIR": str(stores),
        "TAILRACE_CONFIG": "there is none",
        "TAILRACE_STORE": "ftp://nowhere",
    }
    done = program.run([*COMMAND, "verdict", *map(str, arguments)], env=ENVIRONMENT | own,
                       capture_output=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


def test_a_whole_trace_is_complete_and_its_figures_are_values(runs):
    (runs / "a.log").write_bytes(trace(*LINES))
    first, heading, read = verdict(runs / "a.log").splitlines()
    assert first == f"{runs / 'a.log'}: complete, 38 events"
    assert heading.split() == ["name", "count", "p50", "p95", "max"]
    assert read.split() == ["read", "38", "20", "us", "38", "us", "39", "us"]


def test_what_is_missing_has_a_number_a_reason_and_bounds(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES[:10], *LINES[11:]))
    found = json.loads(verdict("--json", runs, code=3))
    (only,) = found["traces"]
    assert (only["verdict"], only["missing"], only["unknown"]) == ("incomplete", {"network": 1}, [])
    assert only["text"] == "1 missing here, because numbers or totals have holes (1)"
    (read,) = found["names"]
    assert (read["name"], read["seen"]) == ("read", 37)
    assert read["bounds"]["count"] == [37, 38]
    assert read["bounds"]["p50"] == [20_000, 21_000]


def test_what_cannot_be_told_is_not_complete(runs):
    (runs / "torn.pfw").write_bytes(b"\n".join(trace(*LINES).split(b"\n")[:-2]) + b"\n")
    (runs / "notes.txt").write_text("what I did today\n")
    (runs / "empty.pfw").write_bytes(b"")
    said = verdict(runs / "torn.pfw", runs / "notes.txt", runs / "empty.pfw", code=3)
    torn, *others = said.splitlines()[:3]
    assert torn.startswith(f"{runs / 'torn.pfw'}: cannot be told, because the end is missing")
    assert sorted(others) == [
        f"{runs / 'empty.pfw'}: cannot be told, because it is empty",
        f"{runs / 'notes.txt'}: cannot be told, because it is not a trace of any known format",
    ]


def test_no_trace_at_all_is_not_complete(runs):
    assert verdict(runs, code=3) == "cannot be told, because there is no trace\n"
    verdict(runs / "nowhere", code=2)


@pytest.mark.parametrize(
    ("vector", "code", "text"),
    [
        ("heph/busy", 0, "complete, "),
        ("heph/busy_lossy", 3, "83 missing here, because "),
        ("jets/tracegen_tiny", 0, "complete, 36 events"),
        ("jets/tracegen_default_lossy", 3, "25 missing here, because "),
        ("et3/spec_threads_lossy", 3, "numbers or totals have holes (15)"),
    ],
)
def test_formats_are_recognised_by_content(runs, vector, code, text):
    shutil.copy(VECTORS / f"{vector}.in", runs / "what")
    said = json.loads(verdict("--json", runs / "what", code=code))
    assert text in said["traces"][0]["text"]
    assert said["traces"][0]["format"] == vector.split("/")[0]
