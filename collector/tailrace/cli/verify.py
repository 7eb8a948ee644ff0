"""`tailrace verify`: a certificate against the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli import ExitCode
from tailrace.cli.options import config_option, json_option, load_config, signatures
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.run.certificate import Certificate


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
@json_option("One JSON object, with the same in it.")
@click.argument("path", metavar="CERTIFICATE", type=click.Path(path_type=Path))
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    store: str | None,
    key: str | None,
    path: Path,
    *,
    as_json: bool,
) -> None:
    """Compute anew, from the table, all that a run certificate says.

    Exits with 1 when anything is not so: a row, a gap or a digit that was changed.

    With --json: the path of the `certificate`, whether it `holds`, the `differences`, its `totals`, how
    many `streams` it has, and the public key that it was `signed_by`, null without a signature.
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
    click.echo("\n".join((_json if as_json else _text)(path, certificate, found)))
    if found:
        context.exit(ExitCode.FAILED)


def _text(path: Path, certificate: Certificate, found: list[str]) -> Iterator[str]:
    if found:
        yield from found
        yield f"{path}: does not hold: {counted(len(found), 'difference')}"
        return
    totals, signature = certificate.totals, certificate.signature
    signed = f", signed by {signature.public_key}" if signature else ""
    yield (
        f"{path}: holds: {totals.stored} of {counted(totals.expected, 'event')} stored in"
        f" {counted(len(certificate.streams), 'stream')}{signed}"
    )


def _json(path: Path, certificate: Certificate, found: list[str]) -> Iterator[str]:
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
