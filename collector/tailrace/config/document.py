"""A TOML file as a tree, with the line of every key.

`tomllib` says where a syntax error is but not where a value was; nor does any kept parser on PyPI.
The lines are found with tomllib itself: a statement of TOML (`key = value`, `[table]`) begins on a
line of its own and is TOML by itself, while what is cut off inside an array or a multi-line string
is not. So the text is cut into the shortest runs of lines that parse, and each run names its keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailrace.config.problem import Problem, Where, dotted

_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_AT_END = " (at end of document)"

DEPTH = 3
"""How many names the longest path of a key has that is ours: `sources.runs.format`."""


class Document:
    """A file's text, which is TOML, and its tree."""

    def __init__(self, path: Path, text: str, tree: dict[str, Any]) -> None:
        self.tree = tree
        self._path = path
        self._lines = key_lines(text)

    def where(self, *keys: str) -> Where:
        """Where a key of the tree, or the nearest one above it, was first written."""
        above = (self._lines.get(keys[:depth]) for depth in range(len(keys), 0, -1))
        return Where(str(self._path), next(filter(None, above)), dotted(keys))


def read(path: Path) -> Document | Problem:
    """The document, or why there is none."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        return Problem(Where(str(path), None, ""), f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return Problem(Where(str(path), line, ""), "is not UTF-8")
    try:
        return Document(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line, what = _mistake(text, str(error))
    except ValueError:  # int() has a limit that tomllib does not know of
        line, what = _unended(text), "a number is too long"
    except RecursionError:
        line, what = _unended(text), "tables or arrays are nested too deeply"
    return Problem(Where(str(path), line, ""), f"is not TOML: {what}")


def _mistake(text: str, message: str) -> tuple[int, str]:
    """The line of a syntax error and the message without it."""
    if found := _AT_LINE.search(message):
        return int(found[1]), message.removesuffix(found[0])
    return _unended(text), message.removesuffix(_AT_END)


def _unended(text: str) -> int:
    """The line on which the first statement begins that does not parse, or else the last line."""
    for first, _, statement in _statements(text):
        if statement is None:
            return first
    return text.rstrip("\n").count("\n") + 1


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line on which each key and each table was first written, by the start of its path."""
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
    """The first line, the text and the tree of each statement; what has no end comes last, with
    None. Each comment and empty line is a statement of its own."""
    run, first = "", 1
    for line, content in enumerate(text.split("\n"), 1):  # splitlines() cuts more than TOML
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
    """Every path in the tree of up to `DEPTH` names, outer ones first; an array of tables, which
    no key of ours may be, is a path like any other."""
    for name, value in tree.items():
        yield (*above, name)
        if isinstance(value, dict) and len(above) + 1 < DEPTH:
            yield from _paths(value, (*above, name))
