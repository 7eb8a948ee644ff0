"""`tailrace merge`: make one store and one certificate of the stores of a job's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.commands import ExitCode
from tailrace.cli.options import config_option, json_option, load_config, signatures
from tailrace.errors import StoreError
from tailrace.filesystem import refusal_text
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.job.certificate import JobCertificate
    from tailrace.job.merging import MergedStore

PICTURE_COLUMNS = 480


class StoreDirectory(click.ParamType[Path]):
    """A directory, for what a URL would do elsewhere: a path of that name must not be made."""

    name = "directory"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        text = str(value)
        if not isinstance(value, Path) and "://" in text:
            self.fail(
                f"{text} is a URL, and a merge takes directories only: merge into one on this host, and copy its events"
                " to an empty place in the object store; or let collectors write there (store.path)",
                param,
                ctx,
            )
        return Path(text)


@click.command()
@config_option
@click.option(
    "--into",
    metavar="STORE",
    required=True,
    type=StoreDirectory(),
    help="The directory of the store to merge into; it is made if it is not there.",
)
@click.option(
    "--sign",
    "key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Sign the certificate with this Ed25519 private key (PEM); needs the package cryptography.",
)
@json_option("Print one JSON object with the same facts.")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=StoreDirectory())
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    into: Path,
    key: Path | None,
    directories: tuple[Path, ...],
    *,
    as_json: bool,
) -> None:
    """Merge the stores of a job's nodes into one, and certify the job.

    DIR is a store, or a directory with stores right below it, such as `tailrace run` makes under a
    launcher. The command first brings into a store's table what its killed collector had received. Rows are
    copied as they are. The same command again adds nothing twice, and goes on where it was killed.

    The certificate, job.json in STORE, names each rank, its node, how it ended, and what of it is missing:
    ranks that were killed with what they left, and ranks that never came, if the launcher says how many
    there are. `tailrace verify` checks it against the store, and job.svg draws the ranks over time, as
    `tailrace ranks` does. An earlier certificate that differs is kept.

    Exits with 3 if a rank was killed or never came, or anything is missing.

    With --json: the merged `stores`, each with the `rows` that were added and whether something was
    `recovered`; the path of the `certificate` and its `sha256`, `sizes`, `nodes`, `ranks` and `totals`."""
    private = signatures().load(key) if key else None
    loaded = load_config(config, str(into))

    from tailrace.clock import SystemClock
    from tailrace.job import certificate as certificates, merging
    from tailrace.job.presence import presence
    from tailrace.job.rank_map import drawn, svg
    from tailrace.query.engine import Engine
    from tailrace.query.filters import JobFilter
    from tailrace.run.ranks import read

    clock = SystemClock()
    found = merging.found(directories)
    recovered = {store for store in found if merging.finish(store, config, clock)}
    merged = []
    for each in merging.merge(found, into, loaded.config.store, clock):
        merged.append(each)
        if not as_json:
            more = ", after its collector was killed" if each.store in recovered else ""
            click.echo(f"{each.store}: {counted(each.rows, 'row')} added{more}")
    engine = Engine(str(into))
    try:
        logs = [read(directory) for directory in merging.rank_logs(into)]
        certificate = certificates.certify(str(into.absolute()), logs, engine)
        if private:
            signatures().sign(certificate, private)
        path = certificates.write(certificate, into / "job.json")
        picture = svg(drawn(engine, presence(logs), JobFilter(), PICTURE_COLUMNS))
    finally:
        engine.close()
    try:
        (into / "job.svg").write_text(picture)
    except OSError as error:
        raise StoreError(f"{into / 'job.svg'}: {refusal_text(error.errno, into)}") from error
    _say(certificate, path, merged, recovered, as_json=as_json)
    if not certificate.complete:
        context.exit(ExitCode.INCOMPLETE)


def _say(
    certificate: JobCertificate,
    path: Path,
    merged: list[MergedStore],
    recovered: set[Path],
    *,
    as_json: bool,
) -> None:
    if not as_json:
        from tailrace.job.certificate import lines

        for line in lines(certificate, path):
            click.echo(line)
        return
    import msgspec

    document = {
        "stores": [
            {"store": str(each.store), "rows": each.rows, "recovered": each.store in recovered}
            for each in merged
        ],
        "certificate": str(path),
        "sha256": certificate.sha256,
        "sizes": certificate.sizes,
        "nodes": certificate.nodes,
        "ranks": certificate.ranks,
        "totals": certificate.totals,
    }
    click.echo(msgspec.json.encode(document).decode())
