"""Define `tailrace doctor`, `tailrace bundle`, `tailrace demo` and `tailrace completion`.

`doctor` reports problems of this host and of a configuration before data is lost. `bundle` writes one file with facts
about a collector, for people who help with problems. `demo` demonstrates Tailrace on generated traffic. `completion`
prints the script of a shell.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from tailrace.cli.commands import ExitCode, examples
from tailrace.cli.options import config_option, json_option, load_config, store_option
from tailrace.clock import SystemClock
from tailrace.config.load import spool_path, store_path
from tailrace.doctor import finding
from tailrace.doctor.finding import Severity
from tailrace.errors import ConfigError
from tailrace.filesystem import refusal_text
from tailrace.terminal import in_colour, waiting

WIDTH = 80
"""Default and maximum width (terminal cells) of the output, because longer lines are hard to read."""

COLOURS = {"problem": "red", "advice": "yellow", "good": "green"}


@click.command(
    epilog=examples("tailrace doctor --config tailrace.toml", "tailrace doctor --quick --json")
)
@config_option
@store_option
@json_option("Print one JSON object with the same facts.")
@click.option("--quick", is_flag=True, help="Skip measuring the disk and the UDP rate.")
def doctor_command(config: Path | None, store: str | None, *, as_json: bool, quick: bool) -> None:
    """Examine this host and a configuration, and print what to change, as commands to run. The command needs no root
    rights, changes nothing, and does not disturb a running collector. It takes about five seconds. It exits with 1 if
    it finds a problem; advice alone is not a problem.

    With --store s3://BUCKET/PREFIX the object store is tested, too: whether its clock, access rights, conditional puts,
    reads and listings allow several collectors to write one table. The test writes about eighty small objects below the
    prefix, beside the table, and deletes them.

    With --json: `problems` and `advice` are their numbers. Each of `findings` has the name of the `check`, a `severity`
    (problem, advice or good), `what` was found, `why` it matters, `commands` that change it, and `figures`, whose names
    end in their units."""
    loaded = load_config(config, store)

    from tailrace.doctor import examination
    from tailrace.doctor.machine import Host

    clock = SystemClock()
    host = Host(loaded.config, os.environ, clock)
    findings = waiting("examining this host", lambda: examination.examine(host, quick=quick))
    if host.store is None and store is None:
        findings.append(examination.endpoint_not_asked_for())
    elif host.store is None and find_spec("obstore") is None:
        findings.append(examination.endpoint_without_obstore())
    elif store is not None and host.store is None:
        from tailrace.doctor.object_store import examine as examine_endpoint

        findings += examine_endpoint(store, loaded.config.store.options, os.environ, clock)
    if as_json:
        places = {"store": store_path(loaded.config), "spool": spool_path(loaded.config)}
        click.echo(finding.as_json(findings, config=str(loaded.path or ""), **places))
    else:
        width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
        style = _coloured if in_colour(sys.stdout) else None
        for line in finding.text(findings, width=width, style=style):
            click.echo(line)
    if finding.count(findings, Severity.PROBLEM):
        raise SystemExit(ExitCode.FAILED)


def _coloured(text: str, severity: Severity) -> str:
    return click.style(text, fg=COLOURS[severity], bold=True)


@click.command(epilog=examples("tailrace bundle --store ./store -o bundle.tar.gz"))
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
def bundle_command(
    config: Path | None, store: str | None, output: Path | None, *, as_json: bool
) -> None:
    """Gather facts about a collector for support: versions, configuration, state, sizes, what is missing.

    The archive contains no events, names or attributes, and no secrets: see the README in it. The command works beside
    a running collector, without a collector, and with a broken configuration or store; it names each fact that it could
    not collect. It takes at most two minutes.

    With --json: the path of the `archive`, its `bytes`, and its `parts`. Each part has a `name`, a `meaning`, `bytes`
    and `failure`. If the part could not be made, `bytes` is null, otherwise `failure` is null."""
    from tailrace.bundle import archive
    from tailrace.bundle.redaction import Redaction, document_or_none, find, secrets

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


@click.command(epilog=examples("tailrace demo", "tailrace demo --keep"))
@click.option(
    "--store",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="New directory for the table; by default a temporary one.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep running afterwards, with a little traffic and the page of `tailrace view`, until Ctrl-C.",
)
@click.option("--verbose", is_flag=True, help="Show each step, with its commands and their output.")
@json_option("Print one JSON object at the end, and everything else on standard error.")
def demo_command(store: Path | None, *, keep: bool, verbose: bool, as_json: bool) -> None:
    """Start a collector, send it traces with known gaps, and check that the collector reports exactly these gaps. This
    takes less than a minute. The table is kept, so that you can look at it.

    With --json: `good` (whether the collector named exactly these gaps) and the `store`."""
    if store is not None and store.exists() and any(store.iterdir()):
        raise click.BadParameter(f"{store} is not empty; give a new or empty directory")

    import trio

    from tailrace.demo.tour import Tour

    with ExitStack() as until_end:
        if store is None:
            directory = tempfile.mkdtemp(prefix="tailrace-demo-")
            store = Path(directory) / "store"
        else:
            temporary = tempfile.TemporaryDirectory(prefix="tailrace-demo-")
            directory = until_end.enter_context(temporary)
        print_line = partial(click.echo, err=as_json)
        tour = Tour(Path(directory), store.absolute(), print_line, SystemClock(), verbose=verbose)
        good = trio.run(lambda: tour.run(keep=keep))
    if as_json:
        click.echo(json.dumps({"good": good, "store": str(store.absolute())}))
    if not good:
        raise SystemExit(ExitCode.FAILED)


@click.command(epilog=examples("tailrace completion bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the script with which a shell completes commands, options and paths behind `tailrace`.

    An installation has the script at the places below `share` where the shells look. Where a shell does not find it,
    as in most virtual environments, add a line to its start-up file: `eval "$(tailrace completion bash)"` to ~/.bashrc,
    `eval "$(tailrace completion zsh)"` to ~/.zshrc, or `tailrace completion fish | source` to
    ~/.config/fish/config.fish. The shell calls `tailrace` at each TAB."""
    from click.shell_completion import get_completion_class

    from tailrace.cli.commands import tailrace

    if class_ := get_completion_class(shell):
        click.echo(class_(tailrace, {}, "tailrace", "_TAILRACE_COMPLETE").source())
