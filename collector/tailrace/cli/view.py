"""Define `tailrace view`, which shows a store in a browser."""

from __future__ import annotations

import gc
import html
import os
import shutil
import tempfile
import webbrowser
from contextlib import ExitStack, nullcontext
from pathlib import Path

import click

from tailrace import heaps
from tailrace.cli import options
from tailrace.cli.commands import examples
from tailrace.clock import SystemClock
from tailrace.config.listen import is_loopback
from tailrace.standard import STDERR, STDOUT, never_wait


@click.command(
    epilog=examples(
        "tailrace view ./store", "tailrace view --listen 127.0.0.1:8080 ./before ./after"
    )
)
@options.config_option
@options.store_option
@click.option(
    "--listen",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Address to listen on; port 0 is any free port. Needs --host if other hosts reach the address.",
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
@click.argument("stores", metavar="[STORE]...", nargs=-1, shell_complete=options.complete_files)
def view_command(
    config: Path | None,
    store: str | None,
    address: str,
    path: Path | None,
    hosts: tuple[str, ...],
    stores: tuple[str, ...],
    *,
    opens: bool,
) -> None:
    """Serve a page and an HTTP API that show a store: a directory or URL, with or without a running collector. The
    command prints the address to open. The address contains a token, without which the API answers no request; the
    token is valid until the command ends. You can compare further stores with the first one. Instead of a store, you
    can give the certificate of a run; the comparison then uses only the sessions of the run. The command reads the
    store and the status of its collector, and changes nothing except notes, which it keeps beside the table. It ends on
    Ctrl-C or SIGTERM. `docs/view.md` has the details."""
    if store is not None and stores:
        raise click.UsageError("give the store either as STORE or with --store")
    host = _host(address)
    if path is None and not is_loopback(host) and not hosts:
        raise click.BadParameter(
            f"other hosts can reach {host}, and the connection is not encrypted: use a tunnel to a loopback address,"
            " as in `ssh -L 8080:127.0.0.1:PORT HOST`, or a socket with --unix PATH; or give with --host NAME the name"
            " under which browsers reach this server",
            param_hint="--listen",
        )
    names = stores or ((store,) if store is not None else ())
    runs = [options.named_run(name) for name in names] or [options.NamedRun(None, ())]
    loaded = [options.load_config(config, run.store) for run in runs]

    heaps.share()  # Limit the memory allocator's heaps before other threads exist.
    # Collect garbage as often as Python does by default, because a reference cycle may contain a large answer.
    gc.set_threshold(700, 10, 10)
    never_wait(STDOUT, STDERR)

    from tailrace.view.application import Viewer
    from tailrace.view.door import Token
    from tailrace.view.leases import ServedStore, SnapshotLease
    from tailrace.view.serve import listen, listen_at, serve

    clock = SystemClock()
    served = [
        ServedStore(each, clock, name, run.sessions)
        for each, name, run in zip(loaded, names or (None,), runs, strict=True)
    ]
    # Open each store once, so that a missing store is reported on the terminal and not in the browser.
    lease = SnapshotLease(served)
    for number in range(len(served)):
        lease.snapshot(number)
    lease.end(good=True)
    token = Token() if path is None else None
    listening = listen_at(path) if path is not None else nullcontext(listen(address))
    with listening as sock, ExitStack() as until_end:
        url = f"unix:{path}"
        if token is not None:
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{sock.getsockname()[1]}/?token={token.text}"

        def ready() -> None:
            click.echo(url)
            if opens and token is not None:
                _open(url, until_end)

        serve(Viewer(served, token, {host, *hosts}), sock, ready)


def _open(url: str, until_end: ExitStack) -> None:
    """Open an address in a browser. The address contains a token, and every user of the host can read the browser's
    command line. Therefore pass the address in a file that only this user can read."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    place = runtime if os.access(runtime, os.W_OK) else None
    try:
        directory = tempfile.mkdtemp(prefix="tailrace-view-", dir=place)
        until_end.callback(shutil.rmtree, directory, ignore_errors=True)
        file = Path(directory) / "open.html"
        file.touch(0o600)
        refresh = f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
        file.write_text(f"<!doctype html>{refresh}")
    except OSError as error:
        why = f"no file can be written: {error.strerror}"
        click.echo(f"cannot open a browser, because {why}", err=True)
    else:
        webbrowser.open(file.as_uri())


def _host(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]")
