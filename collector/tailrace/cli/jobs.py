"""Define `tailrace merge`, `tailrace ranks` and `tailrace verify`, which work on the stores of a parallel job.

`merge` makes one store and one certificate from the stores of a job's nodes. A certificate states which events of a run
are stored and which are missing. `ranks` shows when each rank of the job has events. `verify` compares a certificate
with the table, or compares the files of a store with their checksums.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace.cli import options
from tailrace.cli.commands import ExitCode, examples
from tailrace.clock import SystemClock
from tailrace.config.load import Loaded, store_path
from tailrace.errors import StoreError
from tailrace.filesystem import refusal_text
from tailrace.job.presence import presence
from tailrace.query.filters import JobFilter, Selection
from tailrace.run.ranks import read
from tailrace.terminal import waiting
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.job.certificate import JobCertificate
    from tailrace.job.merging import MergedStore


def store_directory(text: str) -> Path:
    """Return the path of a directory. Raise BadParameter for a URL, because a directory with the URL as its name would
    otherwise be created."""
    if "://" in text:
        raise click.BadParameter(
            f"{text} is a URL, and a merge takes directories only: merge into one on this host, and copy its events"
            " to an empty place in the object store; or let collectors write there (store.path)"
        )
    return Path(text)


@click.command(epilog=examples("tailrace merge --into ./merged ./tailrace-job-17.0"))
@options.config_option
@click.option(
    "--into",
    metavar="STORE",
    required=True,
    type=store_directory,
    shell_complete=options.complete_directories,
    help="The directory of the store to merge into; it is created if it does not exist.",
)
@options.sign_option
@options.json_option("Print one JSON object with the same facts.")
@click.argument(
    "directories", metavar="DIR...", nargs=-1, required=True, type=store_directory,
    shell_complete=options.complete_directories,
)  # fmt: skip
def merge_command(
    config: Path | None,
    into: Path,
    key: Path | None,
    directories: tuple[Path, ...],
    *,
    as_json: bool,
) -> None:
    """Merge the stores of a job's nodes into one, and certify the job.

    DIR is a store, or a directory with stores right below it, such as `tailrace run` makes under a launcher. If the
    collector of a store was killed, the command first writes into the store's table what the collector had received.
    Rows are copied unchanged. If you repeat the command, it adds nothing twice, and continues if it was killed before.

    The certificate, job.json in STORE, names each rank, its node, how the rank ended, and which of its events are
    missing. It includes ranks that were killed, and ranks that never started, if the launcher states the number of
    ranks. `tailrace verify` compares the certificate with the store, and job.svg shows the ranks over time, as
    `tailrace ranks` does. An earlier certificate with other content is kept, and the new one gets another name.

    Exits with 3 if a rank was killed or never started, or if anything is missing.

    With --json: the merged `stores`, each with the `rows` that were added and whether something was `recovered`; the
    path of the `certificate` and its `sha256`, `sizes`, `nodes`, `ranks` and `totals`."""
    private = options.signatures().load(key) if key else None
    loaded = options.load_config(config, str(into))

    from tailrace.job import certificate as certificates, merging
    from tailrace.job.rank_map import drawn, svg
    from tailrace.query.engine import Engine

    clock = SystemClock()
    found = merging.found(directories)
    recovered = waiting(
        "finishing the stores of killed collectors",
        lambda: {store for store in found if merging.finish(store, config, clock)},
    )
    merged: list[MergedStore] = []
    merges = iter(merging.merge(found, into, loaded.config.store, clock))
    while each := waiting(
        f"merging store {len(merged) + 1} of {len(found)}", lambda: next(merges, None)
    ):
        merged.append(each)
        if not as_json:
            more = ", after its collector was killed" if each.store in recovered else ""
            click.echo(f"{each.store}: {counted(each.rows, 'row')} added{more}")
    with closing(Engine(str(into))) as engine:
        logs = [read(directory) for directory in merging.rank_logs(into)]
        certificate = waiting(
            "certifying the job", lambda: certificates.certify(str(into.absolute()), logs, engine)
        )
        if private:
            options.signatures().sign(certificate, private)
        path = certificates.write(certificate, into / "job.json")
        picture = svg(drawn(engine, presence(logs), JobFilter(), columns=480))
    _write(picture, into / "job.svg")
    _report(certificate, path, merged, recovered, as_json=as_json)
    if not certificate.complete:
        raise SystemExit(ExitCode.INCOMPLETE)


def _write(picture: str, path: Path) -> None:
    try:
        path.write_text(picture)
    except OSError as error:
        raise StoreError(f"{path}: {refusal_text(error.errno, path)}") from error


def _report(
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
    click.echo(msgspec.json.encode(document))


@click.command(epilog=examples("tailrace ranks --store ./merged --svg ranks.svg"))
@options.reading_options
@options.json_option("Print one JSON object.")
@click.option(
    "--columns",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=60,
    show_default=True,
    help="Number of columns, into which the time is divided.",
)
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also draw the map as a picture into FILE.",
)
@options.job_options()
def ranks_command(
    job: JobFilter, columns: int, svg: Path | None, *, loaded: Loaded, as_json: bool
) -> None:
    """Show when each rank of a job has events, and where events are missing.

    Each line is a rank. Each column is an interval of time. A darker character shows that more events of the rank begin
    in the interval, and an x that events are missing. Missing events are shown after the last event before them or, if
    their number is unknown, after the rank's last event. The numbers at the end of the line are the rank's events with
    a time, and its missing events, with a + if more may be missing. Ranks that were killed are marked and, in a merged
    store, also ranks that never started.

    With --json: `begin` and `end` of the map (Unix ns), its `columns`, and the `ranks`: `job`, `rank`, `node` and
    `state`, and for each column how many `events` begin there, how many are `missing`, and whether an `unknown` number
    of events is missing. Events without a time are counted as `untimed`, and missing events whose time is unknown as
    `unplaced`; no column includes them."""
    from tailrace.job import rank_map
    from tailrace.job.merging import RANKS_DIRECTORY, rank_logs

    directory = Path(store_path(loaded.config))
    engine, _ = options.open_store(loaded, Selection())
    merged = (directory / RANKS_DIRECTORY).is_dir()
    there = presence((read(path) for path in rank_logs(directory)), whole=merged)
    found = rank_map.drawn(engine, there, job, columns)
    if not found.ranks:
        raise StoreError(f"{store_path(loaded.config)}: no session has such a rank")
    if svg is not None:
        _write(rank_map.svg(found), svg)
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for line in rank_map.text(found):
        click.echo(line)


@click.command(epilog=examples("tailrace verify ./store", "tailrace verify ./run/certificate.json"))
@options.config_option
@click.option(
    "--store",
    metavar="DIR",
    shell_complete=options.complete_directories,
    help="Directory or URL of the table; by default the certificate's.",
)
@click.option(
    "--key",
    metavar="HEX",
    help="The Ed25519 public key that must have signed the certificate; needs the package cryptography.",
)
@options.json_option("Print one JSON object with the same facts.")
@click.argument("path", metavar="CERTIFICATE|STORE", shell_complete=options.complete_files)
def verify_command(
    config: Path | None, store: str | None, key: str | None, path: str, *, as_json: bool
) -> None:
    """Verify the certificate of a run or a job, or all files of a store.

    CERTIFICATE is a file. The command computes the content of the certificate again from the table, and exits with 1 if
    anything differs: a changed row, gap or digit.

    STORE is a directory or URL. The command compares each file of the table with its checksum and with the log, prints
    a line for each damaged file that states which rows are lost, and exits with 1 if a file is damaged. Files without a
    known checksum are read and reported as unverifiable; a store at a URL has only such files. The command changes
    nothing; the next start of the daemon, or the next upkeep, sets damaged files aside.

    With --json, for a certificate: the path of the `certificate`, whether it `holds`, the `differences`, its `totals`,
    its number of `streams`, and the public key of the person who signed it (`signed_by`, null without a signature). For
    a store: the `store`, how many data `files` the table has, how many of these are `verified` and how many
    `unverifiable`, and the `damage`: `path`, `reason` and what is `lost`."""
    if "://" in path or Path(path).is_dir():
        if store is not None or key is not None:
            what = "--store and --key apply to certificates only; give STORE as the argument"
            raise click.UsageError(what)
        found = _verify_store(options.load_config(config, path), as_json=as_json)
    else:
        found = _verify_certificate(config, store, key, Path(path), as_json=as_json)
    if found:
        raise SystemExit(ExitCode.FAILED)


def _verify_store(loaded: Loaded, *, as_json: bool) -> bool:
    """Verify all files of a store and print the result. Return whether any file is damaged."""
    from tailrace.store.verify import verify

    store, access = loaded.store
    found = waiting("verifying files", lambda: verify(store, access))
    if as_json:
        click.echo(msgspec.json.encode({"store": store, **msgspec.structs.asdict(found)}))
        return bool(found.damage)
    for each in found.damage:
        click.echo(f"{each.path}: {each.reason}; lost: {each.lost}")
    click.echo(
        f"{store}: {counted(found.files, 'data file')}: {found.verified} verified,"
        f" {found.unverifiable} unverifiable (no checksum is known);"
        f" {counted(len(found.damage), 'damaged file')}"
    )
    return bool(found.damage)


def _verify_certificate(
    config: Path | None, store: str | None, key: str | None, path: Path, *, as_json: bool
) -> bool:
    """Compare a certificate with the table and print the result. Return whether anything differs."""
    from tailrace.job import certificate as jobs
    from tailrace.job.merging import rank_logs
    from tailrace.query.engine import Engine
    from tailrace.run import certificate as certificates

    certificate = jobs.read(path) if jobs.is_job(path) else certificates.read(path)
    loaded = options.load_config(config, store or certificate.store)
    with closing(Engine(*loaded.store)) as engine:
        if isinstance(certificate, jobs.JobCertificate):
            logs = [read(directory) for directory in rank_logs(Path(store_path(loaded.config)))]
            differences = partial(jobs.differences, certificate, logs, engine)
        else:
            differences = partial(certificates.differences, certificate, engine)
        found = waiting("verifying the certificate", differences)
        if key is not None or certificate.signature:
            found += options.signatures().differences(certificate, key)
    totals, streams = certificate.totals, len(certificate.streams)
    signer = certificate.signature.public_key if certificate.signature else None
    if as_json:
        document = {
            "certificate": str(path), "holds": not found, "differences": found, "totals": totals,
            "streams": streams, "signed_by": signer,
        }  # fmt: skip
        click.echo(msgspec.json.encode(document))
    elif found:
        for line in (*found, f"{path}: does not hold: {counted(len(found), 'difference')}"):
            click.echo(line)
    else:
        signed = f"signed by {signer}" if signer else "not signed, so it does not prove who made it"
        click.echo(
            f"{path}: holds: {totals.stored} of {counted(totals.expected, 'event')} stored in"
            f" {counted(streams, 'stream')}, {signed}"
        )
    return bool(found)
