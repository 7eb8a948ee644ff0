"""Split comments, docstrings, strings and Markdown into sentences, each with the line where the sentence begins."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from ast import literal_eval
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

Lines = list[tuple[int, str]]
"""Consecutive lines, each with its number."""

_MARKDOWN = frozenset({".md"})
_PYTHON = frozenset({".py", ".pyi", ".pyx", ".pxd"})
_C = frozenset({".c", ".h"})
READABLE = _MARKDOWN | _PYTHON | _C
"""Suffixes of the files that `sentences` can read."""

_END = re.compile(r"(?<=[.!:])[)\"*_`]*\s+(?=[(\"*_`]*[A-Z])|(?<=\?)[)\"*_`]*\s+")
"""Pattern of the space between two sentences. A colon ends a sentence if a capital letter follows."""
_BULLET = r"(?:[-*+]|\d+[.)])\s+"
_ITEM = re.compile(rf"\s*{_BULLET}")
_OPENING = re.compile(rf"\s*(?:#+\s+|>\s*)?(?:{_BULLET})?[(\"*_`\[]*")
"""Characters before the first word of a sentence: the mark of a heading, a bullet, emphasis, a quote."""
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\s*\|(\s*:?-+:?\s*\|)+\s*$")
"""The line below the head of a table."""
_C_COMMENT = re.compile(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+|//[^\n]*", re.DOTALL | re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(r"\\[abfnrtv]")
_WORDS = frozenset(
    number
    for number, name in tokenize.tok_name.items()
    if name in {"NAME", "STRING", "FSTRING_MIDDLE"}
)
_BEFORE = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


class Sentence(NamedTuple):
    path: Path
    line: int
    text: str

    @property
    def first_word(self) -> str:
        return re.split(r"\W", self.text, maxsplit=1)[0]

    @property
    def asks(self) -> bool:
        return self.text.rstrip('*_`") ').endswith("?")


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page, or those of the comments and of the strings that are statements in a file
    of code.
    """
    source = path.read_text()
    if path.suffix in _MARKDOWN:
        blocks = iter([_markdown(source)])
    elif path.suffix in _PYTHON:
        blocks = iter(read_code(source).prose)
    elif path.suffix in _C:
        blocks = _c(source)
    else:
        raise ValueError(f"{path.name}: neither Markdown, Python, Cython nor C")
    for block in blocks:
        for paragraph in _paragraphs(block):
            yield from _split(path, paragraph)


def strings(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of the strings that Python code uses. Values in f-strings read "…"."""
    tree = ast.parse(path.read_bytes())
    others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=parts):
                others |= set(map(id, parts))
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in parts)
            case ast.Constant(value=str(text)) if id(node) not in others:
                pass
            case _:
                continue
        for paragraph in _paragraphs((node.lineno, line) for line in text.splitlines()):
            yield from _split(path, paragraph)


class ReadCode(NamedTuple):
    """The prose and the words of a file of code."""

    prose: list[Lines]
    """Runs of comments in one column, and strings that are statements by themselves."""
    words: frozenset[str]
    """Identifiers in code, and in strings that are no statements by themselves."""


@cache
def read_code(source: str) -> ReadCode:
    """Read a file of code, which may be Cython. The result is cached, because several rules use it."""
    tokens = list(_tokens(source))
    alone = list(_lone_strings(tokens))
    runs: list[Lines] = []
    place = (-1, 0)
    for comment in (token for token in tokens if token.type == tokenize.COMMENT):
        row, column = comment.start
        if (row - 1, column) != place:
            runs.append([])
        runs[-1].append((row, comment.string.lstrip("#: ")))
        place = (row, column)
    for token in alone:
        text = str(literal_eval(token.string))
        runs.append(list(enumerate(text.split("\n"), token.start[0])))
    starts = {token.start for token in alone}
    code = {t.string for t in tokens if t.type in _WORDS and t.start not in starts}
    return ReadCode(runs, frozenset(_IDENTIFIER.findall(_ESCAPE.sub(" ", "\n".join(code)))))


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def _lone_strings(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Yield each string that is a statement by itself."""
    code = [token for token in tokens if token.type not in {tokenize.COMMENT, tokenize.NL}]
    for before, token, after in zip([code[-1], *code], code, code[1:], strict=False):
        alone = before.type in _BEFORE and after.type == tokenize.NEWLINE
        if token.type == tokenize.STRING and alone:
            yield token


def _c(source: str) -> Iterator[Lines]:
    """Yield the text of each comment in C, without its marks."""
    for match in _C_COMMENT.finditer(source):
        first = source.count("\n", 0, match.start()) + 1
        lines = (line.strip(" \t/*") for line in match[0].split("\n"))
        yield list(enumerate(lines, first))


def _markdown(source: str) -> Lines:
    """Return the page without fenced code and heads of tables. Blank lines separate headings and cells."""
    page: Lines = []
    fenced = False
    lines = source.split("\n")
    for number, (line, below) in enumerate(pairwise([*lines, ""]), 1):
        if _FENCE.match(line):
            fenced = not fenced
            page.append((number, ""))
        elif fenced or _RULE.match(below):
            continue
        elif line.startswith("#"):
            page += [(number, ""), (number, line), (number, "")]
        elif line.lstrip().startswith("|"):
            for cell in line.strip().strip("|").split("|"):
                page += [(number, ""), (number, cell), (number, "")]
        else:
            page.append((number, line))
    return page


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[Lines]:
    """Yield lines that form a paragraph. A blank line ends it, and an item of a list begins a new one."""
    paragraph: Lines = []
    for number, line in lines:
        if not line.strip() or _ITEM.match(line):
            if paragraph:
                yield paragraph
            paragraph = []
        if line.strip():
            paragraph.append((number, line))
    if paragraph:
        yield paragraph


def _split(path: Path, paragraph: Lines) -> Iterator[Sentence]:
    text = "\n".join(line for _, line in paragraph)
    bounds = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    for begin, end in pairwise(bounds):
        opening = _OPENING.match(text, begin, end)
        start = opening.end() if opening else begin
        line = paragraph[text.count("\n", 0, start)][0]
        yield Sentence(path, line, " ".join(text[start:end].split()))
