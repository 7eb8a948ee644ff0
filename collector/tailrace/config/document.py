"""Read a TOML file, and find the line of every key, which tomllib does not state.

A TOML statement (`key = value`, `[table]`) begins on a new line and is valid TOML by itself. A statement that is cut
within an array or a multi-line string is not valid. So lines are collected until they parse.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.config.text import EncodingError, decoded, odd_character

ENVIRONMENT = "environment"
DEFAULT = "default"

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Where(NamedTuple):
    """The place where a user set a value: a file, the environment or the command line. `origin` is the file's path,
    `environment`, `default`, or empty for a command line option. `line` counts from 1, and is None outside of files."""

    origin: str
    line: int | None
    key: str

    def __str__(self) -> str:
        place = self.origin if self.line is None else f"{self.origin}:{self.line}"
        return ": ".join(part for part in (place, self.key) if part)


class Setting(NamedTuple):
    value: object
    where: Where


class Problem(NamedTuple):
    """A problem with the configuration. Its text is one line: `file:line: key: problem; allowed values`."""

    where: Where
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def dotted(path: tuple[str, ...]) -> str:
    """Return the path of a key as the user writes it in a file: `("sources", "a b")` becomes `sources."a b"`. The
    result is always one line."""
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name) for name in path)


_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
"""Pattern of the end of tomllib's message about a syntax error, which states the line."""

DEPTH = 3
"""Maximum number of names in the path of a configuration key: three, as in `sources.runs.format`."""


class Document:
    """The text of a valid TOML file, its content as a tree, and the line of each key."""

    def __init__(self, path: Path, text: str, tree: dict[str, Any]) -> None:
        self.tree = tree
        self._path = path
        self._lines = key_lines(text)

    def where(self, *keys: str) -> Where:
        """Return the location of a key in the file, or the line of the nearest table that should contain it."""
        above = (self._lines.get(keys[:depth]) for depth in range(len(keys), 0, -1))
        return Where(str(self._path), next(filter(None, above)), dotted(keys))


def read(path: Path) -> Document | Problem:
    """Read and parse a TOML file. Return the document, or the problem because of which it cannot be parsed."""
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        return Problem(Where(str(path), None, ""), f"cannot be read: {error.strerror}")
    except EncodingError as error:
        return Problem(Where(str(path), error.line, ""), str(error))
    try:
        return Document(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        what = str(error).removesuffix(" (at end of document)")
        found = _AT_LINE.search(what)
        line = int(found[1]) if found else _unended(text)
        what = _AT_LINE.sub("", what)
    except ValueError:
        # Python's int() raises ValueError for a number with too many digits. tomllib does not catch this error.
        line, what = _unended(text), "a number is too long"
    except RecursionError:
        line, what = _unended(text), "tables or arrays are nested too deeply"
    if odd := odd_character(text.split("\n")[line - 1]):
        what += f"; the line has {odd}"
    return Problem(Where(str(path), line, ""), f"is not TOML: {what}")


def _unended(text: str) -> int:
    """Return the line of the first statement that does not parse, or else the number of the last line."""
    for first, _, statement in _statements(text):
        if statement is None:
            return first
    return text.rstrip("\n").count("\n") + 1


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line on which each key and each table of a TOML text first appears, by path."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for line, run, statement in _statements(text):
        paths = [*_paths(statement or {})]
        is_header = run.lstrip(" \t").startswith("[")
        for path in paths:
            lines.setdefault(path if is_header else table + path, line)
        if is_header:
            table = paths[-1]
    return lines


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any] | None]]:
    """Split a TOML text into statements, comments and empty lines. Yield the first line number, the text and the
    parsed content of each, which is None for an incomplete last statement."""
    run, first = "", 1
    # Split at LF only. `splitlines` would also split at other characters.
    for line, content in enumerate(text.split("\n"), 1):
        run += content + "\n"
        try:
            statement = tomllib.loads(run)
        except (ValueError, RecursionError):
            continue
        yield first, run, statement
        run, first = "", line + 1
    if run:
        yield first, run, None


def _paths(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path (at most `DEPTH` names) of every key in a TOML tree, each table before its keys. An array of
    tables counts as one value."""
    for name, value in tree.items():
        yield (*above, name)
        if isinstance(value, dict) and len(above) + 1 < DEPTH:
            yield from _paths(value, (*above, name))
