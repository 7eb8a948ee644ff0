"""Load the configuration from a named file, else from the file $TAILRACE_CONFIG, else from built-in defaults."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.config.load import Loaded, load


def choose(config: Path | None, store: str | None, listen: str | None = None) -> Loaded:
    """Load the configuration from the file `config`, else from the file in $TAILRACE_CONFIG, else from built-in
    defaults.

    Environment variables override the file, and `store` and `listen` override both. Raise ConfigError if the
    configuration is invalid.
    """
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    return load(
        config, environ=os.environ, flags={"store": store, "listen": listen}, formats=transports
    )


def transports() -> dict[str, tuple[str, ...]]:
    """Return the source types that support each format, by format name."""
    from tailrace.decoding.formats import (  # noqa: PLC0415 - a query needs no decoder
        FORMATS,
    )

    return {format_.name: format_.transports for format_ in FORMATS.values()}
