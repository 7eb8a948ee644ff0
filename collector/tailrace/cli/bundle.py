"""`tailrace bundle`: what somebody needs who is to help, in one file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tailrace.cli.options import config_option, json_option, store_option
from tailrace.errors import ConfigError


@click.command()
@config_option
@store_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the archive goes; without it tailrace-bundle-TIME.tar.gz here.",
)
@json_option("One JSON object, with the same in it.")
def command(config: Path | None, store: str | None, output: Path | None, *, as_json: bool) -> None:
    """Gather facts about a collector, for support: versions, configuration, state, sizes, what is missing.

    Without events, their names or attributes, and without secrets: see the README in it. Works
    beside a running collector, without one, and when the configuration or the store is broken: what
    cannot be had is named. Takes a minute or two at most.

    With --json: the path of the `archive`, its `bytes`, and its `parts`: `name`, `meaning`, `bytes` and
    `failure`, of which one is null.
    """
    from tailrace.bundle import archive
    from tailrace.bundle.redaction import Redaction, document_or_none, secrets
    from tailrace.bundle.subject import find
    from tailrace.clock import SystemClock

    clock = SystemClock()
    now = clock.wall_ns() // 10**9
    name = f"tailrace-bundle-{now}"
    path = output or Path(f"{name}.tar.gz")
    subject = find(config, store, os.environ, clock)
    document = document_or_none(subject.loaded.path)
    redaction = Redaction(secrets(subject.loaded.config, document, os.environ))
    made = []
    for each in archive.collect(subject, redaction):
        made.append(each)
        if not as_json:
            click.echo(archive.contents(each))
    try:
        archive.write(path, name, made, now)
    except OSError as error:
        raise ConfigError([f"--output {path}: {error.strerror}"]) from error
    size = path.stat().st_size
    if as_json:
        parts = list(map(archive.facts, made))
        click.echo(json.dumps({"archive": str(path), "bytes": size, "parts": parts}))
    else:
        click.echo(f"{path}: {size:,} B; look through it before you pass it on")
