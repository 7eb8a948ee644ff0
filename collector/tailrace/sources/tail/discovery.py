"""Finds files, and tells new files from known ones that have another path now."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import chain

from tailrace.clock import Clock
from tailrace.decoding.contract import Files
from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.complaints import Complaints, name_of
from tailrace.sources.tail.fingerprint import beginning
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.handoff import Desk
from tailrace.sources.tail.roots import OutsideError, Roots
from tailrace.sources.tail.scan import RELIST, Found, Outside, Search
from tailrace.sources.tail.schedule import Schedule

FILES_AT_ONCE = 100
"""Files looked at before other tasks run."""
STRANGE_MAX = 16384
"""Files of no known format that are remembered, young and other ones. Others are looked at when their directory is listed
again; if no pattern spells them, after `YOUNG` seconds."""
YOUNG = RELIST
"""Seconds since its last change for which a file that no pattern spells is looked at in each search, and not once in this
time: it may be a trace whose first record is being written."""


_LookedAt = tuple[int, int] | None
"""Size and time of modification (Unix ns) of a file at the last look; None if it could not be read."""


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
        self.looks = 0
        """How many files the last search looked at for their content."""
        self._desk = desk
        self._catalog = catalog
        self._schedule = schedule
        self._roots = roots
        self._complaints = complaints
        self._clock: Clock = desk.clock
        self._files: Files = desk.files
        self._search = Search(desk.config.paths, roots, desk.clock, complaints.failed, within)
        self._unreachable: set[str] = set()
        self._strange: dict[Found, _LookedAt] = {}
        """The files that the format recognises neither by name nor by content, and that each search looks at."""
        self._settled: dict[Found, tuple[float, _LookedAt]] = {}
        """Those that are looked at when their directory is listed again and some time has passed; with the begin of the
        search that looked last."""
        self._full: dict[str, float] = {}
        """Directories with more such files than are remembered, and the begin of the search that looked at these last."""
        self._began = float("-inf")
        """When the present search began."""

    @property
    def directories(self) -> int:
        """Return how many directories a search visits."""
        return len(self._search)

    def covers(self, path: str) -> bool:
        """Return whether the last search would have found this path."""
        return self._search.covers(path)

    def run(self) -> Iterator[None]:
        """Search once. Yield at good moments to let other tasks run."""
        began = self._began = self._clock.monotonic()
        self.looks = files = 0
        if len(self._settled) >= STRANGE_MAX:
            self._forget_gone()
        unreachable = (Found(path, named=True) for path in list(self._unreachable))
        for found in chain(unreachable, list(self._strange), self._search.run()):
            if isinstance(found, Found):
                wanted = found.named or self._files.stream(found.path)
                if (
                    wanted
                    or self._catalog.at(found.path)
                    or (self._may_be_one(found) and self._recognises(found))
                ):
                    self.admit(found.path)
                files += 1
            elif isinstance(found, Outside):
                self._complaints.leads_outside(found.path)
            if found is None or files >= FILES_AT_ONCE:
                files = 0
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

    def _recognises(self, strange: Found) -> bool:
        """Return whether the format recognises a file by its content. Log that a file with content that a pattern spells is
        none of the format; look at the file again once it has changed, or could not be read."""
        self.looks += 1
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
                    self._complaints.is_of_no_format(path)
            self._remember(strange, now_as)
        except OutsideError:
            self._complaints.leads_outside(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                if is_new or strange.spelled:  # others may have files that are not for this source
                    self._complaints.failed(name_of(error))
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
        """Return whether a file under another name than the format's is now looked at for its content. A hidden one is another
        program's, unless a pattern spells its name."""
        if strange.spelled or strange in self._strange:
            return True
        if strange.path.rpartition("/")[2].startswith("."):
            return False
        if strange in self._settled:
            return self._began - self._settled[strange][0] >= YOUNG
        full = self._full.get(_directory(strange.path), self._began)
        return full == self._began or self._began - full >= YOUNG

    def _forget_gone(self) -> None:
        """Forget the files that are no more found, so that others are remembered."""
        since = self._began - 2 * YOUNG
        self._settled = {found: known for found, known in self._settled.items() if known[0] > since}
        self._full = {path: at for path, at in self._full.items() if at > since}

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
        former = file.location.path
        self._catalog.move(file, path)
        self._schedule.put(file, self._clock.monotonic())
        self.admit(former)  # another file may be there, which the search took for this one
        return True


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
