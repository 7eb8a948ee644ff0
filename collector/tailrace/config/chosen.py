"""The configuration that a person means: a file named, or $TAILRACE_CONFIG's, or built-in defaults."""

from __future__ import annotations

import os
from pathlib import Path
from pkgutil import iter_modules

from tailrace.config.load import Loaded, load


def choose(config: Path | None, store: str | None) -> Loaded:
    """With the environment's variables and, if given, this store. Raise ConfigError."""
    if config is None and os.environ.get("TAILRACE_CONFIG"):
        config = Path(os.environ["TAILRACE_CONFIG"])
    return load(config, environ=os.environ, flags={"store": store}, formats=file_formats())


def file_formats() -> list[str]:
    """The names of all formats there is a decoder for, found without importing any."""
    formats = Path(__file__).parents[1] / "decoding" / "formats"
    return [module.name for module in iter_modules([str(formats)])]
