"""Define `tailrace serve`, which runs the daemon."""

from __future__ import annotations

import gc
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace import heaps, log
from tailrace.cli.commands import examples
from tailrace.cli.options import config_option, json_option, load_config, store_option
from tailrace.cli.output.ledger import final_ledger
from tailrace.clock import SystemClock
from tailrace.config.load import Loaded
from tailrace.config.schema import HeartbeatConfig, TailConfig
from tailrace.configuration import choose
from tailrace.errors import TailraceError
from tailrace.figures import Status
from tailrace.sources.listening import hold
from tailrace.standard import STDOUT, never_wait

if TYPE_CHECKING:
    from tailrace.query.completeness import CopiedFiles


@click.command(
    epilog=examples(
        "tailrace serve --config tailrace.toml",
        "tailrace serve --config tailrace.toml --store ./after-the-job --rest",
    )
)
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

    With --rest, the command can be repeated, even after it was killed, and stores nothing twice: it leaves out files
    whose sessions are closed, unless a file has grown or has new content. A later `serve` without --rest reads all
    files of closed sessions again.

    With --json, the command prints the status at the start and at the end, each as one line in the form of /status.
    With --rest, it prints only the line at the end. The line at the end also has `missing_names`: for each source, the
    number of names to which events refer, but which no stored file of the source defines. The number is null if it is
    unknown."""
    loaded = load_config(config, store)
    if rest:
        heaps.load_arrow()
        _print_last(loaded, _read_rest(loaded), as_json=as_json)
        return
    # Bind the sockets before other modules are loaded, so that arriving bytes wait in the sockets. If a service manager
    # keeps sockets open, this is not necessary.
    managed = {"NOTIFY_SOCKET", "LISTEN_FDS"} & os.environ.keys()
    held = {} if managed else hold(loaded.config, SystemClock())

    heaps.load_arrow()

    from tailrace.daemon import service

    # Exempt the loaded modules from garbage collection, which would otherwise pause the daemon to search them.
    gc.freeze()
    log.configure(loaded.config.log)
    never_wait(STDOUT)
    try:
        last = service.run(
            loaded,
            load=partial(choose, config, store),
            started=partial(_print_started, as_json=as_json),
            held=held,
        )
    finally:
        for listening in held.values():
            listening.close()
    _print_last(loaded, last, as_json=as_json)


def _read_rest(loaded: Loaded) -> Status:
    """Write all data that a stopped collector has left to the table: the entries in its spool, and the unread parts of
    its files. All producers must have ended. Return the collector's last status."""
    from tailrace.importing.importing import read_before
    from tailrace.run.service import read_rest

    log.configure(loaded.config.log)
    sources = loaded.config.sources.items()
    config = msgspec.structs.replace(
        loaded.config,
        sources={name: source for name, source in sources if isinstance(source, TailConfig)},
        heartbeat=HeartbeatConfig(interval=None),
    )
    # Leave out files whose sessions are closed, unless they have grown, because the command may be repeated.
    before = read_before(loaded._replace(config=config))
    return read_rest(loaded, config, SystemClock(), last=True, chosen=before)


def _print_last(loaded: Loaded, status: Status, *, as_json: bool) -> None:
    names, copies = _as_stored(loaded, status)
    if as_json:
        click.echo(msgspec.json.encode(msgspec.to_builtins(status) | {"missing_names": names}))
    else:
        click.echo(final_ledger(status, names, copies))


def _as_stored(
    loaded: Loaded, status: Status
) -> tuple[dict[str, int | None], dict[str, CopiedFiles | None]]:
    """Return two facts by source that only the table contains. The first is the number of names to which events refer
    and which no file contains. The second is the files that views leave out as copies. A value is None if it is
    unknown."""
    from tailrace.decoding.contract import asks
    from tailrace.decoding.formats import FORMATS
    from tailrace.query.completeness import copied_files, missing_names
    from tailrace.query.engine import Engine
    from tailrace.query.filters import one_of

    read = {name: source for name, source in status.sources.items() if source.seen_events}
    asking = {name for name, each in FORMATS.items() if asks(each.decoder(1, None))}
    # Count the missing names in the table, because other collectors may have stored events of the same source.
    asked = [name for name, each in read.items() if each.format in asking]
    several = {n for n, each in read.items() if each.type == "tail" and each.sessions_opened > 1}
    names: dict[str, int | None] = dict.fromkeys(status.sources, 0)
    copies: dict[str, CopiedFiles | None] = {}
    if not (asked or several):
        return names, copies
    try:
        with closing(Engine(*loaded.store)) as engine:
            if asked and status.spool.committed < status.spool.end:
                # None (unknown), because the table does not have all rows yet
                names |= dict.fromkeys(asked)
            elif asked:
                names |= missing_names(engine, one_of("source", asked))
            if several:
                copies |= copied_files(engine)
    except TailraceError as error:
        click.echo(f"tailrace: {error}", err=True)
        return names | dict.fromkeys(asked), dict.fromkeys(several)
    return names, copies


def _print_started(status: Status, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(status))
        return
    click.echo(f"tailrace {status.version}: store {status.store}")
    for name, source in status.sources.items():
        click.echo(f"  {name}: {source.format} over {source.type} on {source.address}")
    click.echo(f"  admin: http://{status.admin}/status")
