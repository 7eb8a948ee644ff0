"""`python -m benchmarks.soak --minutes N [--seed S] [--publish]`: run the soak, and write its page, figures and picture.

A collector runs for N minutes under programs of all formats and under faults (`driver.py`). The programs keep journals
(`producers.py`), with which the table is compared (`verdict.py`). With `--minutes 0` the page is written anew from its
results. The exit code is 1 if an event is unaccounted for, or a figure grows.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from benchmarks.contest import scratch
from benchmarks.machine import dated, machine
from benchmarks.places import BUILD, PUBLISHED
from benchmarks.report.svg import courses
from benchmarks.results import Machine
from benchmarks.soak.driver import RESTARTS, SHORT_SECONDS, Outcome, Plan, Sample, Soak
from benchmarks.soak.verdict import Share

PAGE, PICTURE, RESULTS = "soak.md", "images/soak.svg", "performance/soak.json"
RATE = 400.0
CALM = 0.25, RESTARTS[1][0]
"""The part of the time in which one process of the collector works throughout."""

KEPT_SECONDS, QUARTER_HOUR = 3600.0, 900.0
"""Time for which the collector keeps merged files, and the least time that is left for a comparison after it."""
GROWTH = 1.2


class Results(msgspec.Struct, kw_only=True):
    machine: Machine
    seconds: float
    seed: int
    rate: float
    outcome: Outcome

    @property
    def is_busy(self) -> bool:
        """Whether more processes wanted to run than the machine has processors, before or after."""
        return max(self.machine.load) > int(self.machine.cpu.partition(" ")[0])


Point = tuple[float, float]
"""A time (seconds from the start), and the value of a figure then."""


def _median(points: list[Point]) -> float:
    return median([value for _, value in points] or [0.0])


def _slope(points: list[Point]) -> float:
    """Return the growth of the value in a minute."""
    if not points:
        return 0.0
    (begin, low), (end, high) = points[0], points[-1]
    return 60 * (high - low) / max(end - begin, 1.0)


class Figure(NamedTuple):
    """A figure of the collector that must not grow. `slack`, in its unit, allows for steps that come with no growth.
    `summary` makes one number of the values of a part of the time.
    """

    words: str
    unit: str
    slack: float
    value: Callable[[Sample], float | None]
    summary: Callable[[list[Point]], float] = _median

    @property
    def title(self) -> str:
        return f"{self.words}, {self.unit}" if self.unit else self.words


FIGURES = (
    Figure("resident memory", "MiB", 8, lambda sample: sample.resident / 2**20),
    Figure("open descriptors", "", 16, lambda sample: sample.descriptors),
    Figure("threads", "", 16, lambda sample: sample.threads),
    Figure("spool on disk", "MiB", 16, lambda sample: sample.spool / 2**20),
    Figure("its log", "KiB a minute", 16, lambda sample: sample.log / 1024, _slope),
    Figure("files of the table", "", 60, lambda sample: sample.files),
    Figure("time of a commit", "ms", 50, lambda sample: sample.commit),
    Figure("CPU", "% of a core", 2, lambda sample: 100 * sample.cpu),
)
SHARED = {"time of a commit", "CPU"}
"""Figures that also depend on other processes. On a busy machine, they are shown, but not judged."""

TEXT = """\
# The soak

For operators who ask what becomes of a collector that runs for long under every fault at once. A `tailrace serve` of its own process ran for {minutes:g} minutes, while programs of all five formats
sent it {rate:g} events a second together, and both were broken at random times. Each program appends a byte to a journal before it emits an event. The journal survives SIGKILL, so it is the truth.
[The program](../benchmarks/soak/__main__.py) compares the table with the journals, and writes this page.

**{verdict}**

| format | programs | lives | killed | emitted | stored once | missing, with a number | in a gap of unknown size | not shown by the format | unaccounted |
|---|---|---|---|---|---|---|---|---|---|
{rows}

Programs with a stored event that they never emitted: {invented}. Events that were stored again: {twice}. {checks} comparisons before the end found {early} such programs and events, or unaccounted ones.

## Does it grow?

The table compares two parts of the time, by medians: {parts}. The same process worked throughout both; the collector was killed and restarted before and after. The collector keeps merged files for
an hour, and its memory may depend on their number. So the parts lie behind the process's first hour, if it worked long enough. The limit
is a fifth more than the first part, or what the usual steps of a figure need if that is more: one segment of the spool has 8 MiB, for example.

| figure of the collector | first part | second part | limit |
|---|---|---|---|
{figures}

Resident memory of this process in successive quarters of an hour, MiB: {resident}.

![Figures of the collector over the time, with lines where it was killed or restarted]({picture})

The table's files are those of its newest version. Upkeep merges them, and keeps merged files on disk for an hour for readers: at the end {kept} data files were on disk.

## The faults

| fault | times |
|---|---|
{faults}

Beside these faults of the collector, of {lives} lives of programs {killed} ended by SIGKILL, and a quarter was paused (SIGSTOP). Files were renamed while they grew, packed when they were finished, and
removed once they were read. A relay lost, doubled and reordered datagrams of `heph_datagrams`, and another one lost and delayed those of `heph_udp` and the answers.

## How to read it

- **`heph_tcp`, `heph_udp`** are the Python client. The collector acknowledges what is durable, and a program that ends waits for that. Such programs and those that write files lack {lacking} events if they ended in order.
- **`heph_datagrams`** is the same client without acknowledgements, and **`heph_c`** is the C client, which does not send again what a killed collector lost. Numbers show what is missing.
- **The files** (`ovni`, `dftracer`, `dftracer_gz`, `dftracer_real`, `et3`) get each event by a `write` soon after the journal has it, so a kill costs at most some events. `dftracer_real` is a program under the real DFTracer.
- **`jets`** has no numbers. A connection that was cut has a gap of unknown size.
- **A gap of unknown size** covers what a killed program emitted and nobody received. Nobody can know its size.
- **Not shown by the format:** the last events of a killed program whose connection or file shows no end (JETS, ET3), and events of a killed program of which nothing arrived.
  [Blind spots](../collector/ARCHITECTURE.md#blind-spots) has these cases.
{absent}
Measured by `python -m benchmarks.soak --minutes {minutes:g} --seed {seed}` on {date}, {cpu}, {memory:.0f} GiB, {system}, Python {python}. Load average {before:g} before, {after:g} after.
"""


class Growth(NamedTuple):
    """The medians of a figure in the two parts of the time, and the greatest allowed value of the second."""

    figure: Figure
    first: float
    last: float
    limit: float

    @property
    def is_within(self) -> bool:
        return self.last <= self.limit


def parts(seconds: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the parts of the time that are compared: the last quarters of the calm time, or the halves of what is left
    of it after the process's first hour."""
    begin, end = (share * seconds for share in CALM)
    if end - begin < KEPT_SECONDS + QUARTER_HOUR:
        return (begin, begin + 0.25 * seconds), (end - 0.25 * seconds, end)
    middle = (begin + KEPT_SECONDS + end) / 2
    return (begin + KEPT_SECONDS, middle), (middle, end)


def growth(samples: list[Sample], seconds: float, *, busy: bool) -> list[Growth]:
    """Compare the two parts of the time. On a busy machine, the `SHARED` figures have no limit."""
    found = []
    for figure in FIGURES:
        first, last = (
            figure.summary(
                [
                    (sample.at, value)
                    for sample in samples
                    if low <= sample.at < high and (value := figure.value(sample)) is not None
                ]
            )
            for low, high in parts(seconds)
        )
        is_judged = not busy or figure.words not in SHARED
        limit = max(GROWTH * first, first + figure.slack) if is_judged else inf
        found.append(Growth(figure, first, last, limit))
    return found


def faults(results: Results) -> list[str]:
    """Return what is wrong: lives with unaccounted, doubled or invented events, and figures that grow."""
    found = [line for share in results.outcome.shares for line in share.named]
    found += [f"{share.kind}: {share.open} of sessions that never ended" for share in results.outcome.shares if share.open]  # fmt: skip
    found += [f"at {check.at} s: {check.faults}" for check in results.outcome.checks if check.faults]  # fmt: skip
    for each in growth(results.outcome.samples, results.seconds, busy=results.is_busy):
        if not each.is_within and results.seconds >= SHORT_SECONDS:
            found.append(f"{each.figure.title}: {each.first:.1f}, then {each.last:.1f}")
    return found


def page(results: Results) -> str:
    """Return the page, which states figures of these results only."""
    outcome, machine = results.outcome, results.machine
    shares = outcome.shares
    sums = {
        name: sum(getattr(share, name) for share in shares) for name in Share.__struct_fields__[1:-1]
    }  # fmt: skip
    wrong = sums["unaccounted"] + sums["twice"] + sums["invented"]
    compared = growth(outcome.samples, results.seconds, busy=results.is_busy)
    grows = [each.figure.words for each in compared if not each.is_within]
    verdict = f"{sums['emitted']:,} events, {wrong} unaccounted for or wrongly stored; "
    verdict += (
        f"these figures grew: {', '.join(grows)}." if grows else "no figure with a limit grew."
    )
    times = Counter(name for _, name in outcome.faults)
    named = " and ".join(
        f"{low / 60:g} to {high / 60:g} min" for low, high in parts(results.seconds)
    )
    return TEXT.format(
        parts=named, resident=_quarters(outcome.samples, results.seconds),
        **sums | {"checks": len(outcome.checks)}, early=sum(c.faults for c in outcome.checks),
        verdict=verdict, minutes=results.seconds / 60, rate=results.rate, seed=results.seed,
        rows="\n".join(map(_row, shares)), figures="\n".join(map(_figure, compared)),
        faults="\n".join(f"| {WORDS[name]} | {times[name]} |" for name in WORDS if times[name]),
        picture=PICTURE, kept=outcome.samples[-1].kept,
        absent=f"- Absent here: {', '.join(outcome.absent)}.\n" if outcome.absent else "",
        date=machine.date, cpu=machine.cpu, memory=machine.memory / 2**30, system=machine.system,
        python=machine.python, before=machine.load[0], after=machine.load[1],
    )  # fmt: skip


WORDS = {
    "kill": "the collector is killed (SIGKILL) and started",
    "restart": "the collector is stopped in order and started",
    "pause": "the collector is paused (SIGSTOP) for up to 3 s",
    "fill_disk": "the disk is full for up to 4 s: all writes into the store fail",
    "remove_lock": "the file of the collector's lock is removed",
    "leave_unread": "nobody reads the collector's output, a full pipe, for up to 6 s",
    "upkeep": "a user runs an upkeep beside the collector's own ones",
}
"""Faults by their functions."""


FORMATS = {"heph": "Heph", "jets": "JETS", "ovni": "ovni", "dftracer": "DFTracer", "et3": "ET3"}


def _row(share: Share) -> str:
    cells = (share.lives, share.killed, share.emitted, share.stored, share.counted, share.unknown, share.unshown, share.unaccounted)  # fmt: skip
    format_ = FORMATS[share.kind.partition("_")[0]]
    return f"| {format_} | `{share.kind}` | {' | '.join(f'{cell:,}' for cell in cells)} |"


def _quarters(samples: list[Sample], seconds: float) -> str:
    """Return the medians of the resident memory in successive quarters of an hour of the calm time."""
    begin, end = (share * seconds for share in CALM)
    by_quarter: dict[int, list[float]] = {}
    for sample in samples:
        if begin <= sample.at < end:
            quarter = int((sample.at - begin) // QUARTER_HOUR)
            by_quarter.setdefault(quarter, []).append(sample.resident / 2**20)
    return ", ".join(f"{median(values):.0f}" for _, values in sorted(by_quarter.items()))


def _figure(each: Growth) -> str:
    limit = "none: the machine was busy" if each.limit == inf else f"{each.limit:.1f}"
    return f"| {each.figure.title} | {each.first:.1f} | {each.last:.1f} | {limit} |"


def picture(results: Results) -> str:
    """Draw the figures over time."""
    panels = {
        figure.title: [
            (sample.at / 60, value)
            for sample in results.outcome.samples
            if (value := figure.value(sample)) is not None
        ]
        for figure in FIGURES
        if figure.summary is _median
    }
    restarts = [at / 60 for at, name in results.outcome.faults if name in {"kill", "restart"}]
    return courses("The collector under the soak", "minutes", panels, restarts)


def write(results: Results, directory: Path) -> None:
    """Write the results, the page and its picture."""
    for name in (PICTURE, RESULTS):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(results).replace(b"],[", b"],\n[").replace(b'{"kind"', b'\n{"kind"')
    (directory / RESULTS).write_bytes(text + b"\n")
    (directory / PICTURE).write_text(picture(results))
    (directory / PAGE).write_text(page(results))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--minutes", type=float, required=True, help="length; 0 writes the page anew")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="events a second, of all programs")
    parser.add_argument("--publish", action="store_true", help=f"write docs/{PAGE}")
    asked = parser.parse_args()
    directory = PUBLISHED if asked.publish else BUILD
    if asked.minutes:
        plan = Plan(60 * asked.minutes, asked.seed, asked.rate)
        with scratch() as home, dated(machine("")) as here:
            outcome = Soak(home, plan).run()
        results = Results(machine=here, seconds=plan.seconds, seed=plan.seed, rate=plan.rate, outcome=outcome)  # fmt: skip
        write(results, directory)
    else:
        results = msgspec.json.decode((directory / RESULTS).read_bytes(), type=Results)
        write(results, directory)
    print(f"{directory / PAGE} has the figures")
    if found := faults(results):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
