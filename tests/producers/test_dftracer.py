"""The real DFTracer, traced while it runs with the settings that PRODUCERS.md gives."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toml
from tests.query.asking import ask
from tests.system.collector import until

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/producers/bin/python"
PROGRAM = Path(__file__).with_name("dftracer_program.py")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="needs the real DFTracer (CPython 3.11 on Linux): make producers"
)


def documented_settings():
    """The environments that the section on DFTracer tells to export, in order."""
    section = (ROOT / "collector/PRODUCERS.md").read_text().split("\n## ")[1]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [dict(re.findall(r"export (\w+)=(\S+)", block)) for block in blocks]


def lines_of(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


@pytest.mark.parametrize("settings", documented_settings(), ids=["plain", "gz"])
def test_a_running_program_is_seen(settings, collectors, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    source = toml.source("ai", "tail", "dftracer", paths=[runs])
    collector = collectors(sources=source).start()
    program = subprocess.Popen(
        [PYTHON, PROGRAM, tmp_path],
        env=os.environ | settings | {
            "DFTRACER_INIT": "FUNCTION", "DFTRACER_LOG_FILE": str(runs / "trace"),
            "DFTRACER_DATA_DIR": "all",
        },
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,  # it leaves a log where it is started
    )  # fmt: skip
    try:
        works = "SELECT count(*) FROM spans WHERE name = 'work'"
        live = []
        for wanted in (1, 100, 300):

            def seen(wanted=wanted):
                live.append(ask(collector.store, works)[0][0])
                return live[-1] >= wanted

            until(seen, f"{wanted} events of the running program; its last counts: {live[-5:]}")
            assert program.poll() is None
        (tmp_path / "enough").touch()
        rounds = int(program.communicate(timeout=60)[0])
    finally:
        program.kill()
        program.wait()
    (file,) = runs.glob("*.pfw*")
    lines = [json.loads(line) for line in lines_of(file)]
    until(
        lambda: ask(collector.store, "SELECT count(*) FROM events WHERE name = 'end'")[0][0] == 1,
        "the end of the program",
    )
    collector.settle()
    assert ask(collector.store, works) == [(rounds,)]
    spans = 'SELECT name, category, start, "end" - start FROM spans ORDER BY "offset"'
    complete = [r for r in lines if r["ph"] == 1 and r["name"] not in {"start", "end"}]
    assert [(r["name"], r["cat"], r["ts"], r["dur"]) for r in complete] == ask(
        collector.store, spans
    )
    assert ask(collector.store, "FROM gaps") == []
    paths = "SELECT attributes ->> '$.fname' FROM spans WHERE name = 'open64'"
    assert ask(collector.store, paths).count((str(tmp_path / "data"),)) == rounds
    source = collector.status()["sources"]["ai"]
    assert (source["imbalance_bytes"], source["imbalance_events"]) == (0, 0)
    collector.stop()


def test_a_killed_run_that_kept_all_in_memory_is_not(tmp_path):
    """Its file has no content, so nobody knows what it did."""
    settings = {
        "DFTRACER_INIT": "FUNCTION", "DFTRACER_DATA_DIR": "all",
        "DFTRACER_WRITE_BUFFER_SIZE": str(16 << 20),
    }  # fmt: skip
    command = [sys.executable, "-m", "tailrace", "run", "--store", "store", "--", PYTHON]
    done = subprocess.run(
        [*command, ROOT / "examples/training_io.py", "--killed"], env=os.environ | settings,
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 137, done.stderr
    certificate = json.loads((tmp_path / "store/certificate.json").read_bytes())
    assert [Path(path).stat().st_size for path in certificate["empty"]] == [0]
    assert certificate["totals"] == {"expected": 0, "stored": 0, "missing": {}, "unknown": True}


def test_a_training_run_is_certified(tmp_path):
    """The example, as its text says, but for where the table goes."""
    settings = {"DFTRACER_INIT": "FUNCTION", "DFTRACER_DATA_DIR": "all"}
    command = [sys.executable, "-m", "tailrace", "run", "--store", "store", "--max-loss", "0"]
    program = [PYTHON, ROOT / "examples/training_io.py"]
    done = subprocess.run(
        [*command, "--", *program], env=os.environ | settings, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    spans = (
        "SELECT name, count(*) FROM spans WHERE category = 'training' GROUP BY name ORDER BY name"
    )
    assert ask(tmp_path / "store", spans) == [("load", 60), ("save", 3), ("step", 60)]
