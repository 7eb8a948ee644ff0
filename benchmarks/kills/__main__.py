"""`python -m benchmarks.kills [--kills 100] [--publish]`: measure the kill curve and write its page, table and picture.

A loader with worker processes (`loader.py`) runs under the real DFTracer, while a collector follows its files. SIGKILL ends
all processes of the loader at once, at `--kills` different times with each of `SETTINGS`. Afterwards the table is compared
with the loader's journals. Needs `make producers`. With `--kills 0` the page is written anew from its results.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from benchmarks.contest import scratch
from benchmarks.machine import dated, machine
from benchmarks.places import BUILD, PUBLISHED, ROOT
from benchmarks.processes.daemon import daemon
from benchmarks.report.svg import Stack, stacks
from benchmarks.results import Machine
from tests import program, toml
from tests.query.asking import ask_all
from tests.system.collector import until

PRODUCERS = ROOT / ".venv/producers/bin/python"
LOADER = Path(__file__).with_name("loader.py")
SOURCE = "loaders"
WORKERS = 3
LONGEST_MS = 1500
"""Time of the latest kill, from when the loader's first process begins."""

PAGE, PICTURE, RESULTS = "kill-curve.md", "images/kill-curve.svg", "performance/kill-curve.json"
SETTINGS = {
    "each record at once": ("0", "1"),
    "4 KiB, compressed": ("1", "4096"),
    "64 KiB": ("0", "65536"),
    "DFTracer's defaults": ("1", "16777216"),
}
"""Settings `DFTRACER_TRACE_COMPRESSION` and `DFTRACER_WRITE_BUFFER_SIZE`, by the words of the page."""

TEXT = """\
# The kill curve

For users who ask what is left of a trace when a job is killed. A data loader with {workers} worker processes runs under the real [DFTracer](formats/dftracer.md), and a collector follows
its files. SIGKILL ends all processes of the loader at once: at {turns} different times with each of {settings} settings of DFTracer. The loader keeps a record of its own. At the end of each operation, before DFTracer
gets the event, the process appends a line to a journal with one `write`, which survives SIGKILL. [The program](../benchmarks/kills/__main__.py) compares the table
with the journals, and writes this page. It needs `make producers`.

![Operations done before each kill, and those in the table]({picture})

Each bar is a kill. Its height is the number of operations that the loader had done, and its colours show what became of them.

| DFTracer writes | done | in the table | lost, of unfinished sessions | lost, of processes without a session | lost by a kill, median | most |
|---|---|---|---|---|---|---|
{rows}

## How to read it

- **Nothing is invented.** The number of operations that are in the table and not in a journal is {invented}.
- **No killed process is called complete.** {processes} processes had begun. The table has {sessions} sessions of them, and calls {complete} of these complete. All others have a gap
  `truncated` of unknown size, because DFTracer's record `end` is not there.
- **Nobody can know the size of the loss.** A killed process takes along what DFTracer kept in memory, and no number in the file says how much that was. The table
  therefore counts none of the {lost} lost operations: it says that an unknown number of events is missing, never 0. It counts only records that were cut off in the middle, one event each: {counted} here.
- **A process that wrote nothing has no session.** {unseen} lost operations are of such processes. Their files have no content, so the table has nothing of them. `tailrace import` lists these
  files. The certificate of `tailrace run` lists them, too, and calls the loss unknown. A collector that follows a directory says nothing of a file without content.
- **Settings decide what a kill costs.** If DFTracer writes each record at once, a process loses at most the operation that it is just ending. [PRODUCERS](../collector/PRODUCERS.md#dftracer) has
  these settings, and the time that they take. With DFTracer's defaults, everything since the last 16 MiB is lost.

{measured}
"""


class Kill(msgspec.Struct, kw_only=True):
    """The outcome of one kill. Operations are `done` by the journal; the others are figures of the table.

    `processes` had begun, and the table has `sessions` of them; it calls some `complete`. `done` is the sum of `recovered`
    and of the operations that the table lacks: those of processes whose session has a gap (`unfinished`), of processes
    without a session (`unseen`), and of processes whose session is called complete (`hidden`). `invented` operations are
    in the table, but not in the journal. `counted` events are missing by gaps that state a number.
    """

    setting: str
    at_ms: int
    processes: int
    sessions: int
    complete: int
    done: int
    recovered: int
    unfinished: int
    unseen: int
    hidden: int
    invented: int
    counted: int

    @property
    def parts(self) -> tuple[int, int, int]:
        """The operations that were done, as the picture and the table divide them."""
        return self.recovered, self.unfinished, self.unseen


class Results(msgspec.Struct, kw_only=True):
    machine: Machine
    kills: list[Kill]


class Process(NamedTuple):
    """A process of a loader: the loader's directory, and the PID."""

    directory: str
    pid: int


class Stored(NamedTuple):
    """The contents of the table about a process: `missing` counts events by gaps that state a number."""

    complete: bool
    missing: int
    operations: set[int]


def measure(home: Path, kills: int, longest_ms: int = LONGEST_MS) -> Iterator[Kill]:
    """Kill loaders in turns of the settings, while a collector follows their files. Yield what each kill left."""
    runs = home / "runs"
    runs.mkdir()
    source = toml.source(SOURCE, "tail", "dftracer", paths=[f"{runs}/*/trace"], files_max=10000)
    planned = {
        str(runs / f"{turn:03}-{number}"): (setting, longest_ms * (turn + 1) // kills)
        for turn in range(kills)
        for number, setting in enumerate(SETTINGS)
    }
    with daemon(home, source) as running:
        for directory, (setting, at_ms) in planned.items():
            _kill(Path(directory), setting, at_ms)
            print(f"  {setting}: killed after {at_ms} ms", flush=True)
        running.await_quiet(SOURCE)
        store, command = running.collector.store, running.collector.command()
    # The loaders are gone: a last run of the collector reads what is left, and closes the sessions.
    program.start([*command, "--rest"], stdout=subprocess.DEVNULL).wait()
    found = _find(store)
    for directory, (setting, at_ms) in planned.items():
        yield _compare(setting, at_ms, directory, found)


def _kill(directory: Path, setting: str, at_ms: int) -> None:
    """Start a loader in a new directory. Kill its processes some time after the first one has begun."""
    (directory / "trace").mkdir(parents=True)
    compression, size = SETTINGS[setting]
    environ = os.environ | {
        "DFTRACER_TRACE_COMPRESSION": compression, "DFTRACER_WRITE_BUFFER_SIZE": size,
        "DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1", "DFTRACER_INIT": "FUNCTION",
        "DFTRACER_LOG_FILE": f"{directory}/trace/loader", "DFTRACER_DATA_DIR": f"{directory}/data",
    }  # fmt: skip
    loader = subprocess.Popen(
        [PRODUCERS, LOADER, directory, f"{WORKERS}"], cwd=directory, env=environ,
        start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until((directory / "journal").exists, "the loader to begin", pause=0.002)
        time.sleep(at_ms / 1000)
    finally:
        os.killpg(loader.pid, signal.SIGKILL)
        loader.wait()


def _find(store: Path) -> dict[Process, Stored]:
    """Read the table once: the sessions of processes, and their operations."""
    found: dict[Process, Stored] = {}
    sessions, spans = ask_all(
        store,
        [
            "SELECT any_value(s.peer), max(e.stream), any_value(s.missing), bool_or(s.unknown) "
            "FROM sessions s JOIN events e USING (source, session) "
            f"WHERE source = '{SOURCE}' GROUP BY session",
            "SELECT peer, stream, (attributes ->> '$.args.step')::BIGINT FROM spans "
            "JOIN sessions USING (source, session) WHERE category = 'loader'",
        ],
    )
    for peer, stream, missing, unknown in sessions:
        process = _process(peer, stream)
        known = found.get(process, Stored(complete=False, missing=0, operations=set()))
        complete = known.complete or not (missing or unknown)
        found[process] = Stored(complete, known.missing + missing, known.operations)
    for peer, stream, number in spans:
        found[_process(peer, stream)].operations.add(number)
    return found


def _process(peer: str, stream: str) -> Process:
    """Return the process that wrote a file. Its PID is 0 if the file does not show it."""
    return Process(str(Path(peer).parents[1]), int(stream.partition("/")[0] or 0))


def _compare(setting: str, at_ms: int, directory: str, found: dict[Process, Stored]) -> Kill:
    """Compare the table with the journal of one loader."""
    done: dict[Process, set[int]] = {}
    for line in (Path(directory) / "journal").read_text().splitlines():
        pid, number = line.split()
        operations = done.setdefault(Process(directory, int(pid)), set())
        operations.update([int(number)] if number != "-" else [])
    mine = {process: stored for process, stored in found.items() if process.directory == directory}
    kill = Kill(
        setting=setting, at_ms=at_ms, processes=len(done), sessions=len(mine),
        complete=sum(stored.complete for stored in mine.values()), done=sum(map(len, done.values())),
        counted=sum(stored.missing for stored in mine.values()),
        recovered=0, unfinished=0, unseen=0, hidden=0, invented=0,
    )  # fmt: skip
    for process in done.keys() | mine.keys():
        truth = done.get(process, set())
        stored = mine[process].operations if process in mine else set()
        kill.recovered += len(truth & stored)
        kill.invented += len(stored - truth)
        lost = len(truth - stored)
        if process not in mine:
            kill.unseen += lost
        elif mine[process].complete:
            kill.hidden += lost
        else:
            kill.unfinished += lost
    return kill


def write(results: Results, directory: Path) -> None:
    """Write the results, the page and its picture."""
    for name in (PICTURE, RESULTS):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(results).replace(b'{"setting"', b'\n{"setting"')
    (directory / RESULTS).write_bytes(text + b"\n")
    (directory / PICTURE).write_text(picture(results.kills))
    (directory / PAGE).write_text(page(results))


def page(results: Results) -> str:
    """Return the page, which states figures of these results only."""
    kills, machine = results.kills, results.machine
    turns = len(kills) // len(SETTINGS)
    figures = {
        name: sum(getattr(kill, name) for kill in kills) for name in Kill.__struct_fields__[2:]
    }
    measured = (
        f"Measured by `python -m benchmarks.kills --kills {turns}` on {machine.date}, {machine.cpu}, "
        f"{machine.memory / 2**30:.0f} GiB, {machine.system}, Python {machine.python}. "
        f"Load average {machine.load[0]:g} before, {machine.load[1]:g} after."
    )
    rows = "\n".join(_row(setting, [k for k in kills if k.setting == setting]) for setting in SETTINGS)  # fmt: skip
    return TEXT.format(
        **figures, lost=figures["done"] - figures["recovered"], turns=turns,
        workers=WORKERS, settings=len(SETTINGS), picture=PICTURE, rows=rows, measured=measured,
    )  # fmt: skip


def _row(setting: str, kills: list[Kill]) -> str:
    """Return a setting's row of the table. A part that is not all is less than 100 %."""
    done = sum(kill.done for kill in kills)
    lost = [kill.done - kill.recovered for kill in kills]
    cells = [setting, str(done)]
    for part in (sum(parts) for parts in zip(*(kill.parts for kill in kills), strict=True)):
        share = min(100 * part / max(done, 1), 100 if part == done else 99.99)
        cells.append(f"{part} ({share:.2f} %)")
    return f"| {' | '.join(cells)} | {median(lost):g} | {max(lost)} |"


def picture(kills: list[Kill]) -> str:
    """Draw a bar for each kill: what the loader had done, and how much of it the table has."""
    panels: dict[str, list[Stack]] = {setting: [] for setting in SETTINGS}
    for kill in kills:
        panels[kill.setting].append(Stack(kill.at_ms, kill.parts))
    names = ("in the table", "lost, of unfinished sessions", "lost, of processes without a session")
    return stacks("Operations done before a kill", "time of the kill, ms", names, panels)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills")
    parser.add_argument("--kills", type=int, default=100, help="kills with each setting; 0 draws the results anew")  # fmt: skip
    parser.add_argument("--publish", action="store_true", help=f"write docs/{PAGE}")
    asked = parser.parse_args()
    directory = PUBLISHED if asked.publish else BUILD
    if not asked.kills:
        results = msgspec.json.decode((directory / RESULTS).read_bytes(), type=Results)
    elif PRODUCERS.exists():
        with scratch() as home, dated(machine("")) as here:
            kills = list(measure(home, asked.kills))
        results = Results(machine=here, kills=kills)
    else:
        sys.exit("the loader needs the real DFTracer (CPython 3.11 on Linux): make producers")
    write(results, directory)
    print(f"{directory / PAGE} has the figures")


if __name__ == "__main__":
    main()
