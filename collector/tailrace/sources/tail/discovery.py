"""Finds files, and tells new files from known ones that have another path now."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping

from tailrace.clock import Clock
from tailrace.decoding.contract import Files
from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.complaints import Complaints, name_of
from tailrace.sources.tail.fingerprint import beginning
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.handoff import Desk
from tailrace.sources.tail.roots import OutsideError, Roots
from tailrace.sources.tail.scan import Found, Outside, Search
from tailrace.sources.tail.schedule import Schedule

ADMITTED_AT_ONCE = 100
"""Paths looked at before other tasks run."""


class Discovery:
    """Enters the files that it finds in the catalog and in the schedule."""

    def __init__(
        self,
        desk: Desk,
        catalog: Catalog,
        schedule: Schedule,
        roots: Roots,
        complaints: Complaints,
        within: Mapping[str, str],
    ) -> None:
        self.searched_at = float("-inf")
        """When the last search began."""
        self._desk = desk
        self._catalog = catalog
        self._schedule = schedule
        self._roots = roots
        self._complaints = complaints
        self._clock: Clock = desk.clock
        self._files: Files = desk.files
        self._search = Search(desk.config.paths, roots, desk.clock, complaints.failed, within)
        self._unreachable: set[str] = set()
        self._strange: dict[str, int] = {}
        """Sizes of the files that a pattern spells, and that the format recognises neither by name nor by content."""

    @property
    def directories(self) -> int:
        """Return how many directories a search visits."""
        return len(self._search)

    def covers(self, path: str) -> bool:
        """Return whether the last search would have found this path."""
        return self._search.covers(path)

    def run(self) -> Iterator[None]:
        """Search once. Yield at good moments to let other tasks run."""
        began = self._clock.monotonic()
        for path in list(self._unreachable):
            self.admit(path)
        for path in list(self._strange):
            if self._recognises(path):
                self.admit(path)
        admitted = 0
        for found in self._search.run():
            if isinstance(found, Found):
                wanted = found.named or self._files.stream(found.path)
                if wanted or (found.spelled and self._recognises(found.path)):
                    self.admit(found.path)
                    admitted += 1
            elif isinstance(found, Outside):
                self._complaints.leads_outside(found.path)
            if found is None or admitted >= ADMITTED_AT_ONCE:
                admitted = 0
                yield
        self.searched_at = began

    def admit(self, path: str) -> None:
        """Look at a path that was found. Enter its file if the file is new, or has moved there."""
        known = self._catalog.at(path)
        if known is not None and known.location.gone is None and known.location.path == path:
            return
        self._unreachable.discard(path)
        try:
            found, birth = self._roots.look(path)
            if not stat.S_ISREG(found.st_mode) or self._is_known(path, found):
                return
        except OutsideError:
            self._complaints.leads_outside(path)
            return
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                self._complaints.failed(name_of(error))
                self._unreachable.add(path)
            return
        file = Followed(self._desk, path, found.st_dev, found.st_ino, birth)
        if known is not None and known.location.path == path:
            file.rank = known.rank  # copies of either file come after both
        self.enter(file)

    def _recognises(self, path: str) -> bool:
        """Return whether the format recognises a file by its content. Log that a file with content is none of the format;
        look at the file again once its size has changed."""
        try:
            fd = self._roots.open(path)
            try:
                size = os.fstat(fd).st_size
                if self._strange.get(path) == size:
                    return False
                head = beginning(fd)
            finally:
                os.close(fd)
        except OSError:
            self._strange.pop(path, None)
            return False
        if head and self._files.recognises(path, head):
            self._strange.pop(path, None)
            return True
        self._strange[path] = size
        if head:
            self._complaints.is_of_no_format(path)
        return False

    def enter(self, file: Followed) -> None:
        self._catalog.add(file)
        self._schedule.put(file, self._clock.monotonic())

    def _is_known(self, path: str, found: os.stat_result) -> bool:
        """Return whether a path leads to a known file, which then has it as a further name or, if it
        had lost its path, as its path. Raise OSError."""
        file = self._catalog.of_node((found.st_dev, found.st_ino))
        if file is None:
            return False
        if file.location.gone is None:
            file.look(self._clock.monotonic())
        if file.location.gone is None:
            self._catalog.add_alias(path, file)
            return True
        if not file.recognises(path):
            return False
        self._catalog.remove(file)
        file.moved(path)
        self.enter(file)
        return True
