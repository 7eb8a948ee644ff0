"""Load the configuration that a person means: a named file, else $TAILRACE_CONFIG, else the built-in one."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.config.load import Loaded, load


def choose(config: Path | None, store: str | None, listen: str | None = None) -> Loaded:
    """Load the configuration; the environment's variables, and `store` and `listen` if given, override the file.

    Raise ConfigError."""
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    return load(
        config, environ=os.environ, flags={"store": store, "listen": listen}, formats=transports
    )


def transports() -> dict[str, tuple[str, ...]]:
    """Return the types of source that can carry each format, by the format's name."""
    from tailrace.decoding.formats import (  # noqa: PLC0415 - a query needs no decoder
        FORMATS,
    )

    return {format_.name: format_.transports for format_ in FORMATS.values()}
