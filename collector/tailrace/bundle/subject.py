"""Find the collector that a bundle is about, however broken its configuration is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.bundle.redaction import document_or_none
from tailrace.chosen import transports
from tailrace.clock import Clock
from tailrace.config.load import Loaded, examine
from tailrace.config.schema import Config, StoreConfig
from tailrace.doctor.host import Host


class Subject(NamedTuple):
    """The subject of a bundle: the configuration as far as it could be read, its problems, and the host
    with the daemon that runs on its store."""

    loaded: Loaded
    problems: list[str]
    host: Host


def find(
    config: Path | None, store: str | None, environ: Mapping[str, str], clock: Clock
) -> Subject:
    """Return the subject. From an invalid configuration, use only the path of its store."""
    if config is None and environ.get("TAILRACE_CONFIG"):
        config = Path(environ["TAILRACE_CONFIG"])
    flags = {"store": store}
    loaded, problems = examine(config, environ=environ, flags=flags, formats=transports)
    if loaded is None:
        path = store or environ.get("TAILRACE_STORE_PATH", "") or _path(config)
        loaded = Loaded(Config(store=StoreConfig(path=path)), config, "")
    host = Host(loaded.config, environ, clock).with_daemon()
    return Subject(loaded, [str(problem) for problem in problems], host)


def _path(config: Path | None) -> str:
    document = document_or_none(config)
    section = document.tree.get("store") if document else None
    path = section.get("path") if isinstance(section, dict) else None
    return path if isinstance(path, str) else ""
