"""`tailrace top`: watch the running collectors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import Quantity, config_option, json_option, load_config, store_option
from tailrace.config.load import store_path
from tailrace.errors import NoAnswerError
from tailrace.standard import STDERR, never_wait
from tailrace.units import Duration

if TYPE_CHECKING:
    from tailrace.cli.output.screen import Answered
    from tailrace.config.schema import Config
    from tailrace.figures import Status
    from tailrace.query.live import Asked

FIRST_SECONDS = 0.5
"""Seconds, at most, between the first two questions. The difference of their answers makes the first rates."""


@click.command()
@config_option
@store_option
@json_option("Print one JSON object for each answer of a collector.")
@click.option(
    "--interval",
    type=Quantity(Duration),
    metavar="TIME",
    default="2 s",
    show_default=True,
    help="Time between two questions to the collectors.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after this many answers of each collector.",
)
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    interval: Duration,
    count: int | None,
) -> None:
    """Show what the running collectors receive now, what is missing and what is wrong, until Ctrl-C.

    `rows/s` and `received/s` are means since the answer before. `missing` counts events in gaps and in
    holes that are still open; "or more" marks a source of which an unknown number may be missing.
    `awaited` counts those that may still arrive. `behind` is what producers have written to files and
    sockets and the collector has not received.

    On a terminal, without --json and --count, the command uses the whole screen. If a collector no
    longer answers, the screen shows the reason beside the last figures; otherwise the reason is on standard
    error, and the command fails once none answers."""
    loaded = load_config(config, store)
    never_wait(STDERR)

    from tailrace.cli.output.screen import print_objects, print_pages, whole_screen

    first = _ask(loaded.config)
    if sys.stdout.isatty() and not as_json and count is None:
        with whole_screen() as show:
            for seen, _ in _watch(loaded.config, first, interval, patient=True):
                show(seen)
    for seen, unasked in islice(_watch(loaded.config, first, interval), count):
        (print_objects if as_json else print_pages)(seen)
        if unasked:
            click.echo(f"tailrace: {unasked}", err=True)


def _watch(
    config: Config, first: Asked[Status], interval: float, *, patient: bool = False
) -> Iterator[tuple[list[Answered], str]]:
    """Yield what the collectors answer after their first statuses, for ever, and why others do not.

    If none answers, raise NoAnswerError. With `patient`, yield the last figures of those that do not answer, with the
    reason."""
    from tailrace.cli.output.screen import Answered
    from tailrace.overview import overview

    before = dict(first.answers)
    pause = min(FIRST_SECONDS, interval)
    while True:
        time.sleep(pause)
        pause = interval
        try:
            now, unasked, _ = _ask(config)
        except NoAnswerError as error:
            if not patient:
                raise
            now, unasked = {}, str(error)
        shown = [Answered(overview(status, before.get(name))) for name, status in now.items()]
        before |= now
        if patient:
            gone = [name for name in before if name not in now]
            why = unasked or "it has ended"
            shown += [Answered(overview(before[name], None), why) for name in gone]
        yield shown, unasked


def _ask(config: Config) -> Asked[Status]:
    """Return the collectors' statuses. Raise NoAnswerError if no collector answers."""
    from tailrace.figures import Status
    from tailrace.query.live import ask

    asked = ask(config, Status)
    if not asked.answers:
        raise NoAnswerError(
            asked.unasked
            or f"{store_path(config)}: no collector runs on this store; `tailrace streams` lists its contents"
        )
    return asked
