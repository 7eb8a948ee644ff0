"""Search for files, check them for changes, and read them, in short steps that do not block.

One task handles all files of a source. A check determines the size of a file. The files that have grown are then read
in turn, one chunk each. A file that was deleted or renamed stays open and is read until nothing was written to it for
`LINGER` seconds, because its writer may still have it open. Then its session ends, unless a search has found the file,
or a copy of it, at another path."""

from __future__ import annotations

import errno
import os
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

import trio
from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.formats import FORMATS
from tailrace.sources.source import CHUNK_MAX, FileIntake, Source, SourceFigures
from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.comparison import Repeats
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.location import SYSTEM, Roots, System, TailDescriptors, name_of
from tailrace.sources.tail.phase import NEXT, READ, WAITING, FileEvent, Phase
from tailrace.sources.tail.search import EMPTY, OF_OTHER_FORMAT, PATHS_SHOWN, Complaints, Discovery
from tailrace.sources.tail.session import Desk, DocumentWatch, Writers
from tailrace.sources.tail.turns import Inflaters, Turns
from tailrace.spool.payloads import FileState

LINGER = 5.0
FIRST_RECORD_SECONDS = 1.0
"""Time (seconds) for which a file must be unchanged before its incomplete first record is read as configured."""
MISSING_LINGER = 600.0
"""Time (seconds) for which the session of a file waits for an unmounted file system or a moved directory."""
LOOKS_AT_ONCE = 100
READS_AT_ONCE, READ_SECONDS = 100, 0.002
"""Maximum number of reads, and maximum time (seconds) for reads, before other tasks run."""
SLEEP_MIN = 0.001

END_OF_FILE, AT_REST = "end of file", "at rest"
"""Reasons for the end of a session whose file was read to its end: by an import, and by the last run of a collector."""
UNREADABLE = "unreadable"


class Chosen(NamedTuple):
    """Facts about the files of a source that ends when its present files are read.

    If `left_out` is None, an import has chosen the files. Each of them is read into a session of its own, even if it is
    a copy. Otherwise the source reads the present files of its patterns, except the paths in `left_out`, which earlier
    sessions have read to their ends."""

    replaces: Mapping[str, tuple[str, ...]]
    """For each path, the earlier sessions whose rows are replaced by the rows of the path's new session."""
    within: Mapping[str, str] = {}
    left_out: frozenset[str] | None = None


Wait = float | Literal["others", "room"]
"""The condition for the next step: a number of seconds has passed, other tasks have run, or there is room for
chunks."""


class Watch:
    """Follows the files of one source. With `once`, it reads the present files to their ends, and finishes."""

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
        self._clock = clock
        self._once = once
        self._linger = 0.0 if once else LINGER
        self._chosen = chosen is not None and chosen.left_out is None
        self._left_out = (chosen.left_out if chosen else None) or frozenset()
        files = FORMATS[config.format].files
        self._figures = SourceFigures()
        self._complaints = Complaints(name, self._figures)
        roots = Roots(files.documents, system)
        self._descriptors = TailDescriptors(config.descriptors_max, roots)
        self._catalog = Catalog(files.copy, config, clock, apart=self._chosen)
        self._documents_due = float("-inf")
        self._ready: deque[Followed] = deque()
        self._turns = Turns(config.files_max)
        self._inflaters = Inflaters(config.inflating_max, once=once)
        self._ended_bytes = 0
        self._desk = Desk(
            intake=intake, config=config, files=files, figures=self._figures,
            descriptors=self._descriptors, clock=clock,
            writers=Writers(clock, proc=system.proc, stat=system.stat),
            remember=self._catalog.remember,
            documents=DocumentWatch(files, roots, intake, self._complaints.failed),
            replaces=chosen.replaces if chosen else {},
        )  # fmt: skip
        self._discovery = Discovery(
            self._desk, self._catalog, self._complaints, chosen.within if chosen else {}, once=once
        )
        self._repeats = Repeats(name, files, intake)
        self._resume(intake.files(self._catalog))

    def steps(self) -> Generator[Wait, None, None]:
        """Search for files, check files and read them, as soon as each of these steps is due. Yield the condition to
        wait for."""
        try:
            while True:
                for _ in self._discovery.run():
                    yield "others"
                now = self._clock.monotonic()
                for file in self._turns.given():
                    self._catalog.check_soon(file, now)
                for checks, file in enumerate(self._catalog.due(now), start=1):
                    try:
                        self._check(file, now)
                    except OSError as error:
                        self._set_back(file, error, now)
                    if checks % LOOKS_AT_ONCE == 0:
                        yield "others"
                yield from self._look_at_documents()
                yield from self._compare()
                now = self._clock.monotonic()
                if self._ready or self._inflaters.next <= now:
                    yield from self._read()
                elif not self._once:
                    wake = min(
                        self._discovery.due, self._documents_due, self._catalog.next_due,
                        self._inflaters.next, self._repeats.due,
                    )  # fmt: skip
                    yield max(SLEEP_MIN, wake - now)
                elif self._catalog.next_due > now:
                    self._forget_waiting()
                    break
        finally:
            self._descriptors.close_all()

    def reconfigure(self, config: TailConfig) -> None:
        self._catalog.config = self._desk.config = config
        self._turns.places = config.files_max
        self._inflaters.limit = config.inflating_max

    def _resume(self, files: Mapping[int, FileState]) -> None:
        """Continue the given sessions. The paths of their files are unknown until the next search finds the files."""
        for number, state in files.items():
            file = Followed.resumed(self._desk, number, state, self._clock.monotonic())
            if state.unread:
                # An earlier daemon was killed before it could close the session.
                file.handoff.end(file.location.path, "replaced")
                continue
            self._turns.take(file)
            self._catalog.add(file)

    @property
    def figures(self) -> SourceFigures:
        figures = self._figures
        figures.open = sum(file.handoff.number is not None for file in self._turns)
        figures.files = len(self._catalog) + figures.files_ended
        figures.waiting = Counter(f.phase.value for f in self._catalog if f.phase in WAITING)
        if self._inflaters.waiting:
            figures.waiting["inflating_max"] = self._inflaters.waiting
        figures.descriptors = len(self._descriptors)
        figures.raw_bytes = self._ended_bytes + sum(file.taken for file in self._turns)
        figures.behind_bytes = sum(
            file.behind for file in self._catalog if file.phase is not Phase.LEFT_OUT
        )
        return figures

    def _look_at_documents(self) -> Iterator[Wait]:
        if self._clock.monotonic() < self._documents_due:
            return
        documents = self._desk.documents
        for looks, _ in enumerate(documents.look_at_all(), start=1):
            if looks % LOOKS_AT_ONCE == 0:
                yield "others"
        self._documents_due = self._clock.monotonic() + self._catalog.idle_interval(len(documents))

    def _compare(self) -> Iterator[Wait]:
        """Perform one step in the comparison of files that no longer change."""
        if self._repeats.has_work:
            try:
                self._repeats.step()
            except OSError as error:
                self._complaints.failed(name_of(error))
            yield "others"

    def _check(self, file: Followed, now: float) -> None:
        """Check a file; decide whether to read it, end its session, or stop following it. Raise OSError on failure."""
        if self._is_left_behind(file):
            self._let_go(file)
            return
        if file.look(now):
            self._discovery.admit(file.location.path)
        if file.location.gone is not None:
            for path in self._catalog.aliases(file):
                self._discovery.admit(path)
        self._catalog.after_check(file, now)
        if file.is_undecided and self._is_judged(file) and file.other_format():
            # The file was read while its first record was incomplete. It shows another format now.
            file.begin_anew(Phase.LEFT_OUT.value, 0)
        if (
            file.location.gone is None
            and not file.has_more
            # If the file is `queued`, decompressed content may be left although all its bytes were read.
            and not file.queued
            and not self._once
        ):
            if file.phase is Phase.FOLLOWED:
                file.rest(now)
                self._repeats.settle(file, now)
                file.let_rest(now)
                return  # the most frequent case: nothing has changed
            file.let_rest(now)
        if file.phase in WAITING and (self._passes_over(file) or not self._decide(file, now)):
            return
        if not file.queued and self._is_over(file, now):
            self._end(file, now)
        elif file.phase in READ and file.location.is_readable and (file.has_more or self._once):
            self._enqueue(file)

    def _decide(self, file: Followed, now: float) -> bool:
        """Decide whether a file that was not read so far is read from now on, waits, or is left out. Raise OSError if
        the file cannot be read. Return False if it must be kept until the next check, even if it was deleted."""
        self._turns.give_back(file)
        at = file.location
        nothing = not file.size or not at.is_readable
        silent = self._once or now - at.changed_at >= self._desk.config.rest_time
        if not file.size and at.gone is None and silent:
            self._complaints.is_left_out(at.path, EMPTY)
        if nothing or self._is_left_out(file, now) or self._turns.waits(file):
            return True
        if self._turns.are_taken:
            self._turns.wait(file)
            return True
        if not self._once and (others := self._is_of_others(file)) != "no":
            return others == "yes"
        later = self._catalog.replaced(file, now)
        for other in later:
            self._discovery.admit(other.location.path)
        if later:
            # This file may be a copy of one of the files that were just found at these paths, so check those first.
            self._catalog.check_at(file, self._clock.monotonic())
            return True
        begun, waits = None, self._catalog.is_part(file, now)
        if waits is False:
            begun = self._catalog.begun_copy(file)
            waits = begun is None and self._catalog.is_copy(file, now)
        if waits is False:
            self._begin(file, begun, now)
            return True
        file.wait_for(FileEvent.MAY_BE_COPY)
        if waits is None:
            # The next check continues the comparison.
            self._catalog.check_at(file, self._clock.monotonic())
        return True

    def _passes_over(self, file: Followed) -> bool:
        """Return whether an earlier session has read this file to its end. If so, forget the file, so that no other
        file waits for it, but remember its content, so that copies are not read. Raise OSError if the file cannot be
        read."""
        path = file.location.path
        if path not in self._left_out or not file.size or not file.location.is_readable:
            return False
        if whole := file.unread_trail():
            self._catalog.remember(path, whole)
        self._figures.files_ended += 1
        self._forget(file)
        return True

    def _begin(self, file: Followed, begun: Followed | None, now: float) -> None:
        copies = self._catalog.yielding(file)
        for other in copies:
            other.reset(FileEvent.GIVEN_UP)
        if begun is None:
            ended = self._catalog.ended_like(file)
            if ended is None:
                file.phase = NEXT[FileEvent.CHOSEN][file.phase]
            else:
                file.shadow(ended)
        else:
            file.take_over(begun)
            begun.reset(FileEvent.GIVEN_UP)
            copies.append(begun)
        for other in copies:
            self._turns.give_back(other)
            self._catalog.check_at(other, now)
        self._turns.take(file)

    def _is_left_out(self, file: Followed, now: float) -> bool:
        """Return whether a file is not to be read now, because its first bytes show another format or are too few to
        show a format. Raise OSError on failure.

        The first bytes do not matter if the configuration has the file's path, or in an import. A file that shows no
        format is read, because it may be a damaged trace; if its first record is incomplete, only after
        `FIRST_RECORD_SECONDS`. A file without any record, for example with only an opening bracket, waits."""
        at = file.location
        if not self._is_judged(file):
            return False
        other = file.other_format()
        if other is None:
            waits = file.format.is_bare or now - at.changed_at < FIRST_RECORD_SECONDS
            return waits and at.gone is None and not self._once
        if other:
            file.wait_for(FileEvent.OF_OTHER_FORMAT)
            self._complaints.is_left_out(at.path, OF_OTHER_FORMAT, other)
        return bool(other)

    def _is_judged(self, file: Followed) -> bool:
        """Return whether the first bytes of a file, not the configuration, decide whether the file is read."""
        at = file.location
        return at.is_readable and not self._chosen and not self._discovery.search.is_named(at.path)

    def _is_of_others(self, file: Followed) -> Literal["no", "yes", "later"]:
        """Return "yes" if another source follows `file` or its possible original (`Catalog.claims`), so that `file`
        must get no new session. Return "later" if this source now continues an earlier session of `file` or of its
        possible original, or if it is unknown so far how much such a session has read: the caller must check again.
        Return "no" if `file` may get a new session. Raise OSError on failure."""
        at = file.location
        former = self._desk.intake.take_up(at.path, at.device, at.inode, file.head())
        if isinstance(former, str):
            file.wait_for(FileEvent.OF_OTHER_SOURCE)
            return "yes" if former == "claimed" else "later"
        if not former:
            return "no"
        # A former session may have read `file`, or another waiting file that has the inode of the session's file. This
        # session then takes over the path and descriptor of the file, because a deleted file cannot be opened again.
        nodes = ((state.facts.device, state.facts.inode) for state in former.values())
        known = {file, *filter(None, map(self._catalog.of_node, nodes))}
        waiting = [each for each in known if each.phase in WAITING]
        for each in waiting:
            self._catalog.remove(each)
            self._turns.forget(each)
            self._inflaters.forget(each)
        self._resume(former)
        for each in sorted(waiting, key=lambda each: each.location.path):
            same = self._catalog.of_node(each.location.node)
            if same is None or not same.has_read(each):
                each.known = 0
                each.reset(FileEvent.REWRITTEN)
                self._catalog.add(each)
            elif vacated := self._catalog.replace(each, same):
                self._discovery.admit(vacated)
        return "later"

    def _is_left_behind(self, file: Followed) -> bool:
        """Return whether a file still exists, but the changed patterns no longer match it."""
        at = file.location
        if at.gone is None or file.handoff.number is None or self._once:
            return False
        if self._discovery.searched_at <= at.gone_at or not self._discovery.search.covers(at.path):
            return False
        return self._catalog.at(at.path) is file and at.stands

    def _let_go(self, file: Followed) -> None:
        """Stop following a file without ending its session, so that another source can continue the session."""
        file.handoff.let_go()
        self._forget(file)

    def _is_over(self, file: Followed, now: float) -> bool:
        """Return whether to stop following a deleted or renamed file that has not grown for some time."""
        at = file.location
        if at.gone is None or now - at.changed_at < self._linger:
            return False
        if not self._once and self._discovery.searched_at <= at.gone_at:
            return False
        if file.phase in {Phase.NEW, Phase.CROWDED} and at.is_open and file.behind:
            return False  # keep the file until a check has decided whether to read it
        awaited = any(each.phase is Phase.COPY for each in self._catalog.relatives(file))
        if not (self._once or awaited) and now - at.gone_at < MISSING_LINGER and at.may_return:
            # Do not wait if a possible copy waits for the end of this file's session. For example, libovni moves a file
            # by copying it and then deleting the original.
            return False
        return at.is_unlinked or self._discovery.search.covers(at.path)

    def _end(self, file: Followed, now: float) -> None:
        """Continue the session of a deleted file with a copy, or read the file to its end. Raise OSError if that fails."""
        if self._bequeath(file, now):
            return
        if self._once or not file.location.is_missing:
            file.final = True
            self._enqueue(file)
        elif now - file.location.gone_at >= MISSING_LINGER:  # the file system seems to be unmounted
            self._let_go(file)

    def _bequeath(self, file: Followed, now: float) -> bool:
        """Continue the session of a removed file with a copy; return whether there is one. Raise OSError if that fails."""
        heir = self._catalog.heir(file, now)
        if heir is None:
            return False
        heir.take_over(file)
        self._turns.take(heir)
        self._catalog.check_at(heir, now)
        self._forget(file)
        return True

    def _read(self) -> Iterator[Wait]:
        """Read from one file or several files until about one chunk is read."""
        before = self._figures.bytes
        until = self._clock.monotonic() + READ_SECONDS
        for _ in range(READS_AT_ONCE):
            if self._figures.bytes - before >= CHUNK_MAX or self._clock.monotonic() > until:
                break
            yield "room"
            self._ready.extend(self._inflaters.begin(self._clock.monotonic()))
            if not self._ready:
                break
            file = self._ready.popleft()
            if file not in self._catalog or self._inflaters.must_wait(file):
                continue
            file.queued = False
            try:
                if file.read():
                    self._enqueue(file)
                else:
                    self._after_last_piece(file)
            except OSError as error:
                self._set_back(file, error, self._clock.monotonic())
            self._inflaters.used(file)
        yield "others"

    def _after_last_piece(self, file: Followed) -> None:
        """End or continue the session of a `final` file that was read whole. Raise OSError if a copy cannot be read."""
        if file.final:
            gone = file.location.gone
            if gone is None or not self._bequeath(file, self._clock.monotonic()):
                # If the session replaces earlier sessions, close it with the reason END_OF_FILE: views then show this
                # session instead of the earlier ones.
                replaces = self._chosen or file.location.path in self._desk.replaces
                self._close(file, gone or (END_OF_FILE if replaces else AT_REST))
        elif self._once and file.phase in READ:
            file.final = True
            self._enqueue(file)

    def _close(self, file: Followed, reason: str) -> None:
        path = file.location.path
        head = file.handoff.content.head
        if not self._once and head and not file.behind and self._desk.intake.is_awaited(path, head):
            # Stop following the file without ending its session: another source knows a possible copy of this file, and
            # can continue the session.
            self._let_go(file)
            return
        juniors = [junior for junior in self._catalog.juniors(file) if junior.size]
        copied = any(j.location.gone is None and j.location.path != path for j in juniors)
        file.close(reason, copied=copied)
        self._figures.files_ended += self._once
        self._ended_bytes += file.taken if self._once else 0
        self._forget(file)

    def _forget(self, file: Followed) -> None:
        """Remove a file from the catalog. Let the files that wait because they may be copies of it be checked soon."""
        now = self._clock.monotonic()
        waiting = self._catalog.waiting(file)
        self._catalog.remove(file)
        file.location.close()
        self._repeats.forget(file)
        self._turns.forget(file)
        self._inflaters.forget(file)
        for other in waiting:
            self._catalog.check_soon(other, now)

    def _forget_waiting(self) -> None:
        for file in list(self._catalog):
            self._figures.files_ended += 1
            self._forget(file)

    def _enqueue(self, file: Followed) -> None:
        if not file.queued:
            file.queued = True
            self._ready.append(file)
        self._inflaters.grown(file)

    def _set_back(self, file: Followed, error: OSError, now: float) -> None:
        """Count an error of a file, and check the file again after a growing delay. In an import, close the file."""
        if error.errno != errno.ENOENT:
            self._complaints.failed(name_of(error))
        if error.errno == errno.ESTALE:
            file.location.close()
        if self._once or file.final:
            self._close(file, file.location.gone or UNREADABLE)
            return
        self._catalog.after_failure(file, now)


class TailSource(Source):
    """A source that follows files. With `once`, it ends when the present files are read; `chosen` has facts about these
    files."""

    def __init__(
        self,
        name: str,
        config: TailConfig,
        clock: Clock,
        *,
        once: bool = False,
        chosen: Chosen | None = None,
        system: System = SYSTEM,
    ) -> None:
        """Raise FileNotFoundError if a pattern is relative and the working directory is gone."""
        shown, more = config.paths[:PATHS_SHOWN], len(config.paths[PATHS_SHOWN:])
        self.address = ", ".join(shown) + (f" and {more} more" if more else "")
        self.watch: Watch | None = None
        # The working directory may be gone when the source starts.
        self._config = structs.replace(config, paths=[*map(os.path.abspath, config.paths)])
        self._begin = partial(Watch, name, clock=clock, once=once, chosen=chosen, system=system)

    async def run(
        self, intake: FileIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.watch = self._begin(self._config, intake=intake)
        steps = self.watch.steps()
        task_status.started()
        try:
            for wait in steps:
                if wait == "room":
                    await intake.room()
                elif wait == "others":
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.sleep(wait)
        finally:
            steps.close()

    def reconfigure(self, config: TailConfig) -> None:
        self._config = config
        if self.watch is not None:
            self.watch.reconfigure(config)

    def figures(self) -> SourceFigures:
        return SourceFigures() if self.watch is None else self.watch.figures
