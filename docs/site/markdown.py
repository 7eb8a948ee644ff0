"""Read Markdown pages: their headings, anchors, links and sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_ADDRESS = re.compile(r"[a-z]+:")
_BEFORE_LIST = re.compile(r"^(?![-*] |\d+\. |[ |#>]).+\n(?=(?:[-*]|\d+\.) )", re.MULTILINE)


def headings(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the level, the words and the position of each heading."""
    for match in _HEADING.finditer(_without(_FENCE, text)):
        yield len(match[1]), match[2], match.start()


def anchor(words: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    visible = re.sub(r"\]\([^)]*\)", "]", words).lower()
    return re.sub(r"[^\w\- ]", "", visible).strip().replace(" ", "-")


def anchors(text: str) -> list[str]:
    """Return the anchors of a page: one for each heading, and those that its HTML sets."""
    return [anchor(words) for _, words, _ in headings(text)] + re.findall(r' id="([^"]+)"', text)


def targets(text: str) -> list[str]:
    """Return where the links and pictures of a page lead, but for addresses of the web."""
    return [match[1] for match in _links(text)]


def relink(text: str, found: Mapping[str, str]) -> str:
    """Return a page in which each link that `targets` returns is replaced."""
    for match in reversed(list(_links(text))):
        text = text[: match.start(1)] + found[match[1]] + text[match.end(1) :]
    return text


def split(text: str, level: int) -> tuple[str, list[tuple[str, str]]]:
    """Return the part of a page before its sections of a level, and each section: its heading and its text."""
    starts = [(words, at) for depth, words, at in headings(text) if depth == level]
    bounds = [at for _, at in starts] + [len(text)]
    sections = [(words, text[at:end]) for (words, at), end in zip(starts, bounds[1:], strict=True)]
    return text[: bounds[0]], sections


def promote(text: str) -> str:
    """Return a section as a page: its headings are one level higher."""
    for _, _, at in reversed(list(headings(text))):
        text = text[:at] + text[at + 1 :]
    return text


def spaced(text: str) -> str:
    """Return a page with an empty line before each list. Without the line, Python-Markdown shows no list."""
    for match in reversed(list(_BEFORE_LIST.finditer(_without(_FENCE, text)))):
        text = f"{text[: match.end()]}\n{text[match.end() :]}"
    return text


def _links(text: str) -> Iterator[re.Match[str]]:
    prose = _without(_CODE, _without(_FENCE, text))
    return (match for match in _LINK.finditer(prose) if not _ADDRESS.match(match[1]))


def _without(pattern: re.Pattern[str], text: str) -> str:
    """Return a text of the same length that has spaces in place of what matches."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
