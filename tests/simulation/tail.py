"""The collector's side of files: real watches, which take their steps in a world, before the simulated log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.ingest.file_state import FileState
from tailrace.ingest.payloads import FileFacts
from tailrace.sources.tail.watch import Watch
from tailrace.spool.entry import EntryKind
from tailrace.units import Duration
from tests.simulation import facts, intakes
from tests.simulation.traces import TRACES
from tests.simulation.tree import Tree
from tests.simulation.world import MS, SECOND, World

OTHERS, FULL = MS // 10, 10 * MS
"""How long others have their turn, and how long a full disk is waited for."""
REST = 20.0
PLACE = "/traces"
"""The text in the log for the tree's directory, whose own name is another in each run."""


class FilesAround(NamedTuple):
    """The paths that a collector follows in every life."""

    tree: Tree
    formats: list[str]
    config: facts.Files
    digest: hashlib.blake2b
    """The share of all that is handed on."""


class Intake(intakes.Intake):
    """An intake whose files are named as if their tree always stood at the same place."""

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

    def files(self, follows: Callable[[int, int], bool]) -> dict[int, FileState]:
        return self._placed(super().files(follows))

    def take_up(self, path: str, device: int, inode: int) -> dict[int, FileState] | None:
        found = super().take_up(path.replace(self._root, PLACE, 1), device, inode)
        return None if found is None else self._placed(found)

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
    """The things that a life of the collector has for its sources of files."""

    clock: Clock
    is_full: Callable[[], bool]
    """Whether the log has no room."""
    works_again: Callable[[], int]
    """Until when nothing is done (age, ns)."""
    attempt: Callable[[Callable[[], None]], None]
    """Calls, and takes what is raised for the end of the process."""


def configured(around: FilesAround) -> dict[str, TailConfig]:
    """Return the sources of files, by name."""
    config = around.config
    return {
        format_: TailConfig(
            format=format_, paths=[str(around.tree.files / format_)],
            dialect=TRACES[format_].dialect, files_max=config.places,
            descriptors_max=config.descriptors, rest_time=Duration(REST),
        )
        for format_ in around.formats
    }  # fmt: skip


class Tail:
    """The sources of files of one life of the collector, one a format."""

    def __init__(
        self, world: World, files: FilesAround, intakes: Mapping[str, Intake], host: Host
    ) -> None:
        self._world = world
        self._host = host
        self._over = False
        self._watches: dict[str, Watch] = {}
        self._steps = []
        files.tree.forgotten()
        for format_, keys in configured(files).items():
            watch = Watch(format_, keys, host.clock, intakes[format_], system=files.tree.system)
            self._watches[format_] = watch
            self._steps.append(watch.steps())
            self._go_on(len(self._steps) - 1)

    def without_place(self, format_: str) -> int:
        """Return how many files of a source the collector says it does not follow for want of a place."""
        return self._watches[format_].figures.waiting.get("files_max", 0)

    def end(self) -> None:
        self._over = True
        for steps in self._steps:
            steps.close()

    def _go_on(self, which: int) -> None:
        """Take the next step of a watch, and come again when it says."""
        if self._over:
            return
        world, works_again = self._world, self._host.works_again()
        if world.age < works_again:
            world.at(works_again, lambda: self._go_on(which))
            return
        self._host.attempt(lambda: self._step(which))

    def _step(self, which: int) -> None:
        world = self._world
        wait = next(self._steps[which])
        delay = OTHERS if isinstance(wait, str) else max(1, round(wait * SECOND))
        world.after(delay, lambda: self._when_room(which) if wait == "room" else self._go_on(which))

    def _when_room(self, which: int) -> None:
        if self._host.is_full() and not self._over:
            self._world.after(FULL, lambda: self._when_room(which))
        else:
            self._go_on(which)
