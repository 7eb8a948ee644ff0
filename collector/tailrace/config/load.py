"""Build the effective configuration from command options, environment, file and defaults.

For each key, the first of these that sets it wins. Only sources differ: the sources of a file replace all
default sources, and the environment adds to the resulting set. One run reports all problems, each with
its file and line, variable or option.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace.config import environment
from tailrace.config.check import Check, Given, Transports
from tailrace.config.document import (
    DEFAULT,
    ENVIRONMENT,
    Document,
    Problem,
    Setting,
    Where,
    dotted,
    read,
)
from tailrace.config.keys import SECTIONS, hint, kind, required_of_all
from tailrace.config.schema import DEFAULT_SOURCES, MAIN, Config
from tailrace.errors import ConfigError
from tailrace.units import Duration, Size

COLLECTORS = "collectors"
"""The directory in a store, or beside a spool, that has a directory for each collector with a name of its own."""

FLAGS = {"store": ("store", "path"), "listen": ("admin", "listen")}
"""Command line options, without dashes, that set a key, and the key."""


NO_HOME = "this user has no home directory (HOME is not set, and the host does not know the user)"


class Loaded(NamedTuple):
    """A configuration, the file it came from, if any, and its digest.

    `sha256` (hex) covers all keys with their effective values, wherever they came from. It covers only
    the names of storage options, because their values may be secrets and may change on their own."""

    config: Config
    path: Path | None
    sha256: str
    places: Mapping[tuple[str, ...], Where] = {}
    """Where each key was written, by section and key; for a source by `("sources", name, key)`."""

    def where(self, *keys: str) -> Where:
        """Return where a key was written. For a default value, that is the key's name alone."""
        return self.places.get(keys, Where(DEFAULT, None, dotted(keys)))


def load(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    formats: Transports,
) -> Loaded:
    """Return the configuration. Raise ConfigError with every problem. See `examine` for the arguments."""
    loaded, problems = examine(path, environ=environ, flags=flags, formats=formats)
    if loaded is None:
        raise ConfigError([str(problem) for problem in problems])
    return loaded


def examine(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    formats: Transports,
) -> tuple[Loaded | None, list[Problem]]:
    """Return the configuration, or None and its problems: those of the file by line, then the others.

    `flags` holds the command line options (see `FLAGS`); None means not given. `formats` returns the
    types of source that can carry each format."""
    given = Given()
    problems: list[Problem] = []
    document = None if path is None else read(path)
    if isinstance(document, Problem):
        return None, [document]
    if document is not None:
        problems += _add_file(given, document)
    if document is None or "sources" not in document.tree:
        _add_default_sources(given)
    problems += _add_environment(given, environ)
    _add_flags(given, flags)
    check = Check(given, formats)
    config = check.config()
    problems += check.problems
    if config is None or problems:
        return None, sorted(problems, key=_place)
    return Loaded(config, path, _sha256(config), _places(given)), []


def expanded(path: str) -> Path:
    """Return a path of the configuration, in which `~` is a home directory. Raise ConfigError if nobody knows which."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError([f"{path}: {NO_HOME}; set HOME, or write the path without ~"]) from error


def _data_path(environ: Mapping[str, str], what: str, keys: str) -> Path:
    """Return the per-user data directory: `tailrace` in the one of the XDG Base Directory Specification.

    Raise ConfigError if there is none, with `what` it is for and the `keys` that name another directory."""
    home = Path(environ.get("XDG_DATA_HOME", ""))
    if not home.is_absolute():  # the specification requires an absolute path
        try:
            home = Path("~/.local/share").expanduser()
        except RuntimeError as error:
            message = f"no directory for the {what}: {NO_HOME}; name one by {keys}, or set HOME or XDG_DATA_HOME"
            raise ConfigError([message]) from error
    return home / "tailrace"


def store_path(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return the directory or URL of the table."""
    path = config.store.path
    if "://" in path:
        return path
    keys = "--store, store.path or TAILRACE_STORE_PATH"
    return str(expanded(path) if path else _data_path(environ, "store", keys))


def own_part(directory: Path, name: str) -> Path:
    """Return the part of a directory that is the collector's of this name alone: the whole, or one below it."""
    return directory if name == MAIN else directory / COLLECTORS / name


def collector_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the local directory that only this collector writes: in a local store, or the spool's for a store at a URL."""
    return own_part(shared_path(config, environ), config.collector.name)


def shared_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the local directory in which all collectors of the store on this host have theirs: `own_part` of it."""
    store = store_path(config, environ)
    return spools_path(config, environ) if "://" in store else Path(store)


def quarantine_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of bytes that could not be decoded."""
    return collector_path(config, environ) / "quarantine"


def spool_path(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return the directory of the collector's spool."""
    store, name = store_path(config, environ), config.collector.name
    if "://" not in store and not config.spool.path:
        return str(own_part(Path(store), name) / "spool")
    return str(own_part(spools_path(config, environ), name))


def spools_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that has the spools of all collectors of a store at a URL, or those of `spool.path`.

    For a store at a URL it is in the per-user data directory, one for each URL, so that entries that await one
    store never go to another."""
    if config.spool.path:
        return expanded(config.spool.path)
    name = hashlib.sha256(store_path(config, environ).rstrip("/").encode()).hexdigest()[:16]
    return _data_path(environ, "spool", "spool.path or TAILRACE_SPOOL_PATH") / f"spool-{name}"


def _add_file(given: Given, document: Document) -> Iterator[Problem]:
    for section, content in document.tree.items():
        where = document.where(section)
        if section not in {*SECTIONS, "sources"}:
            yield Problem(where, f"unknown section; {hint(section, [*SECTIONS, 'sources'])}")
        elif not isinstance(content, dict):
            yield Problem(where, f"must be a section, as in [{section}], not {kind(content)}")
        elif section == "sources":
            yield from _add_sources(given, document)
        else:
            given.sections[section] = _settings(document, section, table=content)


def _add_sources(given: Given, document: Document) -> Iterator[Problem]:
    for name, content in document.tree["sources"].items():
        where = document.where("sources", name)
        if isinstance(content, dict):
            given.begun[name] = where
            given.sources[name] = _settings(document, "sources", name, table=content)
        else:
            yield Problem(where, f"must be a section, as in [sources.name], not {kind(content)}")


def _settings(document: Document, *above: str, table: dict[str, Any]) -> dict[str, Setting]:
    return {key: Setting(value, document.where(*above, key)) for key, value in table.items()}


def _add_default_sources(given: Given) -> None:
    """Add the default sources with their required keys only: the environment may change the type."""
    for name, source in DEFAULT_SOURCES.items():
        home = Where(DEFAULT, None, dotted(("sources", name)))
        tree = msgspec.to_builtins(source, enc_hook=str)
        given_keys = ["type", *required_of_all([type(source)])]
        given.begun[name] = home
        given.sources[name] = {
            key: Setting(tree[key], home._replace(key=f"{home.key}.{key}")) for key in given_keys
        }


def _add_environment(given: Given, environ: Mapping[str, str]) -> list[Problem]:
    settings, problems = environment.read(environ)
    for (section, key, *rest), setting in settings.items():
        if section == "sources":
            home = Where(ENVIRONMENT, None, f"{environment.SOURCES_PREFIX}{key}".upper())
            given.begun.setdefault(key, home)
            given.sources.setdefault(key, {})[rest[0]] = setting
        elif rest:
            _add_entry(given.sections[section], key, rest[0], setting)
        else:
            given.sections[section][key] = setting
    return problems


def _add_entry(section: dict[str, Setting], key: str, name: str, setting: Setting) -> None:
    """Set an entry of a table. It replaces an entry of the same name in any case."""
    table = section.get(key, Setting({}, setting.where))
    if isinstance(table.value, dict):
        others = {n: value for n, value in table.value.items() if n.lower() != name}
        section[key] = Setting(others | {name: setting.value}, table.where)


def _add_flags(given: Given, flags: Mapping[str, object]) -> None:
    for flag, value in flags.items():
        if value is not None:
            section, key = FLAGS[flag]
            given.sections[section][key] = Setting(value, Where("", None, f"--{flag}"))


def _places(given: Given) -> dict[tuple[str, ...], Where]:
    sections = {(name,): settings for name, settings in given.sections.items()}
    sources = {("sources", name): settings for name, settings in given.sources.items()}
    return {
        (*owner, key): setting.where
        for owner, settings in (sections | sources).items()
        for key, setting in settings.items()
    }


def _place(problem: Problem) -> tuple[bool, int, bool, str]:
    """Return a sort key: by line in the file, then by variable, then by option."""
    where = problem.where
    return where.line is None, where.line or 0, not where.origin, where.key


def _sha256(config: Config) -> str:
    options = dict.fromkeys(config.store.options, "")
    public = msgspec.structs.replace(
        config, store=msgspec.structs.replace(config.store, options=options)
    )
    return hashlib.sha256(
        msgspec.json.encode(public, enc_hook=_number, order="deterministic")
    ).hexdigest()


def _number(quantity: Size | Duration) -> int | float:
    """Return the exact number, which the printed form is not."""
    return int(quantity) if isinstance(quantity, Size) else float(quantity)
