"""Report what tail sources would find now. The search is the daemon's own, and opens no file."""

from __future__ import annotations

import fnmatch
import glob
import os
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from tailrace.config.schema import TailConfig
from tailrace.doctor.finding import Figures, Finding, Severity, good, plural, setting
from tailrace.doctor.host import Host, exists
from tailrace.sources.tail.roots import Roots, followed
from tailrace.sources.tail.scan import Found, Outside, Search, parse

CHECK = "tail paths"

SEARCH_SECONDS = 2.0
"""The limit for all patterns together. The report names patterns that were not searched to the end."""


class Searched(msgspec.Struct):
    """The result of a search for one pattern."""

    files: int = 0
    unreadable: list[str] = []
    outside: list[str] = []
    unlisted: list[str] = []
    whole: bool = True


def check(host: Host) -> Iterator[Finding]:
    end = host.clock.monotonic() + SEARCH_SECONDS
    for name, config in tails(host).items():
        wanted = _streams(config.format)
        seen = {pattern: _search(host, pattern, wanted, end) for pattern in config.paths}
        links = [link for one in seen.values() for link in one.outside]
        targets = dict.fromkeys(glob.escape(real) for link in links if (real := followed(link)))
        following = setting(name, "paths", ",".join([*config.paths, *targets]), source=True)
        for pattern, one in seen.items():
            yield from _judged(name, pattern, one, following)


def tails(host: Host) -> dict[str, TailConfig]:
    return {name: c for name, c in host.config.sources.items() if isinstance(c, TailConfig)}


def reaches(pattern: str, directory: str) -> bool:
    """Return whether files in or below a directory can match a pattern."""
    root, parts = parse(pattern)
    place = os.path.abspath(directory)  # noqa: PTH100 - like the pattern, without following links
    if place == root or root.startswith(place.rstrip("/") + "/"):
        return True
    if not place.startswith(root.rstrip("/") + "/"):
        return False
    rest = place[len(root.rstrip("/")) + 1 :].split("/")
    for part, name in zip(parts, rest, strict=False):
        if part == "**":
            return True
        if not fnmatch.fnmatchcase(name, part):
            return False
    return True


def _streams(format_: str) -> Callable[[str], bool]:
    """Return a predicate for the files of a format. Without a decoder, it accepts every file."""
    from tailrace.decoding.formats import FORMATS  # noqa: PLC0415 - imports all formats, which only tails need

    known = FORMATS.get(format_)
    return known.files.stream if known else lambda _path: True


def _search(host: Host, pattern: str, wanted: Callable[[str], bool], end: float) -> Searched:
    seen = Searched()
    errors: list[str] = []
    search = Search([pattern], Roots(lambda _: ()), host.clock, errors.append)
    for found in search.run():
        if isinstance(found, Outside):
            seen.outside.append(found.path)
        elif isinstance(found, Found) and (found.named or found.spelled or wanted(found.path)):
            seen.files += 1
            if not os.access(found.path, os.R_OK):
                seen.unreadable.append(found.path)
        if host.clock.monotonic() > end:
            seen.whole = False
            return seen
    if errors:
        root = parse(pattern).root
        unlisted = [path for path in _unlisted(root, host, end) if not search.covers(path)]
        seen.unlisted = unlisted or [root]  # only a link would show where exactly
    return seen


def _unlisted(root: str, host: Host, end: float) -> list[str]:
    """Return the directories, including the root, that cannot be listed or reached."""
    failed: list[OSError] = []
    for _ in os.walk(root, onerror=failed.append):
        if host.clock.monotonic() > end:
            break
    return [str(error.filename) for error in failed if not isinstance(error, FileNotFoundError)]


def _judged(name: str, pattern: str, seen: Searched, following: str) -> Iterator[Finding]:
    """Yield the findings for one pattern. `following` is the command that makes the source follow links
    out of its roots."""
    figures: Figures = {"pattern": pattern, "files": seen.files}
    me = '"$(id -un)"'
    problem = partial(Finding, check=CHECK, severity=Severity.PROBLEM, figures=figures)
    if seen.unlisted:
        yield problem(
            what=f"{name}: {_names(seen.unlisted)} cannot be searched by this user.",
            why="Files in there are not found, and the collector can only report that the search failed.",
            commands=[f"sudo setfacl -R -m u:{me}:rX {_words(seen.unlisted)}"],
        )
    if seen.unreadable:
        yield problem(
            what=f"{name}: {_names(seen.unreadable)} cannot be read by this user.",
            why="The collector keeps trying, and these files wait until it can read them.",
            commands=[f"sudo setfacl -m u:{me}:r {_words(seen.unreadable)}"],
        )
    if seen.outside:
        yield Finding(
            check=CHECK,
            severity=Severity.ADVICE,
            what=f"{name}: {_names(seen.outside)} leads out of {parse(pattern).root} and is not"
            " followed.",
            why="A link must not make a collector read files that nobody named.",
            commands=[following],
            figures=figures,
        )
    if seen.files:
        least = "" if seen.whole else "at least "
        text = f"{name}: {pattern} leads to {least}{plural(seen.files, 'file')}."
        yield good(CHECK, text, **figures)
    elif not seen.whole:
        yield good(CHECK, f"{name}: {pattern} was not searched to its end, {SEARCH_SECONDS:.0f} s.")
    elif not seen.unlisted:
        yield _nothing(name, pattern, figures)


def _nothing(name: str, pattern: str, figures: Figures) -> Finding:
    root = Path(parse(pattern).root)
    what = f"{name}: {pattern} leads to no file of its format"
    if exists(root):
        commands = [f"ls -lR {shlex.quote(str(root))} | head  # list what exists"]
        what += " now."
    else:
        commands = [f"mkdir -p {shlex.quote(str(root))}"]
        what += f": {root} does not exist."
    return Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=what,
        why="Files that appear later are found, but a misspelt pattern waits for ever.",
        commands=commands,
        figures=figures,
    )


def _names(paths: list[str]) -> str:
    """Return the first path, and how many more there are."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"


def _words(paths: list[str]) -> str:
    return " ".join(map(shlex.quote, paths[:10]))
