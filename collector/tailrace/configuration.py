"""Load the configuration from a named file, or else from the first file in the usual places (see `usual_file`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tailrace.config.load import Loaded, load, user_directory
from tailrace.errors import ConfigError

FILE_NAME = "tailrace.toml"
SYSTEM_DIRECTORY = Path("/etc/tailrace")


def usual_file(environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file for a command that names none, or None if there is no such file.

    If $TAILRACE_CONFIG is set, return this path. Otherwise, look for `tailrace/tailrace.toml` in the user's
    configuration directory (XDG Base Directory Specification), then in /etc. Return the first file that exists and that
    this user may read."""
    if named := environ.get("TAILRACE_CONFIG"):
        return Path(named)
    own = user_directory(environ, "XDG_CONFIG_HOME", "~/.config")
    for directory in (own, SYSTEM_DIRECTORY):
        if directory and os.access(file := directory / FILE_NAME, os.R_OK):
            return file
    return None


def choose(config: Path | None, store: str | None, listen: str | None = None) -> Loaded:
    """Load the configuration from the file `config`, or from the file in the usual places if `config` is None. If there
    is no file, use the built-in defaults.

    Environment variables take precedence over the file. The arguments `store` and `listen` take precedence over both.
    Raise ConfigError if the configuration is invalid."""
    try:
        flags = {"store": store, "listen": listen}
        return load(config or usual_file(os.environ), os.environ, flags, transports)
    except ConfigError as error:
        if any(".format: " in problem for problem in error.problems) and (why := refused()):
            raise ConfigError([*error.problems, *why]) from error
        raise


def refused() -> list[str]:
    """Return one message for each format that an installed package adds and that Tailrace refuses to use."""
    from tailrace.decoding.formats import REFUSED  # noqa: PLC0415 - a query needs no decoder

    return [str(each) for each in REFUSED]


def transports() -> dict[str, tuple[str, ...]]:
    """Return the types of sources that support each format, by the name of the format."""
    from tailrace.decoding.formats import FORMATS  # noqa: PLC0415 - a query needs no decoder

    return {format_.name: format_.transports for format_ in FORMATS.values()}
