"""Take names away that the running collector needs, and check what happens then.

A collector whose lock is gone creates it again, and lets no other collector start. A collector that cannot continue
stops answering (`life.ROUND`), commits what it still can, and soon ends with an error that names the loss. The next
start uses what is then under the name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import LostError
from tailrace.spool.segment import segment_first
from tests.simulation import facts
from tests.simulation.life import DIRECTORY, ROUND, STORE
from tests.simulation.table import Table
from tests.simulation.violation import Violation, demand
from tests.simulation.world import SECOND, World

if TYPE_CHECKING:
    from tests.simulation.collector import Collector

SOON = 25 * SECOND
"""Time (ns) that is longer than a collector takes to end, even if its table does not answer for `DOWN_MOST` or its
process is suspended.
"""
DOWN_MOST = 10 * SECOND
SUSPENDED_MOST = 3 * SECOND


class Losses:
    """The losses of a collector, one after the other.

    `fatal` counts those after which it cannot continue, `ends` the processes that they ended.
    """

    def __init__(self, collector: Collector, world: World) -> None:
        self.fatal = self.ends = 0
        self.for_good = False
        """Whether a start did not find data that an earlier process had written."""
        self.moved: dict[int, int] = {}
        """By program, the number of events that it had emitted when the newest table was lost for good."""
        self._collector = collector
        self._world = world
        self._asides = 0
        self._under_way: tuple[facts.LoseName, Path, Path | None, Table] | None = None

    def happen(self, fact: facts.LoseName, sent: dict[int, int]) -> None:
        """Take a name away, if the collector runs and has it.

        `sent` is the number of events that the programs have emitted.
        """
        collector, path = self._collector, self._path(fact.what)
        if collector.life is None or self._under_way is not None or path is None:
            return
        self._asides += 1
        aside = None if fact.how == "removed" else Path(f"/aside-{self._asides}")
        collector.disk.take_away(path, aside)
        if fact.how == "replaced":
            assert aside is not None
            collector.disk.copy(aside, path)
        if fact.beside:
            collector.start_beside()
        if not fact.is_fatal:
            if "lock" in fact.what:
                self._world.after(SOON, lambda: self._check_made_again(path))
            return
        self.fatal += 1
        self._under_way = fact, path, aside, collector.table
        collector.machine.lost_at = self._world.age
        if fact.what == "store":
            collector.table.lost = True
            collector.machine.table = Table()
            self.moved = self.moved if fact.undone else sent
        if fact.what in {"segment", "closed"}:
            looked = max(self._world.age, collector.works_again) + ROUND - 1
            self._world.at(looked, lambda: self._excuse_if_released(path))
        lost = self._under_way
        self._world.after(
            SOON, lambda: demand(self._under_way is not lost, "goes on without its names", fact)
        )

    def over(self, error: Exception) -> None:
        """A process has ended with an error. Reverse those losses that must be reversed before the next start."""
        machine = self._collector.machine
        if self._under_way is None:
            return
        fact, path, aside, table = self._under_way
        self._under_way = None
        assert machine.lost_at is not None
        self._collector.outages.append((machine.lost_at, self._world.age))
        machine.lost_at = None
        self.ends += 1
        if not isinstance(error, LostError) or str(path) not in str(error):
            self._world.failure = Violation("a loss that is not named", (fact, repr(error)))
        if fact.undone and aside is not None:
            self._collector.disk.take_away(path)
            self._collector.disk.take_away(aside, path)
            table.lost, machine.table = False, table
        elif fact.is_for_good:
            self.for_good = True
            self._collector.moved_away.append(self._world.age)

    def _excuse_if_released(self, path: Path) -> None:
        """Record that the collector continues after the loss of a segment, because it had released the segment before
        it checked the names.
        """
        life = self._collector.life
        mine = self._under_way is not None and self._under_way[1] == path
        if mine and life is not None and life.loops.spool.begin > segment_first(path):
            self._under_way = self._collector.machine.lost_at = None
            self.fatal -= 1

    def _check_made_again(self, path: Path) -> None:
        """Raise Violation if a lock that was taken away is not there again, unless the collector has a reason to end."""
        there = self._collector.disk.exists(path) or self._under_way is not None
        demand(there or self._collector.life is None, "a lock that is not made again", path)

    def _path(self, what: str) -> Path | None:
        """Return the path that a loss takes away. Return None if there is no such file or directory."""
        names = sorted(name for name in self._collector.disk.paths() if name.parent == DIRECTORY)
        segments = [path for path in names if path.suffix == ".segment" and path.name[0].isdigit()]
        paths = {
            "lock": DIRECTORY / "lock",
            "store-lock": STORE / "lock",
            "spare": DIRECTORY / "next.segment",
            "segment": segments[-1] if segments else None,
            "closed": segments[0] if len(segments) > 1 else None,
            "spool": DIRECTORY,
            "store": STORE,
        }
        path = paths[what]
        return path if path is not None and self._collector.disk.exists(path) else None
