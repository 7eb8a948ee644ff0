"""Collect the pages of the site from the repository, and cut those that are too long."""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from docs.site.markdown import anchor, anchors, headings, promote, relink, spaced, split, targets

ROOT = Path(__file__).parents[2]
LONGEST_WORDS = 2_500
"""Number of words that a reader takes ten minutes for. A longer page becomes a page for each of its sections."""
DEEPEST = 2
"""Number of times that a page is cut: into its sections, and these into theirs."""
MARKDOWN = ".md"
README = f"README{MARKDOWN}"
INDEX = f"index{MARKDOWN}"
PICTURES = frozenset({".png", ".svg"})
LANGUAGES = {
    ".c": "c", ".conf": "ini", ".ipynb": "json", ".py": "python", ".rs": "rust", ".sh": "sh", ".sql": "sql",
    ".toml": "toml", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
"""Languages of the files that the site shows. Other files are plain text."""

Entry: TypeAlias = "str | list[Entry] | dict[str, Entry]"
"""A part of the navigation: the path of a page, several parts, or a page or parts by their title."""


class Page(NamedTuple):
    """A page of the site, and those into which its sections were cut."""

    path: str
    source: str
    title: str
    text: str
    parts: list[Page]

    def all(self) -> Iterator[Page]:
        """Yield the page and all of its parts."""
        yield self
        for part in self.parts:
            yield from part.all()

    def entry(self) -> dict[str, Entry]:
        """Return the page as a part of the navigation."""
        if not self.parts:
            return {self.title: self.path}
        return {self.title: [self.path, *(part.entry() for part in self.parts)]}


class Site:
    """The pages of a navigation, those that they link to, and the pictures on all of them."""

    def __init__(self, navigation: Entry) -> None:
        self.pictures: set[str] = set()
        texts = dict(self._reached(list(sources(navigation))))
        self.pages = {source: _cut(_place(source), source, text) for source, text in texts.items()}
        self._homes: dict[tuple[str, str], list[str]] = {}
        for page in self._all():
            for name in anchors(page.text):
                self._homes.setdefault((page.source, name), []).append(page.path)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each page, with links that lead within the site."""
        for page in self._all():
            found = {target: self._link(page, target) for target in targets(page.text)}
            parts = (f"- [{part.title}]({_from(page.path, part.path)})\n" for part in page.parts)
            yield page.path, f"{spaced(relink(page.text, found))}\n{''.join(parts)}"

    def titled(self, entry: Entry) -> Entry:
        """Return a part of the navigation with titles, and with the parts of pages that are cut."""
        if isinstance(entry, str):
            return self.pages[entry].entry()
        if isinstance(entry, list):
            return [self.titled(each) for each in entry]
        found: dict[str, Entry] = {}
        for name, each in entry.items():
            if isinstance(each, str):
                found[name] = next(iter(self.pages[each].entry().values()))
            else:
                found[name] = self.titled(each)
        return found

    def _all(self) -> Iterator[Page]:
        for whole in self.pages.values():
            yield from whole.all()

    def _reached(self, waiting: list[str]) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each page: of these, and of those that pages link to."""
        known = set(waiting)
        for source in waiting:
            text = _read(source)
            yield source, text
            for target in targets(text):
                found = resolve(source, target)
                if Path(found).suffix in PICTURES:
                    self.pictures.add(found)
                elif found not in known:
                    known.add(found)
                    waiting.append(found)

    def _link(self, page: Page, target: str) -> str:
        """Return where a link of a page leads on the site."""
        found, fragment = resolve(page.source, target), target.partition("#")[2]
        if not fragment:
            to = found if found in self.pictures else self.pages[found].path
            return _from(page.path, to)
        homes = self._homes.get((found, fragment), [])
        if len(homes) != 1:
            raise ValueError(
                f"{page.source}: {len(homes)} headings of {found} have the anchor {fragment}"
            )
        return f"{_from(page.path, homes[0])}#{fragment}"


def chapters(configuration: str) -> list[Entry]:
    """Return the navigation of a configuration."""
    found: list[Entry] = tomllib.loads(configuration)["project"]["nav"]
    return found


def sources(entry: Entry) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry if isinstance(entry, list) else entry.values():
            yield from sources(each)


def resolve(source: str, target: str) -> str:
    """Return the path in the repository to which a link of a page leads. The page of a folder is its README."""
    name = target.partition("#")[0]
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), name)) if name else source
    if (ROOT / found / README).exists():
        return f"{found}/{README}"
    if not (ROOT / found).exists():
        raise FileNotFoundError(f"{source}: a link leads to {found}, which does not exist")
    return found


def _read(source: str) -> str:
    """Return a page, or one that shows a file or lists a folder."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(
            each.name for each in path.iterdir() if each.suffix in {*LANGUAGES, MARKDOWN}
        )
        links = (f"- [{name}]({path.name}/{name})\n" for name in names if name[0] not in "._")
        return f"# {source}\n\n{''.join(links)}"
    text = path.read_text()
    if path.suffix == MARKDOWN:
        return text
    return f"# {source}\n\n~~~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}~~~~~~\n"


def _place(source: str) -> str:
    """Return the path on the site of a page of the repository.

    A README has the name of its folder: Zensical shows an `index` as the title of its section, not among the pages.
    """
    path = Path(source)
    if source == README:
        return INDEX
    if path.name == README:
        return f"{path.parent}{MARKDOWN}"
    return source if path.suffix == MARKDOWN else source + MARKDOWN


def _cut(place: str, source: str, text: str, depth: int = 0) -> Page:
    """Return a page, cut into its sections if it is too long."""
    title = _title(next(words for _, words, _ in headings(text)))
    head, sections = split(text, 2)
    if len(text.split()) <= LONGEST_WORDS or depth == DEEPEST or not sections:
        return Page(place, source, title, text, [])
    folder = place.removesuffix(MARKDOWN)
    parts = [
        _cut(f"{folder}/{anchor(_title(words))}{MARKDOWN}", source, promote(section), depth + 1)
        for words, section in sections
    ]
    return Page(f"{folder}/{INDEX}", source, title, head, parts)


def _from(page: str, to: str) -> str:
    """Return the relative link from a page to a path."""
    return posixpath.relpath(to, posixpath.dirname(page) or ".")


def _title(heading: str) -> str:
    """Return a heading as the navigation shows it: without marks, arguments and explanations."""
    return re.split(r" \[|: | -- ", re.sub(r"[`*]", "", heading))[0]
