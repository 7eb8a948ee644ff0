"""Define `tailrace upkeep`, which runs the table's upkeep once, in a process of its own."""

from __future__ import annotations

import click
import msgspec

from tailrace.cli.commands import examples
from tailrace.cli.options import json_option, table_options
from tailrace.clock import SystemClock
from tailrace.config.load import Loaded
from tailrace.errors import LockedError
from tailrace.filesystem import is_local
from tailrace.terminal import waiting
from tailrace.units import counted


@click.command(
    epilog=examples("tailrace upkeep --store ./store", "tailrace upkeep --store ./store --all")
)
@table_options
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Merge and vacuum now, even if they are not due, and verify all files.",
)
@click.option(
    "--clock-is-right",
    is_flag=True,
    help="Delete days by their age even though the table has no rows for a long time before now: no collector ran then.",
)
@click.option(
    "--if-free", is_flag=True, help="Do nothing, and do not fail, if another upkeep is running."
)
@click.option("--turn", "number", type=int, hidden=True)
@json_option("Print one JSON object with the same facts.")
def upkeep_command(
    *,
    loaded: Loaded,
    everything: bool,
    clock_is_right: bool,
    if_free: bool,
    number: int | None,
    as_json: bool,
) -> None:
    """Merge small files of the table, delete days beyond the retention, and remove files that no version of the table
    needs any more.

    The daemon runs the upkeep regularly. You can run it beside the daemon and beside readers. A damaged file is never
    merged: it is moved aside, and gaps report its rows as missing. Large files without roll-ups get them: sums in
    `STORE/rollups`, with which `tailrace view` draws quickly, and which you may delete at any time. Only one upkeep at
    a time works on a store, however many collectors share it.

    With --json: `busy`, the reason if nothing was done; `deleted_days`; the reason why further days were kept (`held`)
    although they are beyond the retention; the numbers of files that were merged (`merged_files`), made by merging
    (`made_files`) and removed (`vacuumed_files`); the steps that were `skipped`, each with its reason; a sentence for
    each `damaged` file that was moved aside; and the duration in `seconds`."""
    from tailrace.rollups.building import SidecarWriter
    from tailrace.rollups.sidecar import Sidecars
    from tailrace.store import upkeep

    path, access = loaded.store
    try:
        report = waiting(
            "merging files and removing old ones",
            lambda: upkeep.run(
                path,
                loaded.config.store,
                clock=SystemClock(),
                everything=everything,
                clock_is_right=clock_is_right,
                number=number,
            ),
        )
    except LockedError as error:
        if not if_free:
            raise
        busy = upkeep.UpkeepReport(busy=str(error))
        click.echo(msgspec.json.encode(busy) if as_json else busy.busy)
        return
    made_sidecars = 0
    # Write roll-ups (precomputed sums beside the table) only for a local store. For a store at a URL, the viewer
    # computes them on its own host.
    if is_local(path):
        made_sidecars = waiting(
            "making roll-ups",
            lambda: sum(1 for _ in SidecarWriter(path, access, Sidecars(path)).write()),
        )
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    for day in report.deleted_days:
        click.echo(f"deleted {day}")
    if report.held:
        click.echo(report.held)
    merged, made = counted(report.merged_files, "file"), report.made_files
    click.echo(f"merged {merged} into {made}")
    click.echo(f"removed {counted(report.vacuumed_files, 'file')} that no version needs")
    if made_sidecars:
        click.echo(f"made roll-ups of {counted(made_sidecars, 'file')}")
    for sentence in report.damaged:
        click.echo(sentence)
    for step in report.skipped:
        click.echo(f"left to the next run: {step}")
