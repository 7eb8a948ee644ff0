"""Create the page with its plots, as the content of files by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import brief, goals, plots, tables
from benchmarks.results import Machine, Result, Results

PAGE = "performance.md"
RESULTS = "performance/results.json"
PLOTTED = ("rate", "cpu", "resident")
"""Measures whose ratios are all drawn. The page begins with the first plot."""

_INTRODUCTION = """\
# Performance

For users who ask what Tailrace costs. `make bench` measures the collector and other programs on the same input, and writes this page from the results;
nobody edits it. [benchmarks](../benchmarks/README.md) says how to measure on your machine, and what each word here means.

Figures of one machine say little about another. **Read the ratios**: both sides ran in turns on the same machine, within the same minutes. Each line
has the minimum, median and maximum of several runs. A peer is an alternative program or library. Where none reads the format, it is a Python loop that stores
nothing. No peer finds out which events are missing, or stores each event exactly once across kills. Each section describes its peers. A reference does only
the unavoidable part of the work, such as reading a socket and discarding the bytes (`socket drained`), or writing ready rows (`rows written`).
"""


_UNDERSTATED = " The inputs were short: events a second are understated, since each run ends with a commit that waits up to a second."


def files(results: Results) -> dict[str, str]:
    """Return the content of the page and of its plots, by file name."""
    made: dict[str, str] = {}
    first, *others = ([*_ratios(results, measure, made)] for measure in PLOTTED)
    lines = [*_INTRODUCTION.splitlines(), *_brief(results), *first, "", "## Ratios", ""]
    lines += tables.of_ratios(results)
    for drawn in others:
        lines += drawn
    lines += goals.section(results)
    for key, result in results.found.items():
        lines += ["", *_section(key, result, made)]
    made[PAGE] = "\n".join(lines) + "\n"
    return made


def write(results: Results, directory: Path) -> None:
    """Write the results, the page and its plots to a directory."""
    results.save(directory / RESULTS)
    for name, text in files(results).items():
        (directory / name).write_text(text)


def _brief(results: Results) -> Iterator[str]:
    found = [*brief.sentences(results)]
    if found:
        yield ""
        yield "In short, as medians on the machines that the sections name:"
        yield ""
        yield from (f"- {sentence}" for sentence in found)


def _ratios(results: Results, measure: str, made: dict[str, str]) -> Iterator[str]:
    drawn = plots.of_ratios(results, measure)
    if drawn:
        name = f"performance/ratios-{measure}.svg"
        made[name] = drawn
        yield ""
        yield f"![Ratios, {measure}]({name})"


def _section(key: str, result: Result, made: dict[str, str]) -> Iterator[str]:
    yield f"## {result.title}"
    yield ""
    yield result.about
    yield ""
    yield from tables.of_sides(result)
    yield ""
    yield from tables.of_figures(result)
    for measure, drawn in plots.of_sweep(result):
        name = f"performance/{key}-{measure}.svg"
        made[name] = drawn
        yield ""
        yield f"![{result.title}, {measure}]({name})"
    yield ""
    yield _measured(key, result)


def _measured(key: str, result: Result) -> str:
    machine: Machine = result.machine
    short = " in its quick form" if result.quick else ""
    understated = _UNDERSTATED if result.quick else ""
    before, after = machine.load
    return (
        f"Measured{short} by `make bench ARGS={key}` on {machine.date}, commit {machine.commit}, kernels: {machine.kernels}, "
        f"{machine.cpu}, {machine.memory / 2**30:.0f} GiB, {machine.system}, Python {machine.python}. "
        f"Load average {before:g} before, {after:g} after.{understated}"
    )
