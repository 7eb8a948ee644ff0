"""Every example does what its text says, before a real collector, and all of it arrives."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tests.program import environment
from tests.system.collector import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
QUERY = re.compile(r'tailrace query --store \S+ "(.*?)"', re.DOTALL)
COMMANDS = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
WITH_HEADS = ["multiprocessing_job.py", "rtl_jets.py", "simulator.py", "solver.c"]
HAS_COMPILER = shutil.which("cc") is not None


@pytest.fixture
def run(collector):
    """Runs a command with the collector's addresses, then waits until all that it sent is in the
    table. The output."""

    def start(*command):
        environ = os.environ | {
            "TAILRACE_ADDRESS": url(collector, "tcp"),
            "TAILRACE_JETS_TCP": url(collector, "jets").removeprefix("tcp://"),
            "TAILRACE_STORE_PATH": str(collector.store),
        }
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environ
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        collector.settle()
        return done.stdout

    return start


@pytest.fixture
def store(collector):
    """Opens the table; nothing may be missing of it, and all sessions are over."""

    def ended():
        with tailrace.open(collector.store) as store:
            words = closed(store)
        return words and all(words)

    def opened():
        until(ended, "all sessions to end")
        return tailrace.open(collector.store, complete_only=True)

    return opened


def url(collector, source):
    host, port = collector.address(source)
    return f"tcp://{host}:{port}"


def head(example):
    """The text at the top of an example."""
    text = example.read_text()
    if example.suffix == ".c":
        return text[: text.index("*/")].replace("\n *", "\n").replace("\n ", "\n")
    return text.split('"""')[1]


def bash(directory, script, **environ):
    """Run a script as a person without a collector or a configuration would, in the clone."""
    programs = Path(sys.executable).parent
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(directory)}
    return subprocess.run(
        ["bash", "-eu", "-c", script], env=environment() | own | environ, cwd=ROOT,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def closed(store):
    return [row["closed"] for row in store.sessions()]


def asked(example, store):
    """The rows of the queries in an example's text."""
    statements = QUERY.findall(head(example))
    assert statements
    return [list(store.sql(statement)) for statement in statements]


def test_all_examples_are_here_and_in_the_first_steps():
    table = (ROOT / "docs" / "start.md").read_text()
    examples = [path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".c"}]
    assert sorted(examples) == [
        "data_loader.py", "multiprocessing_job.py", "rtl_jets.py", "simulator.py", "solver.c", "stencil.py", "training_io.py",
    ]  # fmt: skip
    assert all(f"(../examples/{name})" in table for name in examples)


@pytest.mark.parametrize("name", WITH_HEADS)
def test_the_commands_of_a_head_work_as_they_are(name, tmp_path):
    if name.endswith(".c") and not HAS_COMPILER:
        pytest.skip("needs a C compiler: apt install gcc")
    script = "".join(COMMANDS.findall(head(EXAMPLES / name)))
    script = re.sub(r"(?<=[ /])/tmp(?=/)", str(tmp_path), script)
    assert "tailrace run --store" in script
    done = bash(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert " stored, 0 missing\n" in done.stderr
    for queried in QUERY.findall(script):
        wanted = re.findall(r"(?<=AS )\w+", queried)
        assert all(word in done.stdout for word in ["name", *wanted])


ALONE = {
    "simulator.py": (0, "", ""),
    "rtl_jets.py": (1, "", r"no collector: run this with `tailrace run -- `, or give an address, .*\n"),
    "multiprocessing_job.py": (
        1, r"\d+ prime factors\n", r"no collector at tcp://\S+: .*not a Tailrace store.* `tailrace serve &`\n",
    ),
}  # fmt: skip


ALONE_ENVIRONMENT = {"multiprocessing_job.py": {"TAILRACE_ADDRESS": "tcp://127.0.0.1:1"}}
"""An address where nobody listens, in place of the default one, where somebody may."""


@pytest.mark.parametrize("name", ALONE)
def test_a_program_alone_works_or_says_what_it_needs(name, tmp_path):
    done = bash(tmp_path, f"exec python examples/{name}", **ALONE_ENVIRONMENT.get(name, {}))
    status, out, err = ALONE[name]
    assert done.returncode == status
    assert re.fullmatch(out, done.stdout), done.stdout
    assert re.fullmatch(err, done.stderr), done.stderr


def test_the_simulator(run, store):
    run(sys.executable, EXAMPLES / "simulator.py")
    results = store()
    assert closed(results) == ["goodbye"]
    (session,) = results.sessions()
    assert (session["clock"], session["ticks_per_second"]) == ("logical", 1e9)
    reworked = results.events(name="rework").count()
    for stream, servers in ((1, 1), (2, 2)):
        services = results.spans(stream=stream, name="service").pl()
        assert services.height == 500 + reworked
        assert services["time"].null_count() == services.height
        changes = sorted(
            [(start, 1) for start in services["start"]] + [(end, -1) for end in services["end"]]
        )
        busy = most = 0
        for _, change in changes:
            busy += change
            most = max(most, busy)
        assert most == servers
    assert results.events(kind="counter").count() == 4 * (500 + reworked)
    ((longest, *rest),) = asked(EXAMPLES / "simulator.py", results)
    assert len(rest) == 9
    assert float(longest["waited"]) > float(rest[-1]["waited"]) > 0


def test_the_pipeline(run, store, collector):
    printed = run(sys.executable, EXAMPLES / "rtl_jets.py")
    cycles = int(re.fullmatch(r"300 instructions in (\d+) cycles\n", printed)[1])
    results = store()
    assert closed(results) == ["eof"]
    core, *instructions = results.spans(order=["start", "id"])
    assert (core["category"], core["start"], core["end"]) == ("Core", 0, cycles)
    assert len(instructions) == 300
    assert {each["parent"] for each in instructions} == {core["id"]}
    events = results.events(kind="instant").pl()
    stalls = events.filter(name="stall")["parent"].to_list()
    for each in instructions:
        assert each["ticks"] >= 5 + stalls.count(each["id"])
    assert cycles == max(each["end"] for each in instructions) == 300 + 4 + len(stalls)
    stages = events["name"].value_counts().rows_by_key("name")
    assert {name: count[0][0] for name, count in stages.items()} == dict.fromkeys(
        ("fetch", "decode", "execute", "memory", "write-back"), 300
    ) | {"stall": len(stalls)}
    ((add, *_),) = asked(EXAMPLES / "rtl_jets.py", results)
    assert add["cycles"] >= 5


def test_the_pipeline_in_a_file(tmp_path):
    sink = f"file://{tmp_path}/pipeline.jets"
    subprocess.run([sys.executable, EXAMPLES / "rtl_jets.py", sink], check=True, timeout=60)
    command = [
        sys.executable,
        "-m",
        "tailrace",
        "import",
        "--store",
        tmp_path,
        sink.removeprefix("file://"),
    ]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    with tailrace.open(tmp_path, complete_only=True) as results:
        assert results.spans().count() == 301


@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler: apt install gcc")
def test_the_solver(run, store, tmp_path):
    (line,) = re.findall(r"cc .*", (EXAMPLES / "solver.c").read_text())
    command = shlex.split(line.replace("/tmp/solver", str(tmp_path / "solver")))  # noqa: S108 - replaced
    subprocess.run([*command, "-Wall", "-Wextra", "-Werror"], check=True, cwd=ROOT, timeout=60)
    printed = r"residual \S+ after 400 sweeps\n"
    alone = subprocess.run(
        [tmp_path / "solver"], env=environment(), capture_output=True, text=True, check=True
    )
    assert re.fullmatch(printed, alone.stdout)
    assert alone.stderr == ""
    assert re.fullmatch(printed, run(tmp_path / "solver"))
    results = store()
    assert closed(results) == ["goodbye"]
    for stream in (1, 2):
        assert results.spans(stream=stream, name="sweep").count() == 400
        assert results.spans(stream=stream, name="wait").count() == 800
    assert results.events(kind="counter", name="residual").count() == 8
    assert results.events(name="solved").count() == 1
    (rows,) = asked(EXAMPLES / "solver.c", results)
    assert [row["name"] for row in rows if row["stream"] == "2"] == ["sweep", "wait"]


def test_the_job_of_several_processes(run, store, collector):
    printed = run(sys.executable, EXAMPLES / "multiprocessing_job.py")
    lines = printed.splitlines()
    assert lines[1] == "24 pieces of work; nothing is known to be missing"
    assert lines[2].split() == ["worker", "pieces", "us"]
    assert sum(int(line.split()[1]) for line in lines[3:-1]) == 24
    results = store()
    assert closed(results) == ["goodbye"] * 3
    assert results.spans(name="piece").count() == results.spans(name="factors").count() == 24
