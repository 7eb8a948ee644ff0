"""`tailrace verify`: compare a certificate with the table, or a store with its checksums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.commands import ExitCode
from tailrace.cli.options import config_option, json_option, load_config, signatures
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.config.load import Loaded
    from tailrace.job.certificate import JobCertificate
    from tailrace.run.certificate import Certificate


@click.command()
@config_option
@click.option(
    "--store", metavar="DIR", help="Directory or URL of the table; by default the certificate's."
)
@click.option(
    "--key",
    metavar="HEX",
    help="The Ed25519 public key that must have signed the certificate; needs the package cryptography.",
)
@json_option("Print one JSON object with the same facts.")
@click.argument("path", metavar="CERTIFICATE|STORE")
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    store: str | None,
    key: str | None,
    path: str,
    *,
    as_json: bool,
) -> None:
    """Verify the certificate of a run or a job, or all files of a store.

    CERTIFICATE is a file. The command computes everything in it anew from the table, and exits with 1 if
    anything differs: a row, a gap or a digit that was changed.

    STORE is a directory or URL. The command compares each file of the table with its checksum and with
    the log, prints a line for each damaged file, with what is lost, and exits with 1 if there is any.
    Files without a known checksum are read and reported as unverifiable; a store at a URL has only such
    files. The command changes nothing: a start, and upkeep, set damaged files aside.

    With --json, for a certificate: the path of the `certificate`, whether it `holds`, the `differences`,
    its `totals`, how many `streams` it has, and the public key that it was `signed_by`, null without a
    signature. For a store: the `store`, how many data `files` the table has, how many of these are
    `verified` and how many `unverifiable`, and the `damage`: `path`, `reason` and what is `lost`."""
    if "://" in path or Path(path).is_dir():
        if store is not None or key is not None:
            raise click.UsageError(
                "--store and --key apply to certificates only; give STORE as the argument"
            )
        found = _verify_store(load_config(config, path), as_json=as_json)
    else:
        found = _verify_certificate(config, store, key, Path(path), as_json=as_json)
    if found:
        context.exit(ExitCode.FAILED)


def _verify_store(loaded: Loaded, *, as_json: bool) -> bool:
    """Verify a store and print the result. Return whether anything is damaged."""
    import msgspec

    from tailrace.config.load import store_path
    from tailrace.store.verify import verify

    store = store_path(loaded.config)
    found = verify(store, loaded.config.store.options)
    if as_json:
        document = {"store": store, **msgspec.structs.asdict(found)}
        click.echo(msgspec.json.encode(document).decode())
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
    """Verify a certificate and print the result. Return whether anything differs."""
    from tailrace.config.load import store_path
    from tailrace.job import certificate as jobs
    from tailrace.job.merging import rank_logs
    from tailrace.query.engine import Engine
    from tailrace.run import certificate as certificates
    from tailrace.run.ranks import read

    certificate = jobs.read(path) if jobs.is_job(path) else certificates.read(path)
    loaded = load_config(config, store or certificate.store)
    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    try:
        if isinstance(certificate, jobs.JobCertificate):
            logs = [read(directory) for directory in rank_logs(Path(store_path(loaded.config)))]
            found = jobs.differences(certificate, logs, engine)
        else:
            found = certificates.differences(certificate, engine)
        if key is not None or certificate.signature:
            found += signatures().differences(certificate, key)
    finally:
        engine.close()
    click.echo("\n".join((_json if as_json else _text)(path, certificate, found)))
    return bool(found)


def _text(path: Path, certificate: Certificate | JobCertificate, found: list[str]) -> Iterator[str]:
    if found:
        yield from found
        yield f"{path}: does not hold: {counted(len(found), 'difference')}"
        return
    totals, signature = certificate.totals, certificate.signature
    signed = (
        f", signed by {signature.public_key}"
        if signature
        else ", not signed, so it does not prove who made it"
    )
    yield (
        f"{path}: holds: {totals.stored} of {counted(totals.expected, 'event')} stored in"
        f" {counted(len(certificate.streams), 'stream')}{signed}"
    )


def _json(path: Path, certificate: Certificate | JobCertificate, found: list[str]) -> Iterator[str]:
    import msgspec

    signature = certificate.signature
    document = {
        "certificate": str(path),
        "holds": not found,
        "differences": found,
        "totals": certificate.totals,
        "streams": len(certificate.streams),
        "signed_by": signature.public_key if signature else None,
    }
    yield msgspec.json.encode(document).decode()
