"""`tailrace verify`: a certificate against the table."""

from __future__ import annotations

from pathlib import Path

import click

from tailrace.cli import ExitCode
from tailrace.cli.options import config_option, load_config, signatures


@click.command()
@config_option
@click.option(
    "--store", metavar="DIR", help="Directory or URL of the table; without it the certificate's."
)
@click.option(
    "--key",
    metavar="HEX",
    help="The Ed25519 public key that must have signed it; needs the package cryptography.",
)
@click.argument("path", metavar="CERTIFICATE", type=click.Path(path_type=Path))
@click.pass_context
def command(
    context: click.Context, config: Path | None, store: str | None, key: str | None, path: Path
) -> None:
    """Compute anew, from the table, all that a run certificate says.

    Exits with 1 when anything is not so: a row, a gap or a digit that was changed.
    """
    from tailrace.config.load import store_path
    from tailrace.query.engine import Engine
    from tailrace.run import certificate as certificates, verify

    certificate = certificates.read(path)
    loaded = load_config(config, store or certificate.store)
    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    try:
        found = verify.differences(certificate, engine)
        if key is not None or certificate.signature:
            found += signatures().differences(certificate, key)
    finally:
        engine.close()
    for line in found:
        click.echo(line)
    if found:
        click.echo(f"{path}: does not hold: {len(found)} differences")
        context.exit(ExitCode.FAILED)
    totals = certificate.totals
    signed = f", signed by {certificate.signature.public_key}" if certificate.signature else ""
    click.echo(
        f"{path}: holds: {totals.stored} of {totals.expected} events stored in"
        f" {len(certificate.streams)} streams{signed}"
    )
