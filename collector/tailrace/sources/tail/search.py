"""Find files by glob patterns, and distinguish new files from known files that were moved.

A pattern matches files, or directories that are searched recursively. The part before its first wildcard is its *root*.
Links within the root are followed, with loop detection; links that lead out of it are not. `*`, `?` and `[…]` match
within one part of a path, and `**` matches any number of parts. A hidden directory is entered only if the pattern has
its leading dot.

A directory is listed again when its modification time has changed, or was changed within `COARSE` seconds before the
listing, and every `RELIST` seconds, because modification times may be stale on network file systems."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.sources.source import Refusal, SourceFigures
from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.content import beginning
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.location import MISSING, OutsideError, Roots, followed, report
from tailrace.sources.tail.session import Desk

PATHS_SHOWN = 5
OUTSIDE_MAX = 4096
"""Maximum number of remembered links that lead out of the roots. They are remembered so that each link is counted
once."""

OF_NO_FORMAT = (
    "source %s: %r has neither the name nor the content of the source's format, and is not followed; give its path in"
    " `paths` to follow it all the same; the first %d are named"
)
OF_OTHER_FORMAT = (
    "source %s: %r has the content of %s, and is not followed; give its path in `paths` to follow it all the same; the"
    " first %d are named"
)
EMPTY = "source %s: %r is empty, so what it lacks is unknown; it is read only once it has content; the first %d are named"

logger = logging.getLogger(__name__)


class Complaints:
    """Counts the errors of one source in its `figures` and logs them."""

    def __init__(self, source: str, figures: SourceFigures) -> None:
        self._source = source
        self._figures = figures
        self._outside: set[str] = set()
        self._strange: set[str] = set()

    def failed(self, name: str) -> None:
        """Count an error by its name, and log the first error of each name."""
        if name not in self._figures.errors:
            logger.warning(
                "source %s: %s; it is tried again, and counted",
                self._source, name, extra={"source": self._source},
            )  # fmt: skip
        self._figures.errors[name] = self._figures.errors.get(name, 0) + 1

    def leads_outside(self, path: str) -> None:
        """Count each link that leads out of all roots once. Log the first few."""
        if path in self._outside:
            return
        if len(self._outside) == OUTSIDE_MAX:
            self._outside.clear()
        self._outside.add(path)
        self._figures.refuse(Refusal.OUTSIDE)
        if self._figures.refused[Refusal.OUTSIDE] <= PATHS_SHOWN:
            logger.warning(
                "source %s: %r leads out of the configured paths and is not followed; the first %d"
                " are named, all counted",
                self._source, path, PATHS_SHOWN, extra={"source": self._source},
            )  # fmt: skip

    def is_left_out(self, path: str, text: str, *about: str) -> None:
        """Log that a file is not followed because of its content, or because it is empty. Name only the first few
        files. `text` is the message (`OF_OTHER_FORMAT` or `EMPTY`), and `about` has further values for the message."""
        if path not in self._strange and len(self._strange) < PATHS_SHOWN:
            self._strange.add(path)
            values = (self._source, path, *about, PATHS_SHOWN)
            logger.warning(text, *values, extra={"source": self._source})


COARSE = 2.0
RELIST = 60.0
BREATH = 64
"""Number of directories and links that a search checks before other tasks run (less than 1 ms)."""

_WILDCARD = re.compile(r"[*?[]")
_ESCAPED = re.compile(r"\[([*?[])\]")

Parts = tuple[str, ...]
"""The parts of a pattern that are still to be matched with a path; () matches everything below a directory."""

_NONE: Mapping[str, str] = MappingProxyType({})
_ALL = frozenset[Parts]({()})


class Pattern(NamedTuple):
    root: str
    parts: Parts
    """The parts of the path pattern from the first wildcard on."""


class Found(NamedTuple):
    path: str
    named: bool = False
    """Whether the configuration contains the path itself instead of a wildcard pattern."""
    spelled: bool = False
    """Whether the pattern spells a part of the file's name, as `*.log` does and `*` does not."""


class Outside(NamedTuple):
    """A link whose target is outside the searched pattern's root."""

    path: str


def parse(pattern: str) -> Pattern:
    parts = [part for part in os.path.abspath(pattern).split("/") if part]  # noqa: PTH100 - a pattern
    wild = (at for at, part in enumerate(parts) if _WILDCARD.search(_ESCAPED.sub("", part)))
    first = next(wild, len(parts))
    root = "/" + "/".join(_ESCAPED.sub(r"\1", part) for part in parts[:first])
    return Pattern(root, tuple(parts[first:]))


class _Listing(NamedTuple):
    prefix: str
    """Path of the listed directory, with a slash at its end."""
    search: int
    mtime_ns: int
    at_ns: int
    """Wall time (ns) at which the directory was listed."""
    expires: float
    directories: list[str]
    files: list[str]
    links: list[str]
    known: dict[frozenset[Parts], tuple[list[_Place], list[_Place]]]

    def below(self, wanted: frozenset[Parts]) -> tuple[list[_Place], list[_Place]]:
        """Return the directories and links in this directory that must be searched because they may contain paths that
        match one of `wanted`."""
        if (found := self.known.get(wanted)) is None:
            found = self.known[wanted] = (
                _places(self.prefix, self.directories, wanted, hidden=False),
                _places(self.prefix, self.links, wanted, hidden=True),
            )
        return found


class _Place(NamedTuple):
    """A directory or link to search, and the pattern parts that are still to be matched below it."""

    path: str
    wanted: frozenset[Parts]


class Search:
    """Finds the files that match the configured patterns, in directories that have changed since they were last listed.

    The search adds the patterns' roots to `roots`, and calls `failed` with each error's name."""

    def __init__(
        self,
        patterns: list[str],
        roots: Roots,
        clock: Clock,
        failed: Callable[[str], None],
        within: Mapping[str, str] = _NONE,
    ) -> None:
        """Prepare a search. In an import, `within` maps each file that the import has found to a directory: no link of
        the file may lead out of the directory."""
        self._patterns = [parse(pattern) for pattern in patterns]
        self._roots = roots
        self._within = within
        self._clock = clock
        self._failed = failed
        self._listings: dict[str, _Listing] = {}
        self._number = 0
        self._unseen: set[str] = set()

    def __len__(self) -> int:
        """Return the number of directories that a search visits."""
        return len(self._listings)

    def is_named(self, path: str) -> bool:
        """Return whether the configuration has this path itself instead of a pattern that matches it."""
        return any(each == (path, ()) for each in self._patterns)

    def covers(self, path: str) -> bool:
        """Return whether the last search would have found a file at this path: it could read all directories above."""
        while path not in self._unseen:
            if path in {"/", ""}:
                return True
            path = os.path.dirname(path)  # noqa: PTH120 - twenty times as fast
        return False

    def run(self) -> Iterator[Found | Outside | None]:
        """Search once. Yield each file, and each link that leads out of the roots; yield None to let other tasks run."""
        self._number += 1
        self._unseen.clear()
        seen: set[str] = set()
        for number, pattern in enumerate(self._patterns):
            if number % BREATH == 0:
                yield None
            root = pattern.root
            found = self._stat(root)
            if found is None and self._stat(os.path.dirname(root)) is None:  # noqa: PTH120
                # A file system may be unmounted, because the directory above the root is missing, too.
                self._unseen.add(root)
            if found is not None and stat.S_ISDIR(found.st_mode):
                yield from self._descend(pattern, seen)
            elif found is not None and stat.S_ISREG(found.st_mode) and not pattern.parts:
                above = self._within.get(root)
                if self._roots.add(above or root, is_file=above is None) is None:
                    self._unseen.add(root)
                else:
                    yield Found(root, named=True)
        for path in self._listings.keys() - seen:
            del self._listings[path]

    def _descend(self, pattern: Pattern, seen: set[str]) -> Iterator[Found | Outside | None]:
        """Search the root of a pattern and the directories below it that the pattern matches. Add them to `seen`."""
        root = pattern.root
        real_root = self._roots.add(root, is_file=False)
        if real_root is None:
            self._unseen.add(root)
            return
        places = [_Place(root, _everywhere({pattern.parts}))]
        links: list[_Place] = []
        visited: set[tuple[int, int, frozenset[Parts]]] = set()
        while places or links:
            # Directories come before links, so that a file to which a link also leads is found at its own path.
            is_link = not places
            path, wanted = (places or links).pop()
            if is_link or len(visited) % BREATH == BREATH - 1:
                yield None
            target = followed(path) if is_link else path
            inside = target is None or f"{target}/".startswith(real_root.rstrip("/") + "/")
            if is_link and not inside:
                yield Outside(path)
                continue
            found = None if target is None else self._stat(path)
            if found is None:
                self._unseen.add(path)
                continue
            if stat.S_ISREG(found.st_mode) and () in wanted:
                yield Found(path, spelled=_spells(pattern, path))
            key = (found.st_dev, found.st_ino, wanted)
            if not stat.S_ISDIR(found.st_mode) or key in visited:
                continue
            visited.add(key)
            seen.add(path)
            if (listing := self._list(path, found)) is None:
                self._unseen.add(path)
                continue
            directories, further_links = listing.below(wanted)
            places += directories
            links += further_links
            if listing.search == self._number:
                names = (each for each in listing.files if () in _below(wanted, each, hidden=True))
                files = (listing.prefix + name for name in names)
                yield from (Found(file, spelled=_spells(pattern, file)) for file in files)

    def _list(self, path: str, found: os.stat_result) -> _Listing | None:
        known = self._listings.get(path)
        now = self._clock.monotonic()
        if (
            known is not None
            and known.mtime_ns == found.st_mtime_ns
            and known.at_ns - known.mtime_ns > COARSE * 1e9
            and now < known.expires
        ):
            return known
        at_ns = self._clock.wall_ns()
        directories, files, links = [], [], []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        links.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(entry.name)
        except OSError as error:
            report(error, self._failed)
            return None
        listing = _Listing(
            path.rstrip("/") + "/", self._number, found.st_mtime_ns, at_ns, now + RELIST,
            sorted(directories, reverse=True), sorted(files), sorted(links, reverse=True), {},
        )  # fmt: skip
        self._listings[path] = listing
        return listing

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return self._roots.system.stat(path)
        except OSError as error:
            report(error, self._failed)
            return None


def _everywhere(wanted: set[Parts]) -> frozenset[Parts]:
    """Return `wanted`, plus each element without its leading `**`, because `**` may match no part of a path."""
    for parts in list(wanted):
        stars = next((at for at, part in enumerate(parts) if part != "**"), len(parts))
        wanted.update(parts[at:] for at in range(1, stars + 1))
    return frozenset(wanted)


def _below(wanted: frozenset[Parts], name: str, *, hidden: bool) -> frozenset[Parts]:
    """Return the pattern parts that remain for paths below the entry `name` of a directory; an empty set if no pattern
    in `wanted` matches the name.

    A name with a leading dot matches only a part with a leading dot. If `hidden` is true (for files and links), such a
    name also matches `**`, and may lie below a directory that the whole pattern matches, because the format decides
    later whether the file is read."""
    hides = name.startswith(".")
    if wanted == _ALL:
        return wanted if hidden or not hides else frozenset()
    left: set[Parts] = set()
    for parts in wanted:
        if not parts or parts[0] == "**":
            if hidden or not hides:
                left.add(parts)
        elif fnmatchcase(name, parts[0]) and (parts[0].startswith(".") or not hides):
            left.add(parts[1:])
    return _everywhere(left)


def _places(
    prefix: str, names: list[str], wanted: frozenset[Parts], *, hidden: bool
) -> list[_Place]:
    below = ((name, _below(wanted, name, hidden=hidden)) for name in names)
    return [_Place(prefix + name, left) for name, left in below if left]


def _spells(pattern: Pattern, path: str) -> bool:
    """Return whether the last part of a pattern matches a file's name and does not consist of wildcards only."""
    if not pattern.parts or not pattern.parts[-1].strip("*?"):
        return False
    return fnmatchcase(path.rpartition("/")[2], pattern.parts[-1])


FILES_AT_ONCE = 100
"""Number of found files that are checked before other tasks run."""
STRANGE_MAX = 16384
"""Maximum number of files in each of two sets, which remember files whose content is not of the source's format."""
YOUNG = RELIST
"""Time (seconds) for which a changed file counts as young: its writer may still be writing the first record."""
DIRECTORY_LOOKS = 4
"""Time to search one directory, in multiples of the time to check one file."""

_LookedAt = tuple[int, int] | None
"""Size (bytes) and modification time (Unix ns) of a file at its last check; None if it could not be read."""


class Discovery:
    """Adds the files that a search finds to the catalog. With `once`, searches only once."""

    def __init__(
        self,
        desk: Desk,
        catalog: Catalog,
        complaints: Complaints,
        within: Mapping[str, str],
        *,
        once: bool,
    ) -> None:
        self.due = float("-inf")
        self.searched_at = float("-inf")
        self._once = once
        self._looks = 0
        """Number of files whose content the last search examined to find out their format."""
        self._desk = desk
        self._catalog = catalog
        self._roots = roots = desk.descriptors.roots
        self._complaints = complaints
        self._clock = desk.clock
        self._files = desk.files
        self.search = Search(desk.config.paths, roots, desk.clock, complaints.failed, within)
        self._unreachable: set[str] = set()
        # Files whose content is not of the source's format. Each search examines those in `_strange`: files that have
        # changed recently, or whose name the pattern spells. All others are in `_settled`, and are examined at most
        # once in `YOUNG` seconds. If `_settled` has no room, `_full` has the directories of further files, which are
        # then examined as rarely.
        self._strange: dict[Found, _LookedAt] = {}
        self._settled: dict[Found, tuple[float, _LookedAt]] = {}
        self._full: dict[str, float] = {}
        self._began = float("-inf")

    def run(self) -> Iterator[None]:
        """If a search is due, search for files to follow. Yield at intervals to let other tasks run."""
        if (began := self._clock.monotonic()) < self.due:
            return
        self._began = began
        self._looks = files = 0
        if len(self._settled) >= STRANGE_MAX:
            # Files that no recent search has examined are gone.
            since = began - 2 * YOUNG
            self._settled = {found: at for found, at in self._settled.items() if at[0] > since}
            self._full = {path: at for path, at in self._full.items() if at > since}
        unreachable = (Found(path, named=True) for path in list(self._unreachable))
        for found in chain(unreachable, list(self._strange), self.search.run()):
            if isinstance(found, Found):
                wanted = found.named or self._files.stream(found.path)
                wanted = wanted or self._catalog.at(found.path) is not None
                if wanted or (self._may_be_one(found) and self._recognises(found)):
                    self.admit(found.path)
                files += 1
            elif isinstance(found, Outside):
                self._complaints.leads_outside(found.path)
            if found is None or files >= FILES_AT_ONCE:
                files = 0
                yield
        self.searched_at = began
        pause = self._catalog.idle_interval(DIRECTORY_LOOKS * len(self.search) + self._looks)
        self.due = float("inf") if self._once else began + pause

    def admit(self, path: str) -> None:
        """Check a path that a search has found, and the former path of a file that was moved to this path. Add new
        files to the catalog."""
        vacated: str | None = path
        # A log rotation may move a thousand files, so do not recurse.
        while vacated is not None:
            path, vacated = vacated, None
            before = self._catalog.at(path)
            if before is not None and before.location.gone is None and before.location.path == path:
                return
            self._unreachable.discard(path)
            try:
                found, birth = self._roots.look(path)
                if not stat.S_ISREG(found.st_mode):
                    return
                known = self._known(path, found)
            except OutsideError:
                self._complaints.leads_outside(path)
                return
            except OSError as error:
                report(error, self._complaints.failed)
                if not isinstance(error, MISSING):
                    self._unreachable.add(path)
                return
            if known is None:
                file = Followed(self._desk, path, found.st_dev, found.st_ino, birth)
                self._catalog.add(file)
            elif known.location.gone is None:
                self._catalog.add_alias(path, known)
            else:
                vacated = known.location.path
                self._catalog.move(known, path)

    def _known(self, path: str, found: os.stat_result) -> Followed | None:
        """Return the known file that is at a path now, or None. Raise OSError if a file cannot be examined or read."""
        file = self._catalog.of_node((found.st_dev, found.st_ino))
        if file is None:
            return None
        if file.location.gone is None:
            file.look(self._clock.monotonic())
        return file if file.location.gone is None or file.recognises(path) else None

    def _recognises(self, strange: Found) -> bool:
        """Return whether a file's content is of the source's format. If not, remember the file for later searches."""
        self._looks += 1
        path = strange.path
        is_new = strange not in self._settled
        looked = self._strange.pop(strange, None) or self._settled.pop(strange, (0, None))[1]
        try:
            found = self._roots.system.stat(path)
            now_as = (found.st_size, found.st_mtime_ns)
            if not stat.S_ISREG(found.st_mode):
                return False
            if looked != now_as:
                fd = self._roots.open(path)
                try:
                    head = beginning(fd)
                finally:
                    os.close(fd)
                if head and self._files.recognises(path, head):
                    return True
                if head and strange.spelled:
                    self._complaints.is_left_out(path, OF_NO_FORMAT)
            self._remember(strange, now_as)
        except OutsideError:
            self._complaints.leads_outside(path)
        except OSError as error:
            if not isinstance(error, MISSING):
                # Count the error only once: the file may belong to another user, and not be meant for this source.
                if is_new or strange.spelled:
                    report(error, self._complaints.failed)
                self._remember(strange, None)
        return False

    def _remember(self, strange: Found, looked: _LookedAt) -> None:
        young = looked is not None and self._clock.wall_ns() - looked[1] < YOUNG * 1e9
        if not strange.spelled and not young:
            if len(self._settled) < STRANGE_MAX:
                self._settled[strange] = self._began, looked
            else:
                self._full[_directory(strange.path)] = self._began
        elif len(self._strange) < STRANGE_MAX:
            self._strange[strange] = looked

    def _may_be_one(self, strange: Found) -> bool:
        """Return whether to examine a file's content now, because its name does not show its format."""
        if strange.spelled or strange in self._strange:
            return True
        if strange.path.rpartition("/")[2].startswith("."):
            return False
        if strange in self._settled:
            return self._began - self._settled[strange][0] >= YOUNG
        full = self._full.get(_directory(strange.path), self._began)
        return full == self._began or self._began - full >= YOUNG


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
