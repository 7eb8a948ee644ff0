"""`tailrace doctor`: say what to change on this host, and in a configuration, before anything is lost."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.commands import ExitCode
from tailrace.cli.options import config_option, load_config, store_option

if TYPE_CHECKING:
    from tailrace.doctor.finding import Severity

WIDTH = 80
"""The default number of columns, and the most that are used, since long lines read badly."""

COLOURS = {"problem": "red", "advice": "yellow", "good": "green"}


@click.command()
@config_option
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the same facts.")
@click.option("--quick", is_flag=True, help="Skip measuring the disk and the UDP rate.")
def command(config: Path | None, store: str | None, *, as_json: bool, quick: bool) -> None:
    """Examine this host and a configuration, and say what to change, as commands.

    Needs no root, changes nothing, and does not disturb a running collector. Takes some five seconds.
    Exits with 1 when there is a problem; advice alone does not count.

    With --store s3://BUCKET/PREFIX the endpoint is tested, too: whether its clock, its rights, conditional
    puts, reads and listings are such that several collectors can write one table. This writes some eighty
    small keys below the prefix, beside the table, and deletes them.

    With --json: `problems` and `advice` say how many there are; each of `findings` has a `check`, a
    `severity` (problem, advice or good), `what` is the case, `why` it matters, `commands` that change it
    and `figures`, whose names end in their units."""
    loaded = load_config(config, store)

    from tailrace.clock import SystemClock
    from tailrace.config.load import spool_path, store_path
    from tailrace.doctor import examination, finding
    from tailrace.doctor.finding import Severity
    from tailrace.doctor.host import Host

    clock = SystemClock()
    host = Host(loaded.config, os.environ, clock)
    findings = examination.examine(host, quick=quick)
    if host.store is None and store is None:
        findings.append(examination.endpoint_not_asked_for())
    elif host.store is None and find_spec("obstore") is None:
        findings.append(examination.endpoint_without_obstore())
    elif store is not None and host.store is None:
        from tailrace.doctor.object_store import examine as examine_endpoint

        findings += examine_endpoint(store, loaded.config.store.options, os.environ, clock)
    if as_json:
        spool = spool_path(loaded.config)
        origin = str(loaded.path or "")
        document = finding.as_json(
            findings, config=origin, store=store_path(loaded.config), spool=spool
        )
        click.echo(document)
    else:
        in_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
        style = _coloured if in_colour else finding.plain
        for line in finding.text(findings, width=width, style=style):
            click.echo(line)
    if finding.count(findings, Severity.PROBLEM):
        raise SystemExit(ExitCode.FAILED)


def _coloured(text: str, severity: Severity) -> str:
    return click.style(text, fg=COLOURS[severity], bold=True)
