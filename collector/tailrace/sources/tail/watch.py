"""What following files does, step by step: it searches, looks and reads in turn, and never waits itself.

No file has a task of its own. What a look finds to be there is read in turn, a chunk of each file.
Between two steps a watch says what it waits for (`Wait`), and goes on when it is asked to.

A file whose path is gone is read on (it stays open) until nothing has come for `LINGER`: its
writer may still have it. If by then it has not turned up elsewhere, by name or as a copy with the
same beginning, its session ends. A copy waits for as long as its original is there.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from typing import Literal

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.formats import FORMATS
from tailrace.sources.refusal import Refusal
from tailrace.sources.source import CHUNK_MAX, FileIntake, SourceFigures
from tailrace.sources.tail import lineage
from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.descriptors import Descriptors
from tailrace.sources.tail.documents import Documents
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.roots import OutsideError, Roots
from tailrace.sources.tail.scan import Found, Outside, Search
from tailrace.sources.tail.schedule import Schedule
from tailrace.sources.tail.session import Desk
from tailrace.sources.tail.system import SYSTEM, System
from tailrace.sources.tail.writers import Writers

LINGER = 5.0
MISSING_LINGER = 600.0
"""Seconds that a file's end waits for its file system to be mounted."""
DIRECTORY_LOOKS = 4
"""Looks that searching a directory costs as much as; it is also listed now and then."""
LOOKS_AT_ONCE = 100
READS_AT_ONCE, READ_SECONDS = 100, 0.002
"""Looks, reads and seconds of reading after which others may run."""
SLEEP_MIN = 0.001
PATHS_SHOWN = 5
OUTSIDE_MAX = 4096
"""Links out of the roots that are known as such; they are counted again when there are more."""

END_OF_FILE = "end of file"
UNREADABLE = "unreadable"

logger = logging.getLogger(__name__)

Chosen = Mapping[str, tuple[str, ...]]
"""Paths that are to be read each for itself, though one may be another's copy, and the sessions that
the reading of each replaces."""

Wait = float | Literal["others", "room"]
"""The next step waits so many seconds, lets other tasks run, or waits until the intake has room."""


class Watch:
    """The files of one source. With `once`, `steps` reads what is there to its end, ends all sessions and
    is over. With `chosen` files none waits for another one that it may be a copy of."""

    def __init__(
        self,
        name: str,
        config: TailConfig,
        clock: Clock,
        intake: FileIntake,
        *,
        once: bool = False,
        chosen: Chosen | None = None,
        system: System = SYSTEM,
    ) -> None:
        self._name = name
        self._config = config
        self._clock = clock
        self._once = once
        self._linger = 0.0 if once else LINGER
        files = FORMATS[config.format].files
        self._is_stream = files.stream
        self._figures = SourceFigures()
        self._roots = Roots(files.documents, system)
        self._descriptors = Descriptors(config.descriptors_max, self._roots)
        self._catalog = Catalog(files.copy if chosen is None else str)
        self._search = Search(config.paths, self._roots, clock, self._failed)
        self._searched_at = self._search_due = self._documents_due = float("-inf")
        self._ready: deque[Followed] = deque()
        self._schedule = Schedule(config)
        self._following: set[Followed] = set()
        self._without_place: dict[Followed, None] = {}
        self._ended_bytes = 0
        self._outside: set[str] = set()
        self._unreachable: set[str] = set()
        self._desk = Desk(
            intake=intake, config=config, files=files, figures=self._figures,
            descriptors=self._descriptors, clock=clock,
            writers=Writers(clock, proc=system.proc, stat=system.stat),
            remember=self._catalog.remember,
            documents=Documents(files, self._roots, intake, self._failed),
            replaces=chosen or {},
        )  # fmt: skip
        for number, state in intake.files().items():
            file = Followed.resumed(self._desk, number, state, clock.monotonic())
            self._following.add(file)
            self._enter(file)

    def steps(self) -> Generator[Wait, None, None]:
        """Follow all files; yield what to wait for before the next step. Close all files at the end."""
        try:
            while (yield from self._turn()):
                pass
        finally:
            self._descriptors.close_all()

    def reconfigure(self, config: TailConfig) -> None:
        self._config = self._schedule.config = self._desk.config = config

    def cut(self, number: int, reason: str) -> None:
        """Leave a file alone until it is another one."""
        for file in self._following:
            if file.session.number == number:
                file.leave(reason)
                break

    @property
    def figures(self) -> SourceFigures:
        figures = self._figures
        figures.open = sum(file.session.number is not None for file in self._following)
        figures.files = len(self._catalog) + figures.files_ended
        figures.waiting = Counter(f.reason for f in self._catalog if f.phase in {"new", "waits"})
        figures.descriptors = len(self._descriptors)
        figures.raw_bytes = self._ended_bytes + sum(file.taken for file in self._following)
        figures.behind_bytes = sum(file.behind for file in self._catalog)
        return figures

    def _turn(self) -> Generator[Wait, None, bool]:
        """Search, look, read; return whether there will be another turn."""
        if self._clock.monotonic() >= self._search_due:
            yield from self._find()
        self._give_places()
        yield from self._look_around()
        if self._clock.monotonic() >= self._documents_due:
            yield from self._look_at_documents(self._desk.documents)
        if self._ready:
            yield from self._read()
        elif self._once:
            return self._drop_waiting()
        else:
            wake = min(self._search_due, self._documents_due, self._schedule.next)
            yield max(SLEEP_MIN, wake - self._clock.monotonic())
        return True

    def _find(self) -> Iterator[Wait]:
        began = self._clock.monotonic()
        for path in list(self._unreachable):
            self._admit(path)
        admitted = 0
        for found in self._search.run():
            if isinstance(found, Found):
                if found.named or self._is_stream(found.path):
                    self._admit(found.path)
                    admitted += 1
            elif isinstance(found, Outside):
                self._leave_outside(found.path)
            if found is None or admitted >= LOOKS_AT_ONCE:
                admitted = 0
                yield "others"
        self._searched_at = began
        self._search_due = began + self._schedule.rest(DIRECTORY_LOOKS * len(self._search))
        if self._once:
            self._search_due = float("inf")

    def _look_at_documents(self, documents: Documents) -> Iterator[Wait]:
        for looks, _ in enumerate(documents.look_at_all(), start=1):
            if looks % LOOKS_AT_ONCE == 0:
                yield "others"
        self._documents_due = self._clock.monotonic() + self._schedule.rest(len(documents))

    def _admit(self, path: str) -> None:
        """A path was found: of a new file, or of one that is known."""
        known = self._catalog.at(path)
        if known is not None and known.gone is None and known.path == path:
            return
        self._unreachable.discard(path)
        try:
            found = self._roots.look(path)
            if not stat.S_ISREG(found.st_mode) or self._is_known(path, found):
                return
        except OutsideError:
            self._leave_outside(path)
            return
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                self._failed(_name(error))
                self._unreachable.add(path)
            return
        self._enter(Followed(self._desk, path, found.st_dev, found.st_ino))

    def _is_known(self, path: str, found: os.stat_result) -> bool:
        """Whether a path leads to a file that has another one, or had until now. Raise OSError."""
        file = self._catalog.of_node((found.st_dev, found.st_ino))
        if file is None:
            return False
        if file.gone is None:
            file.look(self._clock.monotonic())
        if file.gone is None:
            self._catalog.add_alias(path, file)
            return True
        if not file.recognises(path):
            return False
        self._catalog.remove(file)
        file.moved(path)
        self._enter(file)
        return True

    def _enter(self, file: Followed) -> None:
        self._catalog.add(file)
        self._schedule.put(file, self._clock.monotonic())

    def _look_around(self) -> Iterator[Wait]:
        """Look at all files whose time has come."""
        now = self._clock.monotonic()
        for looks, file in enumerate(self._schedule.take(now), start=1):
            if file in self._catalog:
                try:
                    self._look(file, now)
                except OSError as error:
                    self._set_back(file, error, now)
            if looks % LOOKS_AT_ONCE == 0:
                yield "others"

    def _look(self, file: Followed, now: float) -> None:
        """See what has changed, and what is to be done about it. Raise OSError."""
        if file.look(now):
            self._admit(file.path)
        if file.gone is not None:
            for path in self._catalog.aliases(file):
                self._admit(path)
        self._schedule.after_look(file, now, len(self._catalog))
        if file.phase == "follows" and file.gone is None and not file.has_more and not self._once:
            file.rest(now)
            return  # as nearly always
        if file.phase in {"new", "waits"}:
            self._decide(file, now)
        if not file.queued and self._is_over(file, now):
            self._end(file, now)
        elif (
            file.phase in {"follows", "shadow"}
            and file.is_readable
            and (file.has_more or self._once)
        ):
            self._enqueue(file)

    def _decide(self, file: Followed, now: float) -> None:
        """Whether a file that is not followed is to be from now on. Raise OSError."""
        self._following.discard(file)
        if not file.undecided or not file.size or file in self._without_place:
            return  # who waits for a place gets it in turn
        if len(self._following) >= self._config.files_max:
            file.wait("files_max")
            self._without_place[file] = None
            return
        if lineage.is_copy(self._catalog, file, now):
            file.wait_for_original()
            return
        for other in lineage.yielding(self._catalog, file):
            other.step_back()
            self._following.discard(other)
            self._schedule.put(other, now)
        self._following.add(file)
        file.follow(lineage.ended_like(self._catalog, file))

    def _is_over(self, file: Followed, now: float) -> bool:
        """Whether a file that is gone is not expected to grow any more, nor to turn up again."""
        if file.gone is None or now - file.changed_at < self._linger:
            return False
        if self._searched_at < file.gone_at:
            return False
        if file in self._without_place and file.is_open and file.behind:
            return False  # it is still to be read
        return file.is_unlinked or self._search.covers(file.path)

    def _end(self, file: Followed, now: float) -> None:
        """Give its session to a copy of it, or read the last of it. Raise OSError."""
        heir = lineage.heir(self._catalog, file, now)
        if heir is not None:
            heir.take_over(file)
            self._without_place.pop(heir, None)
            self._following.add(heir)
            self._schedule.put(heir, now)
            self._forget(file)
        elif now - file.gone_at >= MISSING_LINGER or self._once or not file.is_missing:
            file.final = True
            self._enqueue(file)

    def _read(self) -> Iterator[Wait]:
        """Hand on about one chunk, of one file or of several."""
        before = self._figures.bytes
        until = self._clock.monotonic() + READ_SECONDS
        for _ in range(READS_AT_ONCE):
            if self._figures.bytes - before >= CHUNK_MAX or self._clock.monotonic() > until:
                break
            yield "room"
            if not self._ready:
                break
            file = self._ready.popleft()
            file.queued = False
            if file not in self._catalog:
                continue
            try:
                more = file.read()
            except OSError as error:
                self._set_back(file, error, self._clock.monotonic())
                continue
            if more:
                self._enqueue(file)
            elif file.final:
                self._close(file, file.gone or END_OF_FILE)
            elif self._once and file.phase in {"follows", "shadow"}:
                file.final = True
                self._enqueue(file)
        yield "others"

    def _close(self, file: Followed, reason: str) -> None:
        later = set(self._catalog.relatives(file)).difference(self._catalog.elders(file))
        file.close(reason, copied=any(o.gone is None and o.path != file.path for o in later))
        self._figures.files_ended += self._once
        self._ended_bytes += file.taken if self._once else 0
        self._forget(file)

    def _forget(self, file: Followed) -> None:
        """A file is none of ours any more; others may have waited for that."""
        now = self._clock.monotonic()
        waiting = self._catalog.waiting(file)
        self._catalog.remove(file)
        self._descriptors.close(file)
        self._following.discard(file)
        self._without_place.pop(file, None)
        for other in waiting:
            self._reconsider(other, now)

    def _reconsider(self, file: Followed, now: float) -> None:
        if file in self._catalog:
            file.undecided = True
            if file.due > now:  # who waits for its look already keeps its place before others
                self._schedule.put(file, now)

    def _give_places(self) -> None:
        places = max(0, self._config.files_max - len(self._following))
        for file in list(islice(self._without_place, places)):
            del self._without_place[file]
            self._reconsider(file, self._clock.monotonic())

    def _drop_waiting(self) -> bool:
        """Nothing is left to be read once: what waits now waits for nothing."""
        if self._schedule.next <= self._clock.monotonic():
            return True
        for file in list(self._catalog):
            self._figures.files_ended += 1
            self._forget(file)
        return False

    def _enqueue(self, file: Followed) -> None:
        if not file.queued:
            file.queued = True
            self._ready.append(file)

    def _set_back(self, file: Followed, error: OSError, now: float) -> None:
        """Try again later where something failed, and wait longer each time."""
        if error.errno != errno.ENOENT:
            self._failed(_name(error))
        if error.errno == errno.ESTALE:
            self._descriptors.close(file)
        if self._once or file.final:
            self._close(file, file.gone or UNREADABLE)
            return
        self._schedule.after_failure(file, now)

    def _leave_outside(self, path: str) -> None:
        """A link leads out of all roots: it is counted, and named, once."""
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
                self._name, path, PATHS_SHOWN, extra={"source": self._name},
            )  # fmt: skip

    def _failed(self, name: str) -> None:
        if name not in self._figures.errors:
            logger.warning(
                "source %s: %s; it is tried again, and counted",
                self._name, name, extra={"source": self._name},
            )  # fmt: skip
        self._figures.errors[name] = self._figures.errors.get(name, 0) + 1


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
