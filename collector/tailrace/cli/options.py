"""The options that every command has in common: which configuration, which store."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import click

import tailrace
from tailrace.cli import report
from tailrace.config.load import Loaded, load
from tailrace.errors import ConfigError

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file; without it $TAILRACE_CONFIG, or else built-in defaults.",
)
store_option = click.option(
    "--store",
    metavar="DIR",
    help="Directory or URL of the table; without it the configuration's.",
)

complete_option = click.option(
    "--complete-only",
    is_flag=True,
    help="Show nothing and exit with 3 when anything of it is missing.",
)


def load_config(config: Path | None, store: str | None) -> Loaded:
    """The configuration that a command's `--config` and `--store` ask for.

    A wrong one ends the command with exit code 2 and its problems on standard error, one a line."""
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    flags = {"store": store}
    try:
        return load(config, environ=os.environ, flags=flags, formats=file_formats())
    except ConfigError as error:
        raise SystemExit(report(error)) from None


def file_formats() -> list[str]:
    """The names of all formats there is a decoder for, found without importing any."""
    formats = Path(tailrace.__path__[0]) / "decoding" / "formats"
    return [module.name for module in iter_modules([str(formats)])]


def signatures() -> ModuleType:
    """`run.signature`, which needs a package that is not installed with Tailrace."""
    try:
        return import_module("tailrace.run.signature")
    except ModuleNotFoundError as error:
        needs = "signatures need the package cryptography: pip install cryptography"
        raise ConfigError([needs]) from error
