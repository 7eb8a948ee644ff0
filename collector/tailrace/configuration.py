"""Load the configuration from a named file.

Without one, load it from the file $TAILRACE_CONFIG; without this, use built-in defaults.
"""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.config.load import Loaded, load


def choose(config: Path | None, store: str | None, listen: str | None = None) -> Loaded:
    """Load the configuration from the file `config`. If it is None, load it from the file $TAILRACE_CONFIG; without
    this, use built-in defaults.

    Environment variables take precedence over the file. The arguments `store` and `listen` take precedence over both.
    Raise ConfigError if the configuration is invalid.
    """
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    return load(
        config, environ=os.environ, flags={"store": store, "listen": listen}, formats=transports
    )


def transports() -> dict[str, tuple[str, ...]]:
    """Return for each format, by its name, the types of sources that support it."""
    from tailrace.decoding.formats import (  # noqa: PLC0415 - a query needs no decoder
        FORMATS,
    )

    return {format_.name: format_.transports for format_ in FORMATS.values()}
