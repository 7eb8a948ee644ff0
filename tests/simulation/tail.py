"""Simulate the collector's side of files: real watches run their steps in a world, and write to the simulated log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from typing import Literal, NamedTuple

from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.sources.source import FileFinder
from tailrace.sources.tail.watch import Wait, Watch
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileState, OpenInfo
from tailrace.units import Duration
from tests.simulation import facts, intakes
from tests.simulation.traces import TRACES
from tests.simulation.tree import Tree
from tests.simulation.world import MS, SECOND, World

OTHERS, FULL = MS // 10, 10 * MS
"""How long (ns) other tasks run in between, and how long a source waits for a full disk."""
REST = 20.0
PLACE = "/traces"
"""Text that stands in the log for the tree's directory, because the directory has another name in each run."""


class FilesAround(NamedTuple):
    """The paths that a collector follows in every life."""

    tree: Tree
    formats: list[str]
    config: facts.Files
    digest: hashlib.blake2b
    """The part of the digest for everything that is passed on."""


class Placed(NamedTuple):
    """A source of files that takes paths as they are in the log."""

    finder: FileFinder
    root: str

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        return self.finder.claims(path.replace(PLACE, self.root, 1), device, inode, head)

    def awaits(self, path: str, head: bytes) -> bool:
        return self.finder.awaits(path.replace(PLACE, self.root, 1), head)


class Intake(intakes.Intake):
    """An intake that records files as if their tree always had the same place."""

    def placed(self, around: FilesAround) -> None:
        self._around = around
        self._root = str(around.tree.files)

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        group = group.replace(self._root, PLACE, 1)
        return super().open_file(
            self._named(facts), group, record_max=record_max, dialect=dialect, replaces=replaces
        )

    def file(self, number: int, facts: FileFacts) -> None:
        super().file(number, self._named(facts))

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        return self._placed(super().files(Placed(finder, self._root)))

    def is_awaited(self, path: str, head: bytes) -> bool:
        return super().is_awaited(path.replace(self._root, PLACE, 1), head)

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | Literal["claimed", "later"]:
        found = super().take_up(path.replace(self._root, PLACE, 1), device, inode, head)
        return found if isinstance(found, str) else self._placed(found)

    def _placed(self, files: dict[int, FileState]) -> dict[int, FileState]:
        found = {}
        for number, state in files.items():
            path = state.facts.path.replace(PLACE, self._root, 1)
            found[number] = structs.replace(state, facts=structs.replace(state.facts, path=path))
        return found

    async def room(self) -> None:
        raise AssertionError("the world waits for room")

    def _append(self, kind: EntryKind, number: int, payload: bytes) -> None:
        super()._append(kind, number, payload)
        self._around.digest.update(b"%d %d %d " % (self.now(), kind, number) + payload)

    def _named(self, facts: FileFacts) -> FileFacts:
        return structs.replace(facts, path=facts.path.replace(self._root, PLACE, 1))


class Host(NamedTuple):
    """The things that a life of the collector offers to its sources of files."""

    clock: Clock
    is_full: Callable[[], bool]
    """Whether the log has no room."""
    works_again: Callable[[], int]
    """Until this age (ns), the process does nothing."""
    attempt: Callable[[Callable[[], None]], None]
    """Function that calls another one. It treats what is raised as the end of the process."""


def configured(around: FilesAround) -> dict[str, TailConfig]:
    """Return the configured sources of files, by name."""
    return {
        name: _configuration(around, format_)
        for format_ in around.formats
        for name in sources_of(format_, around.config)
    }


def _configuration(around: FilesAround, format_: str) -> TailConfig:
    return TailConfig(
        format=format_, paths=[str(around.tree.files / format_)],
        dialect=TRACES[format_].dialect, files_max=around.config.places,
        descriptors_max=around.config.descriptors, rest_time=Duration(REST),
    )  # fmt: skip


def sources_of(format_: str, config: facts.Files) -> list[str]:
    """Return the names of the sources that follow the files of a format."""
    return [format_, *(f"{format_}-{number}" for number in range(2, config.sources + 1))]


def format_of(source: str) -> str:
    """Return the format of a source of files."""
    return source.partition("-")[0]


class Run(NamedTuple):
    """A source that runs."""

    watch: Watch
    steps: Generator[Wait, None, None]
    intake: Intake


class Tail:
    """The sources of files of one life of the collector."""

    def __init__(self, world: World, files: FilesAround, host: Host) -> None:
        self._world = world
        self._files = files
        self._host = host
        self._runs: dict[str, Run] = {}
        self._over = False

    def begin(self, name: str, intake: Intake) -> None:
        """Start a source."""
        self._files.tree.forgotten()
        keys, system = _configuration(self._files, format_of(name)), self._files.tree.system
        watch = Watch(name, keys, self._host.clock, intake, system=system)
        run = self._runs[name] = Run(watch, watch.steps(), intake)
        self._go_on(run)

    def stop(self, name: str) -> dict[int, OpenInfo]:
        """Stop a source. Return the sessions that it leaves open."""
        run = self._runs.pop(name)
        run.steps.close()
        self._files.tree.forgotten()
        return run.intake.open_now

    def without_place(self, format_: str) -> int:
        """Return how many files of a format the collector states that it does not follow, because it lacks places."""
        mine = (run.watch for name, run in self._runs.items() if format_of(name) == format_)
        return sum(watch.figures.waiting.get("files_max", 0) for watch in mine)

    def end(self) -> None:
        self._over = True
        for run in self._runs.values():
            run.steps.close()

    def _go_on(self, which: Run) -> None:
        """Run the next step of a watch, and continue at the time that the watch returns."""
        if not self._goes_on(which):
            return
        world, works_again = self._world, self._host.works_again()
        if world.age < works_again:
            world.at(works_again, lambda: self._go_on(which))
            return
        self._host.attempt(lambda: self._step(which))

    def _goes_on(self, which: Run) -> bool:
        return not self._over and which in self._runs.values()

    def _step(self, which: Run) -> None:
        world = self._world
        wait = next(which.steps)
        delay = OTHERS if isinstance(wait, str) else max(1, round(wait * SECOND))
        world.after(delay, lambda: self._when_room(which) if wait == "room" else self._go_on(which))

    def _when_room(self, which: Run) -> None:
        if self._host.is_full() and self._goes_on(which):
            self._world.after(FULL, lambda: self._when_room(which))
        else:
            self._go_on(which)
