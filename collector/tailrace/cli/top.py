"""`tailrace top`: watch the running collector."""

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
from tailrace.units import Duration

if TYPE_CHECKING:
    from tailrace.cli.output.screen import Answered
    from tailrace.config.schema import Config
    from tailrace.figures import Status

FIRST_SECONDS = 0.5
"""Seconds, at most, between the first two questions. The difference of their answers makes the first rates."""


@click.command()
@config_option
@store_option
@json_option("Print one JSON object for each answer of the collector.")
@click.option(
    "--interval",
    type=Quantity(Duration),
    metavar="TIME",
    default="2 s",
    show_default=True,
    help="Time between two questions to the collector.",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Stop after this many answers."
)
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    interval: Duration,
    count: int | None,
) -> None:
    """Show what the running collector receives now, what is missing and what is wrong, until Ctrl-C.

    `rows/s` and `received/s` are means since the answer before. `missing` counts events in gaps and in
    holes that are still open; "or more" marks a source of which an unknown number may be missing.
    `awaited` counts those that may still arrive. `behind` is what producers have written to files and
    sockets and the collector has not received.

    On a terminal, without --json and --count, the command uses the whole screen. If the collector no
    longer answers, the screen shows the reason beside the last figures; otherwise the command fails."""
    loaded = load_config(config, store)

    from tailrace.cli.output.screen import print_object, print_page, whole_screen

    first = _ask(loaded.config)
    if sys.stdout.isatty() and not as_json and count is None:
        with whole_screen() as show:
            for seen in _watch(loaded.config, first, interval, patient=True):
                show(seen)
    for seen in islice(_watch(loaded.config, first, interval), count):
        (print_object if as_json else print_page)(seen)


def _watch(
    config: Config, first: Status, interval: float, *, patient: bool = False
) -> Iterator[Answered]:
    """Yield what the collector answers after the first status, for ever.

    If it does not answer, raise NoAnswerError or, with `patient`, yield the reason with the last figures."""
    from tailrace.cli.output.screen import Answered
    from tailrace.overview import overview

    before = first
    pause = min(FIRST_SECONDS, interval)
    while True:
        time.sleep(pause)
        pause = interval
        try:
            now = _ask(config)
        except NoAnswerError as error:
            if not patient:
                raise
            yield Answered(overview(before, None), str(error))
        else:
            yield Answered(overview(now, before))
            before = now


def _ask(config: Config) -> Status:
    """Return the collector's status. Raise NoAnswerError if no collector answers."""
    from tailrace.figures import Status
    from tailrace.query.live import ask

    status = ask(config, Status)
    if status is None:
        raise NoAnswerError(
            f"{store_path(config)}: no collector runs on this store; `tailrace streams` lists its contents"
        )
    return status
