"""The collector's side of files: real watches, which take their steps in a world, before the simulated log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import LedgerConfig, TailConfig
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import FileFacts, FileState, Loss, OpenInfo, encode
from tailrace.sources.tail.watch import Watch
from tailrace.spool.entry import EntryKind, pack_document
from tailrace.units import Duration
from tests.ingest.log import Log
from tests.simulation import facts
from tests.simulation.traces import TRACES
from tests.simulation.tree import Tree
from tests.simulation.world import MS, SECOND, World

OTHERS, FULL = MS // 10, 10 * MS
"""How long others have their turn, and how long a full disk is waited for."""
REST = 20.0
PLACE = "/traces"
"""What stands in the log for the tree's directory, whose own name is another in each run."""


class FilesAround(NamedTuple):
    """What a collector follows in every life."""

    tree: Tree
    formats: list[str]
    config: facts.Files
    digest: hashlib.blake2b
    """Of all that is handed on."""


class Host(NamedTuple):
    """What a life of the collector has for its sources of files."""

    clock: Clock
    now: Callable[[], int]
    """Gives the log's next entries the time that it is."""
    limits: Callable[[], LedgerConfig]
    opened: Callable[[int, str], None]
    """Is told each new session and its format."""
    is_full: Callable[[], bool]
    """Whether the log has no room."""
    works_again: Callable[[], int]
    """Until when nothing is done (age, ns)."""


class Intake:
    """A `FileIntake` that appends to the simulated log."""

    def __init__(
        self,
        log: Log,
        around: FilesAround,
        format_: str,
        host: Host,
        files: dict[int, FileState],
    ) -> None:
        self._log = log
        self._host = host
        self._digest = around.digest
        self._root = str(around.tree.files)
        self._format = format_
        self._files = files

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        number = self._log.entries[-1].end if self._log.entries else 0
        named = self._named(facts)
        info = OpenInfo(
            source=self._format, format=self._format, session=f"session{number}",
            transport="tail", peer=named.path, record_max=record_max, ledger=self._host.limits(),
            file=named, group=group.replace(self._root, PLACE, 1), dialect=dialect,
            replaces=replaces,
        )  # fmt: skip
        self._append(EntryKind.OPEN, number, encode(info))
        self._host.opened(number, self._format)
        return number

    def file(self, number: int, facts: FileFacts) -> None:
        self._append(EntryKind.FILE, number, encode(self._named(facts)))

    def data(self, number: int, data: bytes) -> None:
        self._append(EntryKind.DATA, number, data)

    def document(self, number: int, name: str, data: bytes) -> None:
        for payload in pack_document(name, data):
            self._append(EntryKind.DOCUMENT, number, payload)

    def loss(self, number: int, loss: Loss) -> None:
        self._append(EntryKind.LOSS, number, encode(loss))

    def close(self, number: int, reason: str) -> None:
        self._append(EntryKind.CLOSE, number, reason.encode())

    def files(self) -> dict[int, FileState]:
        found = {}
        for number, state in self._files.items():
            path = state.facts.path.replace(PLACE, self._root, 1)
            found[number] = structs.replace(state, facts=structs.replace(state.facts, path=path))
        return found

    async def room(self) -> None:
        raise AssertionError("the world waits for room")

    def _append(self, kind: EntryKind, number: int, payload: bytes) -> None:
        self._log.add(kind, number, payload)
        self._digest.update(b"%d %d %d " % (self._log.now, kind, number) + payload)

    def _named(self, facts: FileFacts) -> FileFacts:
        return structs.replace(facts, path=facts.path.replace(self._root, PLACE, 1))


class Tail:
    """The sources of files of one life of the collector, one a format."""

    def __init__(
        self, world: World, log: Log, ingest: Ingest, files: FilesAround, host: Host
    ) -> None:
        self._world = world
        self._host = host
        self._over = False
        self._watches: dict[str, Watch] = {}
        self._steps = []
        tree, config = files.tree, files.config
        for format_ in files.formats:
            intake = Intake(log, files, format_, host, ingest.files(format_))
            keys = TailConfig(
                format=format_, paths=[str(tree.files / format_)], dialect=TRACES[format_].dialect,
                files_max=config.places, descriptors_max=config.descriptors,
                rest_time=Duration(REST),
            )  # fmt: skip
            watch = Watch(format_, keys, host.clock, intake, system=tree.system)
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
        self._host.now()
        wait = next(self._steps[which])
        delay = OTHERS if isinstance(wait, str) else max(1, round(wait * SECOND))
        world.after(delay, lambda: self._when_room(which) if wait == "room" else self._go_on(which))

    def _when_room(self, which: int) -> None:
        if self._host.is_full() and not self._over:
            self._world.after(FULL, lambda: self._when_room(which))
        else:
            self._go_on(which)
