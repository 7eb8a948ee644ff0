"""Read the prose of the product: `python -m tests.docs.prose [PATH...]` lists what breaks a rule.

Three rules: the first word of a function's docstring is a verb in the imperative. Each name in backquotes in
docstrings and comments exists, as an identifier, a file, or a word of a string in the repository. No sentence of
docstrings, comments, Markdown, and strings that people read begins with a word of `ASKING` unless it asks.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
from collections.abc import Container, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.docs.sentences import (
    READABLE,
    Sentence,
    read_code,
    sentences,
    strings,
)

ROOT = Path(__file__).parents[2]
PRODUCT = ("collector/tailrace", "clients/python/src")
PLAIN = (
    "collector",
    "clients/c",
    "clients/python/src",
    "clients/python/tests",
    "clients/python/README.md",
    "clients/PROTOCOL.md",
    "benchmarks",
    "deploy",
    "docs",
    "tests",
    "README.md",
    "CONTRIBUTING.md",
)
"""Folders and pages in which no sentence may begin with a word of `ASKING`."""
SPOKEN = (*PRODUCT, "benchmarks", "deploy")
"""Folders in which this also holds for strings, because people read them as help, messages and titles."""
NAMING = (*PRODUCT, "clients/python/tests", "benchmarks", "deploy", "tests")
"""Folders whose docstrings and comments may name only what exists."""
CYTHON = frozenset({".pyx", ".pxd", ".pyi"})
ASKING = frozenset({"Of", "What", "Who", "That"})
"""Words with which questions begin. At the beginning of another sentence, they hide the actor."""
NAMED_IN = ("collector", "clients", "tests", "config", "deploy", "benchmarks", "examples", ".ci")
VERBS = frozenset((Path(__file__).with_name("verbs.txt")).read_text().split())
"""Verbs with which docstrings may begin. Add the verb that you need, in the imperative."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\(\))?")
"""Pattern of text in backquotes that must be a name. Other text in backquotes is an example, a grammar or a command."""
_QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Docstring(NamedTuple):
    path: Path
    line: int
    name: str
    text: str

    @property
    def begins_with_verb(self) -> bool:
        return self.text.split(maxsplit=1)[0].rstrip(".,:;").lower() in VERBS


class Unknown(NamedTuple):
    path: Path
    line: int
    quoted: str


def modules(
    paths: Iterable[str] = PRODUCT, suffixes: Container[str] = frozenset({".py"})
) -> Iterator[Path]:
    """Yield the files of code below some paths of the repository."""
    for path in paths:
        home = ROOT / path
        files = [home] if home.is_file() else sorted(home.rglob("*"))
        yield from (file for file in files if file.suffix in suffixes)


def docstrings(paths: Iterable[str] = PRODUCT) -> Iterator[Docstring]:
    """Yield the docstrings of functions."""
    for path in modules(paths):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield Docstring(path, node.lineno, node.name, text)


def unknown_names(paths: Iterable[str] = NAMING) -> Iterator[Unknown]:
    """Yield the names in backquotes in docstrings and comments that exist nowhere."""
    for path in modules(paths, CYTHON | {".py"}):
        for line, text in chain.from_iterable(read_code(path.read_text()).prose):
            for match in _QUOTED.finditer(text):
                parts = match[1].removesuffix("()").split(".") if _NAME.fullmatch(match[1]) else []
                if any(part not in _known() for part in parts):
                    yield Unknown(path, line, match[1])


def misleading(paths: Iterable[str] = PLAIN) -> Iterator[Sentence]:
    """Yield the sentences that begin with a word of `ASKING` and do not ask."""
    for path in paths:
        home = ROOT / path
        for file in [home] if home.is_file() else sorted(home.rglob("*")):
            if file.suffix in READABLE:
                for sentence in sentences(file):
                    if sentence.first_word in ASKING and not sentence.asks:
                        yield sentence


def misleading_strings(paths: Iterable[str] = SPOKEN) -> Iterator[Sentence]:
    """Yield the sentences of strings in code that begin with a word of `ASKING` and do not ask."""
    for path in modules(paths):
        for sentence in strings(path):
            if sentence.first_word in ASKING and not sentence.asks:
                yield sentence


@cache
def _known() -> frozenset[str]:
    """Return all identifiers in code, the words of strings that are no prose, and the names of files."""
    words: set[str] = set()
    for home in NAMED_IN:
        for path in (ROOT / home).rglob("*"):
            words.update(_IDENTIFIER.findall(path.name))
            if path.suffix in CYTHON | {".py"}:
                words |= read_code(path.read_text()).words
            elif path.suffix in {".c", ".h", ".toml", ".yml", ".ini", ".service"}:
                words.update(_IDENTIFIER.findall(path.read_text(errors="replace")))
    words.update(_IDENTIFIER.findall((ROOT / "pyproject.toml").read_text()))
    return frozenset(words) | frozenset(keyword.kwlist)


def main(paths: list[str]) -> None:
    """Print each docstring without a verb, each unknown name and each misleading sentence, and their numbers."""
    chosen = paths or list(PRODUCT)
    found = list(docstrings(chosen))
    without = [one for one in found if not one.begins_with_verb]
    for one in without:
        sys.stdout.write(f"{one.path.relative_to(ROOT)}:{one.line}: {one.text.splitlines()[0]}\n")
    unknown = list(unknown_names(chosen))
    for name in unknown:
        sys.stdout.write(f"{name.path.relative_to(ROOT)}:{name.line}: unknown `{name.quoted}`\n")
    hidden = [*misleading(paths or PLAIN), *misleading_strings(paths or SPOKEN)]
    for sentence in hidden:
        sys.stdout.write(
            f"{sentence.path.relative_to(ROOT)}:{sentence.line}: begins with {sentence.first_word}: {sentence.text}\n"
        )
    verbs = len(found) - len(without)
    sys.stdout.write(
        f"{verbs} of {len(found)} begin with a verb; {len(unknown)} unknown names; "
        f"{len(hidden)} misleading sentences\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
