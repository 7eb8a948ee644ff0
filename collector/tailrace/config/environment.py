"""Read settings from environment variables: `TAILRACE_<SECTION>_<KEY>` for every key of the schema.

    TAILRACE_STORE_COMMIT_INTERVAL=500ms           [store] commit_interval
    TAILRACE_SOURCES_RUNS_PATHS=/a/*,/b/*          [sources.runs] paths: a list, separated by commas
    TAILRACE_STORE_OPTIONS_AWS_REGION=eu-north-1   [store.options] aws_region: an entry of a table
    TAILRACE_STORE_RETENTION_AGE=                  empty: none, for a key that may be none
    TAILRACE_…_FILE=/run/secrets/key               the value is the file's content without a final newline

Names of sources and of table entries are converted to lower case. A variable with the suffix `_FILE` always has the
path of a file, so a table entry whose name has this suffix can be set only in the configuration file. A variable that
begins with a section's name, or a similar name, and matches no key is refused. Other variables are ignored, as are
variables that describe a service (`service_links`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_origin

from tailrace.config.document import ENVIRONMENT, Problem, Setting, Where
from tailrace.config.keys import SECTIONS, SOURCES, keys, keys_of_any, optional, stripped
from tailrace.config.text import EncodingError, decoded

PREFIX = "TAILRACE_"
SOURCES_PREFIX = "TAILRACE_SOURCES_"
FILE_SUFFIX = "_FILE"

NOT_CONFIGURATION = frozenset({"TAILRACE_ADDRESS", "TAILRACE_CONFIG", "TAILRACE_KERNELS"})
"""Environment variables with the prefix TAILRACE_ that set no configuration key, and are never refused."""

NAMES_OF_FILES = frozenset({"tls_key", "tokens"})
"""Keys whose values are paths of files with secrets. For these keys, a variable with the suffix `_FILE` is refused,
because the content of the file would be taken for the path."""

_LINK = re.compile(
    r"(?P<service>TAILRACE(_\w+?)??)_"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|(?P<url>PORT|PORT_\d+_(TCP|UDP|SCTP))"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)|(?P<docker>NAME|ENV_\w+))"
)
_URL = re.compile(r"(tcp|udp|sctp)://\S+:\d+")

KeyPath = tuple[str, ...]


class Target(NamedTuple):
    """The key that an environment variable sets: its path, such as `("store", "path")`, and the type of its value."""

    path: KeyPath
    type: object


@cache
def variables() -> dict[str, Target]:
    """Return the environment variable of every key in a section. If the value of the key is a table, each entry has a
    variable of its own: the returned name, an underscore, and the name of the entry."""
    return {
        f"{PREFIX}{section}_{key}".upper(): Target((section, key), field.type)
        for section, struct in SECTIONS.items()
        for key, field in keys(struct).items()
    }


def read(environ: Mapping[str, str]) -> tuple[dict[KeyPath, Setting], list[Problem]]:
    """Return all settings in the environment by the path of their key, and the problems with the settings. For an entry
    of a table, the path has three names, such as `("store", "options", "aws_region")`."""
    settings: dict[KeyPath, Setting] = {}
    problems: list[Problem] = []
    ignored = NOT_CONFIGURATION | set(service_links(environ))
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in ignored:
            continue
        where = Where(ENVIRONMENT, None, name)
        target = _target(name.removesuffix(FILE_SUFFIX))
        if target is None:
            problems += _stray(name, where)
        elif name.endswith(FILE_SUFFIX) and target.path[-1] in NAMES_OF_FILES:
            text = f"the value is the name of a file already; allowed: {name.removesuffix(FILE_SUFFIX)}"
            problems.append(Problem(where, text))
        elif target.path in settings:
            other = settings[target.path].where.key
            problems.append(Problem(where, f"{other} sets the same key; allowed: one of the two"))
        else:
            try:
                text = _content(environ[name]) if name.endswith(FILE_SUFFIX) else environ[name]
                settings[target.path] = Setting(_value(target.type, text), where)
            except ValueError as error:
                problems.append(Problem(where, str(error)))
    return settings, problems


def service_links(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that Kubernetes or Docker have set to describe services named `tailrace` or `tailrace-…`.
    They do not belong to Tailrace's configuration."""
    links = []
    for found in filter(None, map(_LINK.fullmatch, sorted(environ))):
        # A NAME or ENV variable belongs to a Docker link only if the link's PORT variable contains an address.
        address = found[0] if found["url"] else f"{found['service']}_PORT"
        if not (found["url"] or found["docker"]) or _URL.fullmatch(environ.get(address, "")):
            links.append(found[0])
    return links


def _target(name: str) -> Target | None:
    for variable, target in variables().items():
        if get_origin(target.type) is dict:
            if name.startswith(f"{variable}_") and name != f"{variable}_":
                return Target((*target.path, name.removeprefix(f"{variable}_").lower()), str)
        elif name == variable:
            return target
    if name.startswith(SOURCES_PREFIX):
        rest = name.removeprefix(SOURCES_PREFIX).lower()
        # Take the first key that matches. At most one matches, because no key's name ends in an underscore and the name
        # of another key.
        for key, type_ in _source_types().items():
            source = rest.removesuffix(f"_{key}")
            if source not in {rest, ""}:
                return Target(("sources", source, key), type_)
    return None


@cache
def _source_types() -> dict[str, object]:
    return {"type": str} | {key: field.type for key, field in keys_of_any(SOURCES.values()).items()}


def _content(path: str) -> str:
    try:
        return decoded(Path(path).read_bytes()).removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except EncodingError as error:
        raise ValueError(f"{path!r} {error}") from None


def _value(type_: object, text: str) -> object:
    """Convert the text of an environment variable to a TOML value of the key's type, without a check of the value."""
    if not text and optional(type_):
        return None
    if stripped(type_) is int and re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return int(text)
    if stripped(type_) is bool and text in {"true", "false"}:
        return text == "true"
    if get_origin(type_) is list:
        return [part.strip() for part in text.split(",")] if text else []
    return text


def _stray(name: str, where: Where) -> Iterator[Problem]:
    """Yield a problem if a variable matches no key, but begins with a section's name or a similar name."""
    section, _, rest = name.removeprefix(PREFIX).removesuffix(FILE_SUFFIX).partition("_")
    near = get_close_matches(section.lower(), [*SECTIONS, "sources"], n=1, cutoff=0.75)
    if near:
        prefix = f"{PREFIX}{near[0]}_".upper()
        meant = get_close_matches(rest, _endings(near[0], rest), n=1)
        allowed = ", ".join(prefix + ending for ending in _endings(near[0], ""))
        help_ = f"did you mean {prefix}{meant[0]}?" if meant else f"allowed: {allowed}"
        yield Problem(where, f"matches no key; {help_}")


def _endings(section: str, rest: str) -> list[str]:
    """Return the names of a section's environment variables, without their prefix. For sources, return only those names
    that a user may have meant by `rest`, the name of a variable without its prefix. The variable of a source is named
    `<NAME>_<KEY>`, and NAME may contain underscores. Therefore take each beginning of `rest` that ends before an
    underscore as a NAME, and combine it with each KEY."""
    if section != "sources":
        fields = keys(SECTIONS[section]).items()
        return [k.upper() + ("_<NAME>" if get_origin(f.type) is dict else "") for k, f in fields]
    words = rest.split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words))] or ["<NAME>"]
    return [f"{name}_{key.upper()}" for name in names for key in _source_types()]
