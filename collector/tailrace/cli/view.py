"""`tailrace view`: look at a store in a browser."""

from __future__ import annotations

import webbrowser
from contextlib import nullcontext
from pathlib import Path

import click

from tailrace.cli.options import config_option, load_config, store_option
from tailrace.cli.store import NamedRun, named_run
from tailrace.standard import STDERR, STDOUT, never_wait


@click.command()
@config_option
@store_option
@click.option(
    "--listen",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Address to listen on; port 0 is any free port.",
)
@click.option(
    "--unix",
    "path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Listen on a socket in the file system, which needs no token.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Answer also under this name, for example a proxy's; repeatable.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.argument("stores", metavar="[STORE]...", nargs=-1)
def command(
    config: Path | None,
    store: str | None,
    address: str,
    path: Path | None,
    hosts: tuple[str, ...],
    stores: tuple[str, ...],
    *,
    opens: bool,
) -> None:
    """Serve a page, and an HTTP API, that shows a store: directory or URL, live or finished.

    Prints the address to open. It contains a token, without which the API answers nothing; the token is valid
    until the command ends. Further stores are there to be compared with the first one. The certificate of a run stands
    for its store, and a comparison takes the sessions of the run.

    Reads the store and the status of its collector, and changes nothing but notes, which it keeps beside the table.
    Ends on Ctrl-C or SIGTERM. `docs/view.md` has the details."""
    if store is not None and stores:
        raise click.UsageError("give the store either as STORE or with --store")
    names = stores or ((store,) if store is not None else ())
    runs = [named_run(name) for name in names] or [NamedRun(None, ())]
    loaded = [load_config(config, run.store) for run in runs]

    from tailrace.view.heaps import share_heaps

    share_heaps()  # before there are threads
    never_wait(STDOUT, STDERR)

    from tailrace.clock import SystemClock
    from tailrace.view.application import Viewer
    from tailrace.view.desk import DeskTurn, Shelf
    from tailrace.view.opening import Token
    from tailrace.view.serve import listen, listen_at, serve

    clock = SystemClock()
    shelves = [
        Shelf(each, clock, name, run.sessions)
        for each, name, run in zip(loaded, names or (None,), runs, strict=True)
    ]
    turn = DeskTurn(shelves)  # say at once, and on the terminal, that a store is not there
    for number in range(len(shelves)):
        turn.snapshot(number)
    turn.end(good=True)
    host = _host(address)
    token = Token() if path is None else None
    with listen_at(path) if path is not None else nullcontext(listen(address)) as sock:
        url = f"unix:{path}"
        if token is not None:
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{sock.getsockname()[1]}/?token={token.text}"

        def ready() -> None:
            click.echo(url)
            if opens and token is not None:
                webbrowser.open(url)

        serve(Viewer(shelves, token, {host, *hosts}), sock, ready)


def _host(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]")
