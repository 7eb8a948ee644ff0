"""Load the configuration that a person means: a named file, or $TAILRACE_CONFIG's, or the built-in one."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.config.load import Loaded, load


def choose(config: Path | None, store: str | None) -> Loaded:
    """Return the configuration, with the environment's variables and, if given, this store.

    Raise ConfigError."""
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    return load(config, environ=os.environ, flags={"store": store}, formats=transports)


def transports() -> dict[str, tuple[str, ...]]:
    """Return by which types of source each format travels."""
    from tailrace.decoding.formats import (  # noqa: PLC0415 - a question to a store needs no decoder
        FORMATS,
    )

    return {format_.name: format_.transports for format_ in FORMATS.values()}
