"""Define `tailrace serve`, which runs the daemon."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace import heaps
from tailrace.cli.options import config_option, json_option, load_config, store_option
from tailrace.cli.output.ledger import final_ledger
from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.sources.listening import hold
from tailrace.standard import STDOUT, never_wait

if TYPE_CHECKING:
    from tailrace.config.load import Loaded
    from tailrace.figures import Status
    from tailrace.query.completeness import CopiedFiles


@click.command()
@config_option
@store_option
@click.option(
    "--rest",
    is_flag=True,
    help="Do not listen: read followed files to their end, close all sessions, and end. Use this after the end of a job.",
)
@json_option("Print a line of JSON once it listens and another at the end, in place of the text.")
def serve_command(config: Path | None, store: str | None, *, rest: bool, as_json: bool) -> None:
    """Collect traces until SIGTERM or Ctrl-C (a second one ends the process at once).

    SIGHUP reloads the configuration. An invalid configuration changes nothing, and /status shows its problems. SIGUSR1
    and SIGUSR2 have no effect.

    With --json, the command prints the status at the start and at the end, each as one line in the form of /status;
    with --rest, it prints only the last one."""
    loaded = load_config(config, store)
    began = SystemClock().wall_ns()
    if rest:
        heaps.load_arrow()
        _print_last(loaded, _read_rest(loaded), began, as_json=as_json)
        return
    # Bind the sockets before other modules are loaded, so that arriving bytes wait in the sockets. If a service manager
    # keeps sockets open, this is not necessary.
    managed = {"NOTIFY_SOCKET", "LISTEN_FDS"} & os.environ.keys()
    held = {} if managed else hold(loaded.config, SystemClock())

    heaps.load_arrow()

    from tailrace import log
    from tailrace.daemon import service

    log.configure(loaded.config.log)
    never_wait(STDOUT)
    try:
        last = service.run(
            loaded,
            load=partial(choose, config, store),
            started=_print_json if as_json else _print_addresses,
            held=held,
        )
    finally:
        for listening in held.values():
            listening.close()
    _print_last(loaded, last, began, as_json=as_json)


def _read_rest(loaded: Loaded) -> Status:
    """Write everything to the table that a stopped collector has left: data in its spool, and files that it had not
    read to their end.

    All producers must have ended. Return the collector's last status.
    """
    from msgspec import structs

    from tailrace import log
    from tailrace.config.schema import HeartbeatConfig, TailConfig
    from tailrace.run.service import read_rest

    log.configure(loaded.config.log)
    sources = loaded.config.sources.items()
    config = structs.replace(
        loaded.config,
        sources={name: source for name, source in sources if isinstance(source, TailConfig)},
        heartbeat=HeartbeatConfig(interval=None),
    )
    return read_rest(loaded, config, SystemClock(), last=True)


def _print_last(loaded: Loaded, status: Status, began: int, *, as_json: bool) -> None:
    if as_json:
        _print_json(status)
    else:
        click.echo(final_ledger(status, *_as_stored(loaded, status, began)))


def _as_stored(
    loaded: Loaded, status: Status, began: int
) -> tuple[dict[str, int | None], dict[str, CopiedFiles | None]]:
    """Return, by source, what only the table tells: the number of names to which events refer and which no file
    contains, and the files that views leave out as copies; None for what is unknown. `began` is the time at which the
    command started."""
    from tailrace.config.load import store_path
    from tailrace.decoding.contract import asks
    from tailrace.decoding.formats import FORMATS
    from tailrace.errors import TailraceError
    from tailrace.query.completeness import asking_sessions, copied_files, missing_names
    from tailrace.query.engine import Engine

    formats = {name for name, each in FORMATS.items() if asks(each.decoder(1, None))}
    read = {name: source for name, source in status.sources.items() if source.seen_events}
    wanted = {name for name, source in read.items() if source.format in formats}
    several = {n for n, each in read.items() if each.type == "tail" and each.sessions_opened > 1}
    if not (wanted or several):
        return {}, {}
    try:
        engine = Engine(store_path(loaded.config), loaded.config.store.options)
        try:
            names = missing_names(engine, asking_sessions(engine, wanted, began))
            return names, dict(copied_files(engine)) if several else {}
        finally:
            engine.close()
    except TailraceError as error:
        click.echo(f"tailrace: {error}", err=True)
        return dict.fromkeys(wanted), dict.fromkeys(several)


def _print_json(status: Status) -> None:
    import msgspec

    click.echo(msgspec.json.encode(status))


def _print_addresses(status: Status) -> None:
    click.echo(f"tailrace {status.version}: store {status.store}")
    for name, source in status.sources.items():
        click.echo(f"  {name}: {source.format} over {source.type} on {source.address}")
    click.echo(f"  admin: http://{status.admin}/status")
