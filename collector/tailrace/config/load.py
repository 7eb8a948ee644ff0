"""Load the effective configuration from command line options, environment, file and defaults, in this order of
precedence.

The sources of a file replace all default sources; the environment adds sources or changes their keys. All problems
are reported at once, each with its file and line, variable or option.
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
"""Name of the directory, in a store or a spool directory, with one directory for each named collector."""

FLAGS = {"store": ("store", "path"), "listen": ("admin", "listen")}
"""For each command line option (without dashes) that sets a key of the configuration: section and name of the key."""


NO_HOME = "this user has no home directory (HOME is not set, and the host does not know the user)"


class Loaded(NamedTuple):
    """A configuration, the path of its file (None without a file), and its digest. The digest `sha256` (hex) covers the
    values of all keys except storage options. For storage options it covers only the names, because their values may be
    secrets that change while the configuration stays the same."""

    config: Config
    path: Path | None
    sha256: str
    places: Mapping[tuple[str, ...], Where] = {}
    """Location of each setting that the user has given, by section and key, or `("sources", name, key)`."""

    @property
    def store(self) -> tuple[str, dict[str, str]]:
        """The directory or URL of the store, and the options to open it."""
        return store_path(self.config), self.config.store.options

    def where(self, *keys: str) -> Where:
        """Return the location at which the user has set a key; for a default value, only the key's name."""
        return self.places.get(keys, Where(DEFAULT, None, dotted(keys)))


def load(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], formats: Transports
) -> Loaded:
    """Load the configuration like `examine`. Raise ConfigError with all problems if it is invalid."""
    loaded, problems = examine(path, environ, flags, formats)
    if loaded is None:
        raise ConfigError([str(problem) for problem in problems])
    return loaded


def examine(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], formats: Transports
) -> tuple[Loaded | None, list[Problem]]:
    """Load and check the configuration. Return the configuration, or None and all problems: first those of the file,
    by line. `flags` has the values of command line options (see `FLAGS`); None stands for an option that was not
    given. `formats` returns the types of sources that support each format."""
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
    for flag, value in flags.items():
        if value is not None:
            section, key = FLAGS[flag]
            given.sections[section][key] = Setting(value, Where("", None, f"--{flag}"))
    check = Check(given, formats)
    config = check.config()
    problems += check.problems
    if config is None or problems:
        return None, sorted(problems, key=_place)
    owners: dict[tuple[str, ...], dict[str, Setting]] = {
        (name,): settings for name, settings in given.sections.items()
    }
    owners |= {("sources", name): settings for name, settings in given.sources.items()}
    places = {(*o, k): setting.where for o, each in owners.items() for k, setting in each.items()}
    return Loaded(config, path, _sha256(config), places), []


def expanded(path: str) -> Path:
    """Return a path from the configuration with `~` expanded. Raise ConfigError if the home directory is unknown."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError([f"{path}: {NO_HOME}; set HOME, or write the path without ~"]) from error


def user_directory(environ: Mapping[str, str], variable: str, default: str) -> Path | None:
    """Return the directory `tailrace` below a base directory of the XDG Base Directory Specification: the
    environment variable `variable` if it has an absolute path, else `default`. Return None without a home directory."""
    base = Path(environ.get(variable, ""))
    # Ignore a relative path, because the XDG specification requires an absolute one.
    if not base.is_absolute():
        try:
            base = Path(default).expanduser()
        except RuntimeError:
            return None
    return base / "tailrace"


def _data_path(environ: Mapping[str, str], what: str, keys: str) -> Path:
    """Return the directory for data of this user. Raise ConfigError without a home directory; the message contains
    `what`, the purpose of the directory, and `keys`, the keys that set another directory."""
    directory = user_directory(environ, "XDG_DATA_HOME", "~/.local/share")
    if directory is None:
        message = f"no directory for the {what}: {NO_HOME}; name one by {keys}, or set HOME or XDG_DATA_HOME"
        raise ConfigError([message])
    return directory


STORE_KEYS = "--store, store.path or TAILRACE_STORE_PATH"


def store_path(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return the directory or URL of the configured store, or else the directory of this user's store."""
    path = config.store.path
    if "://" in path:
        return path
    return str(expanded(path) if path else _data_path(environ, "store", STORE_KEYS))


def own_part(directory: Path, name: str) -> Path:
    """Return the directory of the collector `name` below a directory that collectors share. The collector `main` uses
    the shared directory itself."""
    return directory if name == MAIN else directory / COLLECTORS / name


def collector_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the local directory of the configured collector: in a local store, or in the spool directory for a
    store at a URL."""
    return own_part(shared_path(config, environ), config.collector.name)


def shared_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the local directory that contains the directories of all collectors that run on this host."""
    store = store_path(config, environ)
    return spools_path(config, environ) if "://" in store else Path(store)


def quarantine_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    return collector_path(config, environ) / "quarantine"


def spool_path(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    store, name = store_path(config, environ), config.collector.name
    if "://" not in store and not config.spool.path:
        return str(own_part(Path(store), name) / "spool")
    return str(own_part(spools_path(config, environ), name))


def spools_path(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that contains the spools of all collectors, if `spool.path` is set or the store is at a
    URL. Without `spool.path`, each URL has a separate directory, so that a spool never holds entries for two stores."""
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
        elif section != "sources":
            given.sections[section] = _settings(document, section, table=content)
        else:
            for name, keys in content.items():
                where = document.where("sources", name)
                if isinstance(keys, dict):
                    given.begun[name] = where
                    given.sources[name] = _settings(document, "sources", name, table=keys)
                else:
                    text = f"must be a section, as in [sources.name], not {kind(keys)}"
                    yield Problem(where, text)


def _settings(document: Document, *above: str, table: dict[str, Any]) -> dict[str, Setting]:
    return {key: Setting(value, document.where(*above, key)) for key, value in table.items()}


def _add_default_sources(given: Given) -> None:
    """Add the default sources with only their required keys. If an environment variable changes the type of a source,
    an optional key of the old type could be an unknown key of the new type."""
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
            # Set an entry of a table such as `store.options`, in place of entries whose name in lower case is the same.
            table = given.sections[section].get(key, Setting({}, setting.where))
            if isinstance(table.value, dict):
                entries = {n: value for n, value in table.value.items() if n.lower() != rest[0]}
                entries[rest[0]] = setting.value
                given.sections[section][key] = Setting(entries, table.where)
        else:
            given.sections[section][key] = setting
    return problems


def _place(problem: Problem) -> tuple[bool, int, bool, str]:
    """Return the key by which problems are sorted: first those of the file, by line, then those of variables, then
    those of options."""
    where = problem.where
    return where.line is None, where.line or 0, not where.origin, where.key


def _sha256(config: Config) -> str:
    options = dict.fromkeys(config.store.options, "")
    store = msgspec.structs.replace(config.store, options=options)
    public = msgspec.structs.replace(config, store=store)
    text = msgspec.json.encode(public, enc_hook=_number, order="deterministic")
    return hashlib.sha256(text).hexdigest()


def _number(quantity: Size | Duration) -> int | float:
    # Return the number and not the text of a size or duration, because the text may be rounded.
    return int(quantity) if isinstance(quantity, Size) else float(quantity)
