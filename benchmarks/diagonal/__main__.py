"""`python -m benchmarks.diagonal [--turns 3] [--publish]`: measure the honest diagonal, and write its page and picture.

A program emits events at rising rates with one tool, and ends or is killed. The benchmark compares the losses that the tool reports with those that
there were.
Needs `make peers`, rsyslog, LTTng and babeltrace2; a tool that is not installed is named on the page. With `--turns 0` the page is
written anew from its results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.contest import scratch
from benchmarks.machine import dated, machine
from benchmarks.peers import environment, rsyslog
from benchmarks.places import BUILD, PUBLISHED
from benchmarks.processes.daemon import daemon
from benchmarks.report.svg import Report, diagonals
from benchmarks.results import Machine
from tests.query.asking import ask
from tests.system.collector import until

PROGRAMS = Path(__file__).with_name("programs.py")
RATES = (10_000, 50_000, 200_000, 1_000_000)
SECONDS = 2.0
KILLED_AT = 1.2
"""Time of the kill (seconds) after the program's first event."""

PUBLISHERS, PUBLISHED_RATE, PUBLISHED_SECONDS = 144, 200, 20.0
"""Number of programs that emit at once, their rate (events a second), and their time (seconds)."""

PAGE, PICTURE, RESULTS = "diagonal.md", "images/diagonal.svg", "performance/diagonal.json"

TEXT = """\
# The honest diagonal

For users who ask whether a tool tells how much is missing. A program emits events at {rates} events a second for {seconds:g} seconds with one tool, and ends or is killed (SIGKILL). The program counts its
events in a file that is mapped into memory, which SIGKILL cannot reach. [The benchmark](../benchmarks/diagonal/__main__.py) compares this count with the events that the tool stored, and with what the
tool reports as missing.

![Reported events over missing events, for each tool]({picture})

Each mark is a run. A mark on the diagonal reports exactly what is missing. A line upwards from a mark says "and perhaps more", without a number: it is right if it crosses the diagonal. A mark below the
diagonal without a line is a loss of which the tool says nothing.

| tool | runs | emitted | missing | reported with a number | missing in runs with "perhaps more" | missing, and the tool says nothing | reported, but not missing |
|---|---|---|---|---|---|---|---|
{rows}

## Many publishers

{publishers}

## The tools

{tools}

All work with their defaults, since the question is not who loses least. A tool with more memory, or with a slower program, loses less.

{measured}
"""


class Run(msgspec.Struct, kw_only=True):
    """A run of a program: the events that it emitted, those that were stored, and what the tool reported as missing.

    `more` states that the tool says that an unknown number of further events may be missing."""

    tool: str
    rate: int
    killed: bool
    emitted: int
    stored: int
    reported: int
    more: bool

    @property
    def missing(self) -> int:
        """The events that are missing. A killed program may have counted an event that the tool did not get any more."""
        missing = self.emitted - self.stored
        return missing - 1 if self.killed and missing == self.reported + 1 else missing

    @property
    def untold(self) -> int:
        return 0 if self.more else max(self.missing - self.reported, 0)

    @property
    def invented(self) -> int:
        return max(self.reported - self.missing, 0)


class Publishers(msgspec.Struct, kw_only=True):
    """Programs that emitted to one collector at the same time, some of which were killed.

    `unknown` sessions have a gap of unknown size."""

    programs: int
    killed: int
    emitted: int
    stored: int
    reported: int
    unknown: int

    @property
    def rest(self) -> int:
        """The missing events that no gap counts."""
        return self.emitted - self.stored - self.reported


class Results(msgspec.Struct, kw_only=True):
    machine: Machine
    runs: list[Run]
    publishers: Publishers
    absent: list[str] = []


class Program:
    """A program that emits with one tool. Its directory is empty at the start."""

    def __init__(self, home: Path, rate: int, *, killed: bool) -> None:
        self.home, self.rate, self.killed = home, rate, killed
        self.count, self.report = home / "count", home / "report"
        self.count.write_bytes(bytes(8))

    def python(self, tool: str, target: object, interpreter: Path | str = sys.executable) -> None:
        self.run(interpreter, PROGRAMS, tool, target, self.count, self.rate, SECONDS, self.report)

    def start(
        self, *command: object, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.home / "said").open("wb") as said:
            return subprocess.Popen([*map(str, command)], env=environ, stdout=said, stderr=said)

    def run(self, *command: object, environ: Mapping[str, str] | None = None) -> None:
        """Run a program to its end, or kill it after some time."""
        process = self.start(*command, environ=environ)
        try:
            if self.killed:
                until(lambda: self.emitted, "the first event")
                time.sleep(KILLED_AT)
                process.send_signal(signal.SIGKILL)
            if process.wait(60) not in {0, -signal.SIGKILL}:
                raise RuntimeError((self.home / "said").read_text())
        finally:
            process.kill()
            process.wait()

    @property
    def emitted(self) -> int:
        return int.from_bytes(self.count.read_bytes(), sys.byteorder)

    @property
    def told(self) -> dict[str, int]:
        """Return the tool's report inside the program; nothing if the program was killed."""
        return json.loads(self.report.read_text()) if self.report.exists() else {}


COUNTS = "SELECT sum(events), sum(missing), count(*) FILTER (unknown) FROM sessions WHERE format = 'heph'"


class Outcome(NamedTuple):
    stored: int
    reported: int
    more: bool


def with_tailrace(scheme: str) -> Callable[[Program], Outcome]:
    def run(program: Program) -> Outcome:
        with daemon(program.home / "collector") as running:
            source = "udp" if scheme == "udp" else "heph"
            host, port = running.address(source)
            program.python("tailrace", f"{scheme}://{host}:{port}")
            running.await_quiet(source)
            store, command = running.collector.store, running.collector.command()
        # The program will not come back: a last run of the collector closes its session.
        subprocess.run([*command, "--rest"], stdout=subprocess.DEVNULL, check=True)
        ((stored, missing, more),) = ask(store, COUNTS)
        return Outcome(int(stored), int(missing), bool(more))

    return run


def with_opentelemetry(program: Program) -> Outcome:
    target = program.home / "spans"
    program.python("opentelemetry", target, environment.PYTHON)
    return Outcome(target.read_bytes().count(b"\n"), program.told.get("missing", 0), more=False)


def with_viztracer(program: Program) -> Outcome:
    target = program.home / "trace.json"
    program.python("viztracer", target, environment.PYTHON)
    stored = target.read_bytes().count(b'"name":"step"') + target.read_bytes().count(b'"name": "step"') if target.exists() else 0  # fmt: skip
    return Outcome(stored, 0, bool(program.told.get("more")))


def with_rsyslog(program: Program) -> Outcome:
    stats = program.home / "stats"
    os.environ["BENCH_STATS"] = str(stats)
    with rsyslog.rsyslog(program.home / "rsyslog", "rsyslog-datagrams-counted.conf") as running:
        host, port = running.address
        program.python("syslog", f"{host}:{port}")
        stored, _ = running.await_written(b"step ", program.emitted)
        time.sleep(2.5)  # rsyslog writes its counters every second
    counts = [json.loads(line[line.index("{") :]) for line in stats.read_text().splitlines()]
    newest = {each["name"]: each for each in counts}
    reported = sum(
        each.get(key, 0) for each in newest.values() for key in ("discarded.full", "discarded.nf")
    )
    return Outcome(stored, reported, more=False)


def with_lttng(program: Program) -> Outcome:
    emit = program.home / "emit"
    source = Path(__file__).with_name("lttng.c")
    subprocess.run(["gcc", "-O2", "-o", emit, source, "-llttng-ust"], check=True)
    trace = program.home / "trace"
    with _lttng(program.home, trace) as environ:
        program.run(emit, program.count, program.rate, SECONDS, environ=environ)
    done = subprocess.run(["babeltrace2", trace], capture_output=True, text=True, check=True)
    told = re.findall(r"discarded (\d+) event", done.stderr)
    more = "unknown number" in done.stderr or "discarded packet" in done.stderr
    return Outcome(done.stdout.count("lttng_ust_tracef:event"), sum(map(int, told)), more)


@contextmanager
def _lttng(home: Path, trace: Path) -> Iterator[Mapping[str, str]]:
    """Run LTTng's own daemon, and a tracing session of it. Yield the environment in which programs find the daemon: those
    of root find it anyway."""
    environ = os.environ | {"LTTNG_HOME": str(home), "HOME": str(home)}

    def lttng(*arguments: object) -> None:
        subprocess.run(["lttng", *map(str, arguments)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)  # fmt: skip

    sessiond = subprocess.Popen(["lttng-sessiond", "--no-kernel", "--quiet"], env=environ)
    try:
        until(lambda: subprocess.run(["lttng", "list"], env=environ, capture_output=True, check=False).returncode == 0, "LTTng's daemon")  # fmt: skip
        lttng("create", "diagonal", "-o", trace)
        lttng("enable-channel", "-u", "channel")
        lttng("enable-event", "-u", "lttng_ust_tracef:*", "-c", "channel")
        lttng("start")
        yield environ
        lttng("stop")
        lttng("destroy", "diagonal")
    finally:
        sessiond.terminate()
        sessiond.wait(30)


class Tool(NamedTuple):
    run: Callable[[Program], Outcome]
    about: str
    version: Callable[[], str]
    install: str


def _of_package(name: str) -> Callable[[], str]:
    return lambda: environment.version(name)


def _of_lttng() -> str:
    if not (shutil.which("lttng") and shutil.which("babeltrace2") and shutil.which("lttng-sessiond")):  # fmt: skip
        return ""
    said = subprocess.run(["lttng", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[3]


TOOLS = {
    "Tailrace, TCP": Tool(with_tailrace("tcp"), "the Python client and a collector; a killed client leaves a gap of unknown size", lambda: "this commit", ""),
    "Tailrace, UDP": Tool(with_tailrace("udp"), "the same over datagrams", lambda: "this commit", ""),
    "OpenTelemetry": Tool(with_opentelemetry, "the Python SDK with a `BatchSpanProcessor`, whose exporter writes a line for each span. With `OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED`, the SDK counts the spans for which its queue had no room; without it, the SDK logs a warning without a number", _of_package("opentelemetry-sdk"), environment.INSTALL),
    "VizTracer": Tool(with_viztracer, "events in the ring of the tracer, saved at the end. VizTracer warns without a number if the ring was full. A killed program leaves no file", _of_package("viztracer"), environment.INSTALL),
    "rsyslog": Tool(with_rsyslog, "Python's `SysLogHandler` and datagrams to rsyslog, which writes lines. Its module `impstats` counts what its queue discards", lambda: rsyslog.peer("rsyslog-datagrams-counted.conf", "").version, rsyslog.INSTALL),
    "LTTng": Tool(with_lttng, "a C program with `lttng_ust_tracef`, read by babeltrace2, which states what the tracer discarded", _of_lttng, "apt-get install lttng-tools liblttng-ust-dev babeltrace2"),
}  # fmt: skip


def measure(home: Path, tools: list[str], rates: tuple[int, ...], turns: int) -> Iterator[Run]:
    """Run each tool at each rate, to the end and killed, in turns."""
    for turn in range(turns):
        for rate in rates:
            for killed in (False, True):
                for name in tools:
                    place = home / f"{turn}-{rate}-{killed}-{name.replace(', ', '-')}"
                    place.mkdir()
                    program = Program(place, rate, killed=killed)
                    stored, reported, more = TOOLS[name].run(program)
                    run = Run(tool=name, rate=rate, killed=killed, emitted=program.emitted, stored=stored, reported=reported, more=more)  # fmt: skip
                    print(f"  {name}: {run.emitted} emitted, {run.missing} missing, {run.reported} reported{' or more' * run.more}", flush=True)  # fmt: skip
                    shutil.rmtree(place)
                    yield run


def measure_publishers(
    home: Path, count: int = PUBLISHERS, seconds: float = PUBLISHED_SECONDS
) -> Publishers:
    """Let many programs emit at once, half of them in datagrams, and kill every third."""
    programs = []
    for number in range(count):
        place = home / f"publisher-{number}"
        place.mkdir()
        programs.append(Program(place, PUBLISHED_RATE, killed=number % 3 == 0))
    with daemon(home / "collector") as running:
        addresses = [
            "{}://{}:{}".format(scheme, *running.address(source))
            for scheme, source in (("tcp", "heph"), ("udp", "udp"))
        ]
        started = [
            each.start(
                sys.executable, PROGRAMS, "tailrace", addresses[number % 2], each.count, each.rate, seconds, each.report,
            )
            for number, each in enumerate(programs)
        ]  # fmt: skip
        try:
            until(lambda: all(each.emitted for each in programs), "the first events")
            time.sleep(KILLED_AT)
            for each, process in zip(programs, started, strict=True):
                if each.killed:
                    process.kill()
            for process in started:
                process.wait(120)
        finally:
            for process in started:
                process.kill()
                process.wait()
        for source in ("heph", "udp"):
            running.await_quiet(source)
        store, command = running.collector.store, running.collector.command()
    subprocess.run([*command, "--rest"], stdout=subprocess.DEVNULL, check=True)
    ((stored, missing, unknown),) = ask(store, COUNTS)
    return Publishers(
        programs=count,
        killed=sum(each.killed for each in programs),
        emitted=sum(each.emitted for each in programs),
        stored=int(stored),
        reported=int(missing),
        unknown=int(unknown),
    )


def write(results: Results, directory: Path) -> None:
    """Write the results, the page and its picture."""
    for name in (PICTURE, RESULTS):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(results).replace(b'{"tool"', b'\n{"tool"')
    (directory / RESULTS).write_bytes(text + b"\n")
    (directory / PICTURE).write_text(picture(results))
    (directory / PAGE).write_text(page(results))


def picture(results: Results) -> str:
    panels: dict[str, list[Report]] = {}
    for run in results.runs:
        emitted = max(run.emitted, 1)
        panels.setdefault(run.tool, []).append(
            Report(run.missing / emitted, min(run.reported / emitted, 1), run.more)
        )
    return diagonals("Reported as missing, over missing (share of the emitted events)", panels)


def page(results: Results) -> str:
    """Return the page, which states figures of these results only."""
    machine, runs = results.machine, results.runs
    by_tool = {name: [run for run in runs if run.tool == name] for name in TOOLS}
    rows = "\n".join(_row(name, found) for name, found in by_tool.items() if found)
    tools = "\n".join(
        f"- **{name}**: {tool.about}{'' if name not in results.absent else f'; not measured, because it is not installed ({tool.install})'}."
        for name, tool in TOOLS.items()
    )
    turns = len(by_tool["Tailrace, TCP"]) // (2 * len({run.rate for run in runs}))
    measured = (
        f"Measured by `python -m benchmarks.diagonal --turns {turns}` on {machine.date}, {machine.cpu}, "
        f"{machine.memory / 2**30:.0f} GiB, {machine.system}, Python {machine.python}. "
        f"Load average {machine.load[0]:g} before, {machine.load[1]:g} after."
    )
    rates = ", ".join(f"{rate:,}" for rate in sorted({run.rate for run in runs}))
    many = results.publishers
    publishers = (
        f"{many.programs} programs with our client emitted {many.emitted:,} events to one collector at the same time, half of them in datagrams; {many.killed} were killed. "
        f"{many.stored:,} events are stored, and gaps count {many.reported:,} as missing. The other {many.rest:,} are of killed programs: {many.unknown} sessions state that an unknown number is missing."
    )
    return TEXT.format(publishers=publishers, rates=rates, seconds=SECONDS, picture=PICTURE, rows=rows, tools=tools, measured=measured)  # fmt: skip


def _row(name: str, runs: list[Run]) -> str:
    told = sum(min(run.reported, run.missing) for run in runs)
    open_ = sum(run.missing - min(run.reported, run.missing) for run in runs if run.more)
    cells = [len(runs), sum(r.emitted for r in runs), sum(r.missing for r in runs), told, open_, sum(r.untold for r in runs), sum(r.invented for r in runs)]  # fmt: skip
    return f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagonal")
    parser.add_argument("--turns", type=int, default=3, help="runs of each kind; 0 draws the results anew")  # fmt: skip
    parser.add_argument("--publish", action="store_true", help=f"write docs/{PAGE}")
    asked = parser.parse_args()
    directory = PUBLISHED if asked.publish else BUILD
    if not asked.turns:
        results = msgspec.json.decode((directory / RESULTS).read_bytes(), type=Results)
    else:
        present = [name for name, tool in TOOLS.items() if tool.version()]
        with scratch() as home, dated(machine("")) as here:
            runs = list(measure(home, present, RATES, asked.turns))
            publishers = measure_publishers(home)
        absent = [name for name in TOOLS if name not in present]
        results = Results(machine=here, runs=runs, publishers=publishers, absent=absent)
    write(results, directory)
    print(f"{directory / PAGE} has the figures")


if __name__ == "__main__":
    main()
