"""Define `tailrace collectors`, which lists the collectors of a store, and `tailrace top`, which watches the running
collectors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace.cli import options
from tailrace.cli.commands import examples
from tailrace.clock import SystemClock
from tailrace.config.load import Loaded, store_path
from tailrace.config.schema import AdminConfig, Config
from tailrace.errors import NoAnswerError
from tailrace.figures import Status
from tailrace.query.live import Asked, ask
from tailrace.standard import STDERR, STDOUT, never_wait
from tailrace.units import Duration

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from tailrace.cli.output.screen import Answered
    from tailrace.query.collectors import CollectorHistory, CollectorWatch


COLUMNS = (
    "collector", "host", "since", "last heartbeat", "age", "not committed", "spool", "missing", "health",
)  # fmt: skip
NUMBERS = ("age", "not committed", "spool", "missing")


@click.command(
    epilog=examples(
        "tailrace collectors --store ./store", "tailrace collectors --store ./store --metrics"
    )
)
@options.config_option
@options.store_option
@options.store_argument
@options.json_option("Print one JSON object for each collector.")
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print metrics, as Prometheus reads them."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve these metrics at /metrics of this address until Ctrl-C or SIGTERM; port 0 is any free port.",
)
def collectors_command(
    config: Path | None, store: str | None, listen: str | None, *, as_json: bool, as_metrics: bool
) -> None:
    """List the collectors that have ever written to the store, with the state of each one.

    The states come from the heartbeats in the table. Therefore the command also works if the store is in an object
    store, and if the collectors run on other hosts. `since` is the time (UTC) at which the collector last started.
    Three columns are from its last heartbeat: `not committed` is the number of received bytes that were not in the
    table yet, `spool` is the size of the spool, and `missing` is the number of missing events.

    While heartbeats arrive, `health` is `ok`, or `degraded` with the conditions. If three heartbeats are overdue, it is
    `silent since` a time. After a regular stop, it is `stopped`. If the collector of a local store ended in another
    way, it is `killed`. If the collector's clock is ahead of this host's clock, it is `unknown`.
    A collector that has written no heartbeat (`heartbeat.interval`) is not listed.

    With --listen, the command serves the same facts to Prometheus, on any host that can read the table, and prints the
    address. Each scrape reads the table; if the table cannot be read, the answer is 503. The keys of `[admin]` except
    `listen` define who may use the address, as they do for the daemon."""
    if as_json + as_metrics + (listen is not None) > 1:
        raise click.UsageError("give only one of --json, --metrics and --listen")
    loaded = options.load_config(config, store, listen)

    from tailrace.query.collectors import CollectorWatch

    with closing(CollectorWatch(*loaded.store)) as watch:
        if listen is not None:
            _serve(loaded.config.admin, watch)
            return
        now = SystemClock().wall_ns()
        found = watch.look(now)
    if as_metrics:
        from tailrace.metrics.observed import observed
        from tailrace.serving.http import exposed

        sys.stdout.buffer.write(exposed(list(observed(found, now))).body)
        return
    if as_json:
        lines = map(msgspec.json.encode, found)
    else:
        from tailrace.cli.output.console import columns
        from tailrace.query.output import layout

        lines = map(str.encode, layout(columns(COLUMNS, NUMBERS), [list(map(_cells, found))]))
    for line in lines:
        sys.stdout.buffer.write(line + b"\n")


def _serve(admin: AdminConfig, watch: CollectorWatch) -> None:
    from tailrace.metrics.observed import observed
    from tailrace.serving.observer import serve

    never_wait(STDOUT, STDERR)
    clock = SystemClock()

    def look() -> Iterator[Metric]:
        now = clock.wall_ns()
        return observed(watch.look(now), now)

    serve(admin, look, lambda address: click.echo(f"metrics: {address}/metrics"))


def _cells(each: CollectorHistory) -> tuple[str | None, ...]:
    from tailrace.cli.output.console import spell_bytes, spell_seconds

    def size(amount: int | None) -> str | None:
        return None if amount is None else spell_bytes(amount)

    health = each.health
    if each.silent_since is not None:
        health = f"silent since {_time(each.silent_since)}"
    elif each.conditions:
        health = f"{health}: {each.conditions}"
    return (
        each.name, each.host or None, _time(each.since), _time(each.heartbeat),
        spell_seconds(max(each.age_seconds, 0.0)), size(each.uncommitted_bytes), size(each.spool_bytes),
        None if each.missing_events is None else f"{each.missing_events:,}", health,
    )  # fmt: skip


def _time(nanoseconds: int) -> str:
    return f"{datetime.fromtimestamp(nanoseconds / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


FIRST_SECONDS = 0.5
"""Maximum time (seconds) between the first two requests to the collectors, which yield the first rates."""


@click.command(
    epilog=examples("tailrace top --store ./store", "tailrace top --store ./store --count 1 --json")
)
@options.reading_options
@options.json_option("Print one JSON object for each answer of a collector.")
@click.option(
    "--interval",
    type=options.Quantity(Duration),
    metavar="TIME",
    default="2 s",
    show_default=True,
    help="Time between two requests to the collectors.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after this many answers of each collector.",
)
def top_command(*, loaded: Loaded, as_json: bool, interval: Duration, count: int | None) -> None:
    """Show what the running collectors receive now, what is missing and what is wrong, until Ctrl-C.

    `rows/s` and `received/s` are averages since the previous answer. `missing` counts the events that have not arrived;
    "or more" marks a source of which an unknown number of further events may be missing. `awaited` counts the missing
    events that may still arrive. `behind` is the number of bytes that producers have written to files and sockets and
    that the collector has not received.

    On a terminal, without --json and --count, the command uses the whole screen. If a collector no longer answers, the
    screen shows the reason beside the last figures; otherwise the command prints the reason on standard error, and
    fails once no collector answers."""
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
    """Yield the statuses of all collectors every `interval` seconds, and the reasons why some collectors did not
    answer. If no collector answers, raise NoAnswerError. With `patient`, do not raise it, but yield the last known
    figures of each collector that no longer answers."""
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
    """Ask all collectors for their statuses, and return them. Raise NoAnswerError if no collector answers."""
    asked = ask(config, Status)
    if not asked.answers:
        raise NoAnswerError(
            asked.unasked
            or f"{store_path(config)}: no collector runs on this store; `tailrace streams` lists its contents"
        )
    return asked
