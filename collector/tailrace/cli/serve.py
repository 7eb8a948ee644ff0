"""`tailrace serve`: run the daemon."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace import heaps
from tailrace.cli.options import config_option, json_option, load_config, store_option
from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.sources.listening import hold
from tailrace.standard import STDOUT, never_wait
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.config.load import Loaded
    from tailrace.figures import SourceStatus, Status


@click.command()
@config_option
@store_option
@click.option(
    "--rest",
    is_flag=True,
    help="Do not listen: read followed files to their end, close all sessions, and end. For a job that is over.",
)
@json_option("Print a line of JSON once it listens and another at the end, in place of the text.")
def serve_command(config: Path | None, store: str | None, *, rest: bool, as_json: bool) -> None:
    """Collect traces until told to stop (SIGTERM or Ctrl-C; a second one stops at once).

    SIGHUP reloads the configuration. A wrong configuration changes nothing, and /status says what is
    wrong. SIGUSR1 and SIGUSR2 have no effect.

    With --json, both lines are the status in the form of /status; with --rest, there is only the last one."""
    loaded = load_config(config, store)
    if rest:
        _say_last(_read_rest(loaded), as_json=as_json)
        return
    # Listen before anything else is loaded, so that bytes wait from now on. A service manager keeps sockets itself.
    managed = {"NOTIFY_SOCKET", "LISTEN_FDS"} & os.environ.keys()
    held = {} if managed else hold(loaded.config, SystemClock())

    heaps.return_large()

    from tailrace import log
    from tailrace.daemon import service

    log.configure(loaded.config.log)
    never_wait(STDOUT)
    try:
        last = service.run(
            loaded,
            load=partial(choose, config, store),
            started=_say_as_json if as_json else _say_where,
            held=held,
        )
    finally:
        for listening in held.values():
            listening.close()
    _say_last(last, as_json=as_json)


def _read_rest(loaded: Loaded) -> Status:
    """Bring all that a collector whose producers are gone had not read, or not stored, into the table. Return the last
    status."""
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


SLOW_MIN = 1000
"""So many records that were read the slow way take no time that anybody sees."""


def _say_last(status: Status, *, as_json: bool) -> None:
    if as_json:
        _say_as_json(status)
    else:
        click.echo(final_ledger(status))


def _say_as_json(status: Status) -> None:
    import msgspec

    click.echo(msgspec.json.encode(status))


def _say_where(status: Status) -> None:
    click.echo(f"tailrace {status.version}: store {status.store}")
    for name, source in status.sources.items():
        click.echo(f"  {name}: {source.format} over {source.type} on {source.address}")
    click.echo(f"  admin: http://{status.admin}/status")


def final_ledger(status: Status, names: Mapping[str, int | None] | None = None) -> str:
    """Return what arrived, what is missing and why, one paragraph for each source. `names` has, by source, how many names that
    events ask for no file has, if the table was asked; None for an unknown number."""
    lines = [f"final ledger: {counted(status.rows_committed, 'row')} committed since the start"]
    for name, source in status.sources.items():
        lines += _ledger(name, source, _in_words((names or {}).get(name, 0)))
    uncommitted = status.spool.durable - status.spool.committed
    if uncommitted:
        lines.append(f"  left in the spool for the next start: {counted(uncommitted, 'byte')}")
    return "\n".join(lines)


def _in_words(names: int | None) -> str:
    """Return how many names are missing, as the end of a sentence."""
    if names == 0:
        return ""
    asked = "an unknown number of names" if names is None else counted(names, "name")
    return f", and {asked} missing that they ask for"


def _ledger(name: str, source: SourceStatus, names: str) -> list[str]:
    gaps = ", ".join(f"{reason} {count}" for reason, count in source.gap_events.items() if count)
    heals = sum(source.heal_events.values())
    lines = [
        f"  {name}: {counted(source.received_bytes, 'byte')} in"
        f" {counted(source.sessions_opened, 'session')}: "
        f"{source.decoded_bytes} decoded, {source.malformed_bytes} malformed, "
        f"{source.pending_bytes} pending",
        f"    events: {source.expected_events} expected, {source.seen_events} seen, "
        f"{source.duplicate_events} of them duplicates, {source.missing_events} missing{names}",
    ]
    records = sum(source.records.values()) + sum(source.malformed_records.values())
    if source.slow_records > max(SLOW_MIN, records // 10):
        lines.append(
            f"    read one by one, which takes many times as long: {source.slow_records} of"
            f" {counted(records, 'record')}, whose shape is unusual"
        )
    if gaps:
        lines.append(f"    gaps found: {gaps}" + (f"; healed: {heals}" if heals else ""))
    if source.unknown_gaps:
        lines.append(f"    gaps of unknown size: {source.unknown_gaps}")
    if source.kernel_drops:
        lines.append(f"    datagrams dropped by the kernel: {source.kernel_drops}")
    return lines
