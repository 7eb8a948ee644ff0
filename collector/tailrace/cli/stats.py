"""`tailrace stats`: count and measure spans by group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import (
    GAPS,
    complete_option,
    config_option,
    json_option,
    load_config,
    store_option,
    window_options,
)
from tailrace.cli.store import open_store, say_incomplete
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.analysis.statistics import SpanStatistics
    from tailrace.query.filters import JobFilter, RunLabel

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
@config_option
@store_option
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
def command(
    config: Path | None,
    store: str | None,
    sources: tuple[str, ...],
    sessions: tuple[str, ...],
    streams: tuple[str, ...],
    since: int | None,
    until: int | None,
    labels: tuple[RunLabel, ...],
    job: JobFilter,
    words: tuple[str, ...],
    *,
    as_json: bool,
    without: bool,
    complete_only: bool,
) -> None:
    """Count and measure spans by name, or by other keys: the longest total first.

    Only spans that have ended have a duration; `open` counts the others. `self` is the time during which a
    span is the innermost open span of its stream and substream. Percentiles are durations that occur.
    Durations are ticks where the clock has no tick rate, and `unit` says so; with --json they are whole
    numbers of the unit. A time selects spans that begin then, and no span without a wall time. The last
    line says whether anything is missing; with --json, standard error says it."""
    loaded = load_config(config, store)

    from tailrace.analysis.statistics import parse, statistics
    from tailrace.cli.output.console import Console
    from tailrace.query.completeness import completeness
    from tailrace.reading.question import Filters

    by = parse(words)
    window = Filters(
        sources or None,
        sessions or None,
        streams or None,
        since,
        until,
        labels=labels or None,
        job=job,
    ).window
    engine, live = open_store(loaded, window.selection)
    whole = completeness(engine, window.scope, live)
    if complete_only:
        whole.demand(GAPS)
    found = statistics(engine, window, by, self_time=not without)
    console = Console(engine)
    texts = [*(key.word for key in by), "unit"]
    if as_json:
        console.objects(texts, NUMBERS, [(*each.group, *each[1:]) for each in found])
        say_incomplete(whole)
        return
    console.figures(texts, NUMBERS, [_shown(each) for each in found])
    console.line(f"{counted(len(found), 'group')}; {whole.text}")


def _shown(each: SpanStatistics) -> tuple[str | int | None, ...]:
    from tailrace.cli.output.console import spell

    return (*each.group, *each[1:4], *(spell(value, each.unit) for value in each[4:]))
