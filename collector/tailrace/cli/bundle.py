"""`tailrace bundle`: one file with what a helper needs to know."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tailrace.cli.options import config_option, json_option, store_option
from tailrace.errors import ConfigError
from tailrace.filesystem import refusal_text


@click.command()
@config_option
@store_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the archive to FILE; by default to tailrace-bundle-TIME.tar.gz in this directory.",
)
@json_option("Print one JSON object with the same facts.")
def command(config: Path | None, store: str | None, output: Path | None, *, as_json: bool) -> None:
    """Gather facts about a collector for support: versions, configuration, state, sizes, what is missing.

    The archive contains no events, names or attributes, and no secrets: see the README in it. The command
    works beside a running collector, without a collector, and when the configuration or the store is
    broken; it names each fact that it could not get. It takes a minute or two at most.

    With --json: the path of the `archive`, its `bytes`, and its `parts`: `name`, `meaning`, `bytes` and
    `failure`, of which one is null."""
    from tailrace.bundle import archive
    from tailrace.bundle.redaction import Redaction, document_or_none, find, secrets
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
        raise ConfigError([f"--output {path}: {refusal_text(error.errno, path)}"]) from error
    size = path.stat().st_size
    if as_json:
        parts = list(map(archive.facts, made))
        click.echo(json.dumps({"archive": str(path), "bytes": size, "parts": parts}))
    else:
        click.echo(f"{path}: {size:,} B; review it before you pass it on")
