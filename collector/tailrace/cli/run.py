"""`tailrace run`: a collector around one program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli import ExitCode
from tailrace.cli.options import config_option, load_config, signatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.run.certificate import Certificate


@click.command(context_settings={"ignore_unknown_options": True})
@config_option
@click.option(
    "--store",
    metavar="DIR",
    help="Directory or URL of the table; without it a new directory, tailrace-run-TIME.",
)
@click.option(
    "--max-loss",
    metavar="N",
    type=click.IntRange(min=0),
    help="Exit with 4 if more events than this are missing, nobody knows how many, or none came of a program that succeeds.",
)
@click.option(
    "--source",
    "files",
    metavar="FORMAT=PATH",
    multiple=True,
    help="Follow also this file or directory, such as et3=./trace.",
)
@click.option(
    "--certificate",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the certificate goes; without it certificate.json beside the table.",
)
@click.option(
    "--sign",
    "key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Sign it with this Ed25519 private key (PEM); needs the package cryptography.",
)
@click.argument(
    "arguments", metavar="-- PROGRAM [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED
)
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    store: str | None,
    max_loss: int | None,
    files: tuple[str, ...],
    path: Path | None,
    key: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Run a program with a collector listening, then say and certify what came of it.

    The program finds the collector by TAILRACE_ADDRESS (for the clients), TAILRACE_HEPH_UDP,
    TAILRACE_HEPH_TCP and TAILRACE_JETS_TCP (host:port), and its tracers by DFTRACER_* and
    OVNI_TRACEDIR; what is set already stays. The exit status is the program's own, or 4 when more
    was lost than --max-loss allows, or nothing was traced.
    """
    from tailrace import log
    from tailrace.clock import SystemClock
    from tailrace.config.load import store_path
    from tailrace.run import certificate as certificates, service

    fresh = Path(f"tailrace-run-{SystemClock().wall_ns() // 10**9}")
    loaded = load_config(config, store or str(fresh))
    private = signatures().load(key) if key else None
    directory = Path(store_path(loaded.config)) if "://" not in store_path(loaded.config) else fresh
    log.configure(loaded.config.log, quiet=True)
    wanted = service.Run(
        arguments=arguments,
        files=files,
        max_loss=max_loss or 0,
        traces=(directory / "traces").absolute(),
    )
    done = service.run(loaded, wanted)
    if private:
        signatures().sign(done, private)
    path = path or directory / "certificate.json"
    certificates.write(done, path)
    for line in summary(done, path):
        sys.stderr.write(f"{line}\n")
    lost = max_loss is not None and (done.untraced or not done.within_budget)
    context.exit(ExitCode.LOSS if lost else done.program.exit_status)


def summary(done: Certificate, path: Path) -> Iterator[str]:
    """What a person wants to know of it."""
    totals = done.totals
    yield f"run certificate {path}: sha256 {done.sha256}"
    yield f"  program: exit {done.program.exit_status}; store: {done.store}"
    yield f"  events: {totals.expected} expected, {totals.stored} stored, {_missing(totals.missing, totals.unknown)}"
    if not done.streams:
        yield "  no event came: does the program use one of the variables that `tailrace run --help` names?"
    for stream in done.streams:
        if stream.unknown or stream.missing:
            name = f"{stream.source} session {stream.session} stream {stream.stream or '-'}"
            yield f"  {name}: {_missing(stream.missing, stream.unknown)}"
            for gap in stream.gaps:
                yield f"    {gap}"


def _missing(missing: dict[str, int], unknown: bool) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(missing.items()) if count)
    text = f"{sum(missing.values())} missing" + (f" ({reasons})" if reasons else "")
    return text + (" and an unknown number more" if unknown else "")
