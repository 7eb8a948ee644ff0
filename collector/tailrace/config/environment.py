"""Settings from environment variables: `TAILRACE_<SECTION>_<KEY>` for every key of the schema.

    TAILRACE_STORE_COMMIT_INTERVAL=500ms           [store] commit_interval
    TAILRACE_SOURCES_RUNS_PATHS=/a/*,/b/*          [sources.runs] paths: a list, parted by commas
    TAILRACE_STORE_OPTIONS_AWS_REGION=eu-north-1   [store.options] aws_region: an entry of a table
    TAILRACE_STORE_RETENTION_AGE=                  empty: none, where a key may be none
    TAILRACE_…_FILE=/run/secrets/key               the value is in that file; a last newline is not

Names of sources and of a table's entries are lower case whatever case the variable has. A name that
ends in `_FILE` always names a file; an entry whose own name ends so belongs in the configuration
file. A variable that begins with the name of a section, or nearly, and is no key is refused. Other
variables are left alone: Kubernetes, for one, sets TAILRACE_PORT for a service called tailrace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_origin

from tailrace.config.keys import SECTIONS, SOURCES, keys, keys_of_any, optional, stripped
from tailrace.config.problem import ENVIRONMENT, Problem, Setting, Where

PREFIX = "TAILRACE_"
SOURCES_PREFIX = "TAILRACE_SOURCES_"
FILE_SUFFIX = "_FILE"

NOT_CONFIGURATION = frozenset({"TAILRACE_ADDRESS", "TAILRACE_CONFIG"})
"""Variables with other readers: the clients, and whoever looks for the file to load. They stay
allowed even if a section should ever be called like them."""

NAMES_OF_FILES = frozenset({"tls_key", "tokens"})
"""Keys whose values name files with secrets: a `_FILE` of them would be taken for the name."""

KeyPath = tuple[str, ...]


class Target(NamedTuple):
    """What a variable sets: a path such as `("store", "path")`, and the type of its value."""

    path: KeyPath
    type: object


@cache
def variables() -> dict[str, Target]:
    """The variable of every key of the sections; those of a table's entries begin with its own."""
    return {
        f"{PREFIX}{section}_{key}".upper(): Target((section, key), field.type)
        for section, struct in SECTIONS.items()
        for key, field in keys(struct).items()
    }


def read(environ: Mapping[str, str]) -> tuple[dict[KeyPath, Setting], list[Problem]]:
    """Every setting in the environment by its path; that of a table's entry has one name more,
    `("store", "options", "aws_region")`."""
    settings: dict[KeyPath, Setting] = {}
    problems: list[Problem] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in NOT_CONFIGURATION:
            continue
        where = Where(ENVIRONMENT, None, name)
        target = _target(name.removesuffix(FILE_SUFFIX))
        if target is None:
            problems += _stray(name, where)
        elif name.endswith(FILE_SUFFIX) and target.path[-1] in NAMES_OF_FILES:
            allowed = name.removesuffix(FILE_SUFFIX)
            problems.append(
                Problem(where, f"would be a file with the name of one; allowed: {allowed}")
            )
        elif target.path in settings:
            other = settings[target.path].where.key
            problems.append(Problem(where, f"{other} sets the same; allowed: one of the two"))
        else:
            try:
                text = _content(environ[name]) if name.endswith(FILE_SUFFIX) else environ[name]
            except ValueError as error:
                problems.append(Problem(where, str(error)))
            else:
                settings[target.path] = Setting(_value(target.type, text), where)
    return settings, problems


def _target(name: str) -> Target | None:
    for variable, target in variables().items():
        if get_origin(target.type) is dict:
            if name.startswith(f"{variable}_") and name != f"{variable}_":
                return Target((*target.path, name.removeprefix(f"{variable}_").lower()), str)
        elif name == variable:
            return target
    if name.startswith(SOURCES_PREFIX):
        rest = name.removeprefix(SOURCES_PREFIX).lower()
        for key, type_ in _source_types().items():  # no key is the end of another: one fits
            source = rest.removesuffix(f"_{key}")
            if source not in {rest, ""}:
                return Target(("sources", source, key), type_)
    return None


@cache
def _source_types() -> dict[str, object]:
    return {"type": str} | {key: field.type for key, field in keys_of_any(SOURCES.values()).items()}


def _content(path: str) -> str:
    try:
        return Path(path).read_bytes().decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path!r} is not UTF-8") from None


def _value(type_: object, text: str) -> object:
    """The text as TOML would have given it; what does not fit is left for the check to refuse."""
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
    """A problem, if the variable is in a section's namespace or was meant to be."""
    section, _, rest = name.removeprefix(PREFIX).removesuffix(FILE_SUFFIX).partition("_")
    near = get_close_matches(section.lower(), [*SECTIONS, "sources"], n=1, cutoff=0.75)
    if near:
        prefix = f"{PREFIX}{near[0]}_".upper()
        meant = get_close_matches(rest, _endings(near[0], rest), n=1)
        allowed = ", ".join(prefix + ending for ending in _endings(near[0], ""))
        help_ = f"did you mean {prefix}{meant[0]}?" if meant else f"allowed: {allowed}"
        yield Problem(where, f"is no key's variable; {help_}")


def _endings(section: str, rest: str) -> list[str]:
    """How the variables of a section end, after its name; of a source, whose name and key may be
    parted at any `_` of `rest`, all that one may be meant for."""
    if section != "sources":
        return [
            key.upper() + ("_<NAME>" if get_origin(field.type) is dict else "")
            for key, field in keys(SECTIONS[section]).items()
        ]
    words = rest.split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words))] or ["<NAME>"]
    return [f"{name}_{key.upper()}" for name in names for key in _source_types()]
