"""Remove secrets from texts before they leave the host.

All known secrets (storage options, tokens, and the values of environment variables that contain either) are removed
wherever they occur in a text. In addition, user and password are removed from each URL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace.clock import Clock
from tailrace.config import environment
from tailrace.config.document import Document, read
from tailrace.config.load import Loaded, examine
from tailrace.config.schema import Config, StoreConfig
from tailrace.configuration import transports, usual_file
from tailrace.doctor.machine import Host

REDACTED = "REDACTED"

SHORTEST = 4
"""Minimum length (characters) of a secret that is removed from texts. A shorter one could occur by chance."""

FILE_MAX = 64 * 1024
"""Maximum number of bytes that are read from a file that contains secrets."""

_USERINFO = re.compile(r"(?<=://)[^\s/@\"'\\]+@")
_OF_CLIENTS = frozenset({"TAILRACE_TOKEN", "TAILRACE_TOKEN_FILE"})


class Redaction:
    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= SHORTEST}
        spelled = known | {json.dumps(secret)[1:-1] for secret in known}
        words = sorted(spelled, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, words))) if words else None

    def clean(self, text: str) -> str:
        if self._secrets is not None:
            text = self._secrets.sub(REDACTED, text)
        return _USERINFO.sub(f"{REDACTED}@", text)


def secrets(config: Config, document: Document | None, environ: Mapping[str, str]) -> set[str]:
    """Return all secrets in the configuration, in its file (even if it is invalid), and in environment variables."""
    found = {*config.store.options.values()}
    tree = document.tree if document else {}
    store = tree.get("store")
    found |= _strings(store.get("options") if isinstance(store, dict) else None)
    sections = [config.admin, *config.sources.values()]
    paths = [path for each in sections if (path := getattr(each, "tokens", ""))]
    tables = [tree.get("admin"), *_values(tree.get("sources"))]
    paths += [table["tokens"] for table in tables if isinstance(table, dict) and "tokens" in table]
    for name, value in environ.items():
        if name in _OF_CLIENTS or name.startswith("TAILRACE_STORE_OPTIONS"):
            is_file = name.endswith(environment.FILE_SUFFIX)
            found |= _lines(value) if is_file else {value}
        elif name.startswith("TAILRACE_") and name.endswith("_TOKENS"):
            paths.append(value)
    for path in paths:
        found |= _lines(str(path))
    return found


def effective(config: Config, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration in use. REDACTED replaces storage options and values from environment variables."""
    tree: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    tree["store"]["options"] = dict.fromkeys(config.store.options, REDACTED)
    for path in environment.read(environ)[0]:
        *above, key = path
        table = tree
        for name in above:
            table = table.get(name, {})
        if key in table:
            table[key] = f"{REDACTED} (environment)"
    return tree


def document_or_none(path: Path | None) -> Document | None:
    found = read(path) if path else None
    return found if isinstance(found, Document) else None


def _lines(path: str) -> set[str]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_MAX).decode(errors="replace")
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in text.split("\n")}


def _strings(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    return {text for inner in _values(value) for text in _strings(inner)}


def _values(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.values()]
    return [*value] if isinstance(value, list) else []


class Subject(NamedTuple):
    """The content of a bundle: the configuration (as far as it can be read) and its problems, the host, and the
    daemon."""

    loaded: Loaded
    problems: list[str]
    host: Host


def find(
    config: Path | None, store: str | None, environ: Mapping[str, str], clock: Clock
) -> Subject:
    """Return the configuration and host of a bundle. From an invalid configuration, use only the store's path."""
    config = config or usual_file(environ)
    flags = {"store": store}
    loaded, problems = examine(config, environ=environ, flags=flags, formats=transports)
    if loaded is None:
        document = document_or_none(config)
        section = document.tree.get("store") if document else None
        written = section.get("path") if isinstance(section, dict) else None
        path = store or environ.get("TAILRACE_STORE_PATH") or written
        path = path if isinstance(path, str) else ""
        loaded = Loaded(Config(store=StoreConfig(path=path)), config, "")
    host = Host(loaded.config, environ, clock).with_daemon()
    return Subject(loaded, [str(problem) for problem in problems], host)
