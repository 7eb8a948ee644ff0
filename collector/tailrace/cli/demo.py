"""`tailrace demo`: show everything at once, on generated traffic."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

import click

from tailrace.cli.commands import ExitCode
from tailrace.cli.options import json_option


@click.command()
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
@json_option("Print one JSON object at the end, and everything else on standard error.")
@click.pass_context
def command(ctx: click.Context, store: Path | None, *, keep: bool, as_json: bool) -> None:
    """Start a collector, send it traces with known gaps, and check that it names exactly those.

    Takes less than a minute. The table stays where it is, for you to look at.

    With --json: `good` (whether it named exactly those gaps) and the `store`."""
    if store is not None and store.exists() and any(store.iterdir()):
        raise click.BadParameter(f"{store} is not empty; give a new or empty directory")

    import trio

    from tailrace.clock import SystemClock
    from tailrace.demo.tour import Tour

    def tour(directory: Path, store: Path) -> bool:
        say = partial(click.echo, err=as_json)
        return trio.run(lambda: Tour(directory, store, say, SystemClock()).run(keep=keep))

    if store is None:
        directory = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
        store = directory / "store"
        good = tour(directory, store)
    else:
        with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as temporary:
            good = tour(Path(temporary), store.absolute())
    if as_json:
        click.echo(json.dumps({"good": good, "store": str(store.absolute())}))
    if not good:
        ctx.exit(ExitCode.FAILED)
