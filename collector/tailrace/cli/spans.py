"""Define `tailrace stats` and `tailrace diff`, which measure spans.

`stats` counts and measures spans by group. `diff` compares the spans of two runs; its exit code reports whether a threshold is
exceeded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tailrace.analysis.statistics import FIGURES, UNKNOWN, FigureChange, changes, exceeding
from tailrace.cli.commands import ExitCode
from tailrace.cli.options import (
    GAPS,
    F,
    Moment,
    Percentage,
    complete_option,
    config_option,
    filters_of,
    job_options_of,
    json_option,
    labels,
    load_config,
    named_run,
    open_store,
    received_as,
    table_options,
    warn_incomplete,
    window_options,
)
from tailrace.errors import QueryError, UnknownError
from tailrace.terminal import printable
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.analysis.statistics import GroupKey, SpanStatistics
    from tailrace.cli.output.console import Console
    from tailrace.config.load import Loaded
    from tailrace.query.completeness import Completeness
    from tailrace.query.filters import JobFilter, RunLabel
    from tailrace.reading.question import Filters


by_option = click.option(
    "--by",
    "words",
    metavar="KEY",
    multiple=True,
    default=["name"],
    show_default=True,
    help="Group by a column of `spans`, or by `attributes.KEY`; repeatable.",
)

NUMBERS = ("count", "open", "total", "self", "min", "p50", "p90", "p95", "p99", "max")


@click.command()
@table_options
@json_option("Print one JSON object for each group.")
@window_options
@by_option
@click.option(
    "--no-self-time",
    "without",
    is_flag=True,
    help="Do not compute self time, which reads every span in order.",
)
@complete_option
def stats_command(
    words: tuple[str, ...],
    *,
    loaded: Loaded,
    filters: Filters,
    as_json: bool,
    without: bool,
    complete_only: bool,
) -> None:
    """Count and measure spans by name, or by other keys: the longest total first.

    Only spans that have ended have a duration; `open` counts the spans that have not. `self` is the time during which a
    span of the group is the innermost open span of its stream and substream. Percentiles are durations of actual spans,
    not interpolated.

    Where spans are missing, a figure is the interval in which the figure of all spans lies, whatever the
    missing spans were: `4.1–4.3 ms`, `at least 4.1 ms`, or `cannot be told`. Any group may have any of
    the missing events, and a name of which nothing arrived has no line. A figure that is one value is
    exact as far as losses are known, up to the digits that are printed. With --json, the numbers are those of the spans that are there,
    and `bounds` has the least and the greatest value of each figure, as a list of two; null is unbounded.

    Durations are ticks where the clock has no tick rate, and `unit` says so; with --json they are whole
    numbers of the unit. A time selects spans that begin then, and no span without a wall time. The last
    line says whether anything is missing; with --json, standard error says it."""  # noqa: RUF002 - a range
    from tailrace.analysis.statistics import parse, statistics
    from tailrace.cli.output.console import Console
    from tailrace.query.completeness import completeness

    by = parse(words)
    window = filters.window
    engine, live = open_store(loaded, window.selection)
    whole = completeness(engine, window.scope, live)
    if complete_only:
        whole.demand(GAPS)
    found = statistics(engine, window, whole, by, self_time=not without)
    console = Console(engine)
    texts = [*(key.word for key in by), "unit"]
    if as_json:
        rows = [
            (*each.group, each.unit, *each.seen, json.dumps(each.bounds, separators=(",", ":")))
            for each in found
        ]
        console.objects(texts, NUMBERS, rows, nested=["bounds"])
        warn_incomplete(whole)
        return
    console.figures(texts, NUMBERS, [_shown(each) for each in found])
    console.line(f"{counted(len(found), 'group')}; {whole.text}")


def _shown(each: SpanStatistics) -> tuple[str | int | None, ...]:
    from tailrace.cli.output.console import interval_words

    count, *durations = interval_words(each).values()
    return (*each.group, each.unit, count, each.open, *durations)


class Run(NamedTuple):
    """One side of a comparison: a run, its statistics, and what is missing from it."""

    word: str
    """The store or certificate of the run, as the user wrote it."""
    statistics: list[SpanStatistics]
    whole: Completeness
    console: Console


def sides_options(command: F) -> F:
    """Add the options that select spans of A and of B. The command receives both filters as `sides`."""
    own = [
        f"{name}_{side}" for side in "ab" for name in ("session", "since", "until", "label", "job")
    ]
    command = received_as("sides", _sides, ("sources", *own))(command)
    for side in "ba":
        command = job_options_of(side)(command)
    for side in "ba":
        command = click.option(
            f"--label-{side}", metavar="KEY=VALUE", multiple=True, callback=labels,
            help=f"Take only sessions of {side.upper()} with this label.",
        )(command)  # fmt: skip
    for side in "ba":
        spans = f"Take only spans of {side.upper()} that begin"
        until = click.option(f"--until-{side}", type=Moment(), help=f"{spans} before this time.")
        since = click.option(f"--since-{side}", type=Moment(), help=f"{spans} then or later.")
        command = since(until(command))
    for side in "ba":
        text = f"Take only these sessions of {side.upper()}."
        command = click.option(f"--session-{side}", metavar="ID", multiple=True, help=text)(command)
    return click.option(
        "--source", "sources", metavar="NAME", multiple=True, help="Take only this source."
    )(command)


def _sides(sources: tuple[str, ...], *given: Any) -> tuple[Filters, Filters]:  # noqa: ANN401 - as the options give them
    """Return the filters of A and of B. `given` contains the values of the five options of A, followed by those of B."""

    def side(
        session: tuple[str, ...],
        since: int | None,
        until: int | None,
        labels: tuple[RunLabel, ...],
        job: JobFilter,
    ) -> Filters:
        return filters_of(sources, session, (), since, until, labels, job)

    return side(*given[:5]), side(*given[5:])


@click.command()
@config_option
@json_option("Print one JSON object for each group.")
@sides_options
@by_option
@click.option(
    "--figure",
    type=click.Choice(list(FIGURES)),
    default="p95",
    show_default=True,
    help="The figure to compare.",
)
@click.option(
    "--name", "names", metavar="NAME", multiple=True, help="Compare only this group; repeatable."
)
@click.option(
    "--threshold",
    type=Percentage(),
    metavar="PERCENT",
    help="Exit with 1 if the figure of a group grew by more than this, as in 10%.",
)
@complete_option
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.pass_context
def diff_command(
    context: click.Context,
    config: Path | None,
    a: str,
    b: str,
    words: tuple[str, ...],
    figure: str,
    names: tuple[str, ...],
    threshold: float | None,
    *,
    sides: tuple[Filters, Filters],
    as_json: bool,
    complete_only: bool,
) -> None:
    """Compare the spans of two runs by name, or by other keys: those that grew most first.

    A and B are each a store (directory or URL) or the certificate of a run; both may be the same store with different
    sessions, ranks or times. A group that only B has is `new`, and a group that only A has is `gone`; neither exceeds
    the threshold. A group whose spans are all still open in one run is `unknown`; the command names it on standard
    error, because nobody knows whether it exceeds the threshold. The last lines say what is missing from A and from B.
    If a run is incomplete, the comparison may miss a group that grew: demand complete runs with --complete-only. With
    --threshold, it is an error if there is no group to compare."""
    from tailrace.analysis.statistics import parse

    by = parse(words)
    own = figure == "self"
    runs = [
        _read(config, path, by, filters, own=own, demand=complete_only)
        for path, filters in zip((a, b), sides, strict=True)
    ]
    found = _named(changes(runs[0].statistics, runs[1].statistics, figure), names)
    if threshold is not None and not any(each.growth is not None for each in found):
        raise QueryError(f"no group has a {figure} in both {a} and {b}, so nothing was compared")
    over = [] if threshold is None else exceeding(found, threshold)
    _print(runs, found, [key.word for key in by], figure, as_json=as_json)
    for each in found if threshold is not None else ():
        if each.word == UNKNOWN:
            text = (
                f"{figure} of {_of(each)} was not compared: in one run, none of its spans has ended"
            )
            click.echo(printable(f"tailrace: {text}"), err=True)
    for each in over:
        click.echo(printable(f"tailrace: {figure} of {_of(each)} grew by {each.word}"), err=True)
    if over:
        context.exit(ExitCode.FAILED)


def _read(
    config: Path | None,
    path: str,
    by: Sequence[GroupKey],
    chosen: Filters,
    *,
    own: bool,
    demand: bool,
) -> Run:
    """Return the span statistics of a store, or of the sessions of a certificate, for the spans that `chosen` selects.
    With `demand`, raise an error if anything is missing."""
    from tailrace.analysis.statistics import statistics
    from tailrace.cli.output.console import Console
    from tailrace.query.completeness import completeness

    store, of_run = named_run(path)
    window = chosen._replace(session=chosen.session or of_run or None).window
    engine, live = open_store(load_config(config, store), window.selection)
    whole = completeness(engine, window.scope, live)
    if demand:
        whole.demand(f"{GAPS} --store {store}")
    return Run(path, statistics(engine, window, whole, by, self_time=own), whole, Console(engine))


def _named(found: list[FigureChange], names: Sequence[str]) -> list[FigureChange]:
    """Return only the groups with the given names; all groups without names. Raise UnknownError for a name that no
    group has."""
    if not names:
        return found
    known = {_of(each) for each in found}
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known)[:20]) or "none"
            raise UnknownError(f"there is no group {name!r} in either run; known: {listed}")
    return [each for each in found if _of(each) in names]


def _of(change: FigureChange) -> str:
    return ", ".join("-" if value is None else value for value in change.group)


def _print(
    runs: Sequence[Run],
    found: Sequence[FigureChange],
    keys: Sequence[str],
    figure: str,
    *,
    as_json: bool,
) -> None:
    from tailrace.cli.output.console import spell

    console, texts = runs[0].console, [*keys, "unit"]
    numbers = ["count a", "count b", f"{figure} a", f"{figure} b", "change"]
    if as_json:
        names = [name.replace(" ", "_") for name in numbers]
        rows = [(*_head(each), each.from_, each.to, each.word) for each in found]
        console.objects(texts, names, rows)
    else:
        units = ["" if figure == "count" else each.unit for each in found]
        shown = [
            (*_head(each), spell(each.from_, unit), spell(each.to, unit), each.word)
            for each, unit in zip(found, units, strict=True)
        ]
        console.figures(texts, numbers, shown)
        console.line(counted(len(found), "group"))
    for letter, run in zip("AB", runs, strict=True):
        text = printable(f"{letter} {run.word}: {run.whole.text}")
        if as_json:
            click.echo(f"tailrace: {text}", err=True)
        else:
            console.line(text)


def _head(change: FigureChange) -> tuple[str | int | None, ...]:
    """Return the first columns of a line: the group, the unit of its durations, and the number of its ended spans in
    each run."""
    counts = (side.ended if side else None for side in (change.before, change.after))
    return (*change.group, change.unit, *counts)
