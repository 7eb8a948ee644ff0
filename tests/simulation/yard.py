"""Hold the files of a scenario, if it has any: their tree, the programs that write them, and the sources that follow
them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from tests.simulation import facts
from tests.simulation.facts import Scenario
from tests.simulation.tail import FilesAround
from tests.simulation.tree import Tree
from tests.simulation.world import World
from tests.simulation.writers import File, Writers, Written


class Yard:
    def __init__(self, world: World, scenario: Scenario) -> None:
        begun = [fact for fact in scenario.facts if isinstance(fact, facts.BeginTrace)]
        self.around: FilesAround | None = None
        """The files of the scenario; None if it has none."""
        self._writers: Writers | None = None
        if begun:
            config = scenario.files
            tree = Tree(world, tick=config.tick, reuses=config.reuses)
            formats = sorted({fact.format for fact in begun})
            self.around = FilesAround(tree, formats, config, blake2b(digest_size=16))
            self._writers = Writers(world, tree)

    def give_clock(self, wall: Callable[[], int]) -> None:
        """Take the times of files from a wall clock (Unix ns)."""
        if self.around:
            self.around.tree.wall = wall

    @property
    def formats(self) -> list[str]:
        return self.around.formats if self.around else []

    @property
    def files(self) -> dict[int, File]:
        """Return what was written, by trace."""
        return self._writers.files if self._writers else {}

    @property
    def documents(self) -> dict[tuple[str, str], Written]:
        """Return which program wrote each document last, by format and path."""
        return self._writers.documents if self._writers else {}

    @property
    def trace(self) -> str:
        """Return a digest of everything that was read; empty without files."""
        return self.around.digest.hexdigest() if self.around else ""

    def happen(self, fact: facts.OfTrace) -> None:
        assert self._writers
        self._writers.happen(fact)

    def ends(self, file: File) -> list[int]:
        """Return the ages (ns) at which processes with the process number of a file ended."""
        return self._writers.ends(file) if self._writers else []

    def close(self) -> None:
        if self._writers and self.around:
            self._writers.close()
            self.around.tree.close()
