"""Simulate a collector: a machine on which one process after the other runs the daemon's loops."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from tailrace.config.schema import (
    MAIN,
    CollectorConfig,
    Config,
    HeartbeatConfig,
    LedgerConfig,
    SpoolConfig,
    StoreConfig,
    TcpConfig,
    UdpConfig,
)
from tailrace.errors import LockedError, StoreError
from tailrace.spool.disk import Disk as SpoolDisk
from tailrace.spool.spool import Spool
from tailrace.units import Duration, Size
from tests.simulation.clocks import HostClock
from tests.simulation.disk import Crash, Disk
from tests.simulation.life import DIRECTORY, STORE, Life, Machine
from tests.simulation.losses import Losses
from tests.simulation.network import Network
from tests.simulation.table import Table
from tests.simulation.tail import FilesAround, configured, format_of
from tests.simulation.violation import Violation, demand
from tests.simulation.watch import Watch
from tests.simulation.world import MS, SECOND, World

RESTART = 500 * MS
"""Time (ns) after which the simulated service manager restarts a process that has failed."""
STOP_MOST = 100 * SECOND
NEVER = 2**62
"""An age (ns) that no world reaches."""
MOVE_AWAY = ("or move it away to begin a new one", "move the directory away to begin a new spool")
"""Patterns for the messages of a start that is refused until an operator acts."""


class Collector:
    def __init__(
        self,
        world: World,
        network: Network,
        queue: int,
        limits: LedgerConfig,
        watch: Watch,
        spool_max: int = 2**26,
        files: FilesAround | None = None,
        *,
        batch: int,
        stalls: float,
        names_are_lost: bool = False,
        name: str = MAIN,
        store: list[dict[str, Any]] | None = None,
    ) -> None:
        """`store` has the rows of all collectors that share the table."""
        self.name = name
        self._chance = "" if name == MAIN else f"{name}/"
        self._random = world.random(f"{self._chance}collector")
        disk = Disk(world.random(f"{self._chance}disk"))
        self.machine = Machine(disk, HostClock(world), watch, files, table=Table(store))
        self.machine.names_are_lost = names_are_lost
        self.book = self.machine.book
        self.clock = self.machine.clock
        self.dropped = 0
        """Number of datagrams that the kernel dropped in all lives of the collector."""
        self.failures: list[Exception] = []
        """The errors that ended processes which no fact of the scenario had ended."""
        self.rotten: list[str] = []
        """The files in which bytes have rotted."""
        self.moved_away: list[int] = []
        """The ages (ns) at which an operator moved the spool away, because a refused start had asked for it."""
        self.life: Life | None = None
        self.losses = Losses(self, world)
        self._world = world
        self._network = network
        self._queue = queue
        self._stalls = stalls
        self._config = configuration(self._random, limits, spool_max, batch)
        self._config = replace(self._config, collector=CollectorConfig(name))
        if files is not None:
            sources = self._config.sources | configured(files)
            self._config = replace(self._config, sources=sources)
        self._without: Counter[str] = Counter()
        """By source, the number of reloads that have removed it and are not reversed yet."""
        self._renamed: dict[str, str] = {}
        """By the first name of a source, its current name."""
        self.names = {*self._config.sources}
        """All names that sources have ever had."""
        self.works_again = 0
        """Until this age (ns), the process does nothing."""
        self._stopped = False
        self._power = False
        """Whether the next crash also ends the machine, as a power cut does."""
        self._down_since = 0
        self.outages: list[tuple[int, int]] = []
        """Intervals without a process, as pairs of ages (ns)."""
        self.unfollowed: list[tuple[int, int]] = []
        """Intervals in which no source followed the files of a format, as pairs of ages (ns)."""

    @property
    def disk(self) -> Disk:
        return self.machine.disk

    @property
    def table(self) -> Table:
        return self.machine.table

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.table.rows

    def start(self) -> None:
        """Start a process if none runs."""
        if self.life is not None:
            return
        random = Random(f"{self._world.seed}/{self._chance}life/{self._world.age}")
        try:
            self.life = Life(
                self._world, self._network, self.machine, config=self._configured,
                queue=self._queue, stalls=self._stalls, random=random, ended=self._ended,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - whatever the code under test raises
            self._failed(error)
            return
        except Crash:
            self._crashed()
            return
        self.life.pause(self.works_again)
        self.outages.append((self._down_since, self._world.age))

    def start_beside(self) -> None:
        """Start a second process beside the one that runs. Raise Violation if its start is not refused."""
        for open_ in (
            partial(SpoolDisk(self.disk).lock, STORE),
            partial(Spool.open, DIRECTORY, self._config.spool, self.clock, SpoolDisk(self.disk)),
        ):
            with suppress(LockedError):
                open_()
                raise Violation("a second collector beside the first", self._world.age)

    def kill(self, *, power: bool = False, changes: int | None = None) -> None:
        """End the process, at once or after `changes` further changes to its disk. With `power`, end the machine."""
        if changes is not None:
            self.disk.crash_in, self._power = changes, power
            return
        if self.life is not None:
            self._down_since = self._world.age
            self.life.end()
            self.dropped += self.life.dropped
            self.life = None
        if power:
            self.disk.cut_power()
        else:
            self.disk.kill()

    def rot(self, file: str, share: float) -> None:
        """Let bytes rot in a closed file of the given kind, if there is such a file."""
        names = sorted(name for name in self.disk.names(DIRECTORY) if name.endswith(f".{file}"))
        names = [name for name in names if name[0].isdigit()]
        found = names[-1:] if file == "checkpoint" else names[:-1]
        if found:
            name = found[int(share * len(found))]
            self.disk.rot(DIRECTORY / name, share)
            self.rotten.append(name)

    @property
    def limits(self) -> LedgerConfig:
        return self._config.ledger

    @property
    def _configured(self) -> Config:
        sources = {
            self._renamed.get(name, name): source
            for name, source in self._config.sources.items()
            if not self._without[name]
        }
        return replace(self._config, sources=sources)

    def reload(self, limits: LedgerConfig, without: str, duration: int, renamed: str) -> None:
        """Reload the configuration: change the limits for new sessions, and remove a source for some nanoseconds.

        Then give the source the name `renamed`.
        """
        self._config = replace(self._config, ledger=limits)
        if without:
            self._without[without] += 1
            self._world.after(duration, lambda: self._add(without, renamed or without))
        self._note_unfollowed()
        if self.life is not None:
            self.life.reload(self._configured)

    def _note_unfollowed(self) -> None:
        """Record when no source follows the files of a format."""
        present = {format_of(name) for name in self._configured.sources}
        now, files = self._world.age, self.machine.files
        open_ = self.unfollowed and self.unfollowed[-1][1] == NEVER
        lacks = files is not None and not present.issuperset(files.formats)
        if lacks and not open_:
            self.unfollowed.append((now, NEVER))
        elif open_ and not lacks:
            self.unfollowed[-1] = self.unfollowed[-1][0], now

    def _add(self, source: str, name: str) -> None:
        self._without[source] -= 1
        self._renamed[source] = name
        self.names.add(name)
        self._note_unfollowed()
        if self.life is not None:
            self.life.reload(self._configured)

    @property
    def works(self) -> bool:
        """Return whether a process runs and is not suspended."""
        return self.life is not None and self.works_again <= self._world.age

    def suspend(self, duration: int) -> None:
        """Suspend the process for some nanoseconds (SIGSTOP). The kernel continues to receive."""
        self.works_again = max(self.works_again, self._world.age + duration)
        if self.life is not None:
            self.life.pause(self.works_again)

    def stop(self) -> None:
        """Stop the process in order, and start no further one."""
        self.works_again = 0
        self.disk.crash_in = self.disk.broken = None
        self.disk.empty()
        self.table.mend()
        self._without.clear()
        self.start()
        assert self.life is not None, self.failures
        self.life.go_on()
        self._world.run(SECOND)
        self.life.stop()
        until = self._world.age + STOP_MOST
        while not self._stopped:
            assert self._world.age < until, "a stop that takes for ever"
            self._world.run(SECOND)
        self.dropped += self.life.dropped

    def _ended(self, error: BaseException | None) -> None:
        if error is None:
            self._stopped = True
        elif isinstance(error, Exception):
            self._failed(error)
        else:
            self._crashed()

    def _crashed(self) -> None:
        self.kill(power=self._power)
        self._world.after(RESTART, self.start)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, Violation):
            self._world.failure = error
            return
        self.kill()
        self.losses.over(error)
        if isinstance(error, StoreError) and any(advice in str(error) for advice in MOVE_AWAY):
            self._move_away(str(error))
        else:
            self.failures.append(error)
        self._world.after(RESTART, self.start)

    def _move_away(self, advice: str) -> None:
        """Do what the message of a refused start asks for.

        Raise Violation if the refusal was wrong, or if the message does not name the place.
        """
        checkpoints = {name for name in self.disk.names(DIRECTORY) if name.endswith(".checkpoint")}
        excused = self.losses.for_good or checkpoints <= {*self.rotten}
        demand(excused, "a start that is refused too early", advice)
        demand(str(DIRECTORY) in advice, "advice that does not say what to move", advice)
        self.disk.clear(DIRECTORY)
        self.table.forget_position()
        self.book.begin_anew()
        self.moved_away.append(self._world.age)


def configuration(random: Random, limits: LedgerConfig, spool_max: int, batch: int) -> Config:
    """Return the configuration of a simulated collector. It has small segments and frequent checkpoints."""
    return Config(
        store=StoreConfig(commit_rows=batch),
        spool=SpoolConfig(
            segment_size=Size(random.choice([2**15, 2**17, 2**20])),
            max_size=Size(spool_max),
            checkpoint_interval=Duration(random.choice([1, 5, 30])),
            checkpoint_bytes=Size(random.choice([2**15, 2**18, 2**26])),
        ),
        ledger=limits,
        heartbeat=HeartbeatConfig(interval=None),
        sources={
            "udp": UdpConfig(format="heph", listen="127.0.0.1:1"),
            "tcp": TcpConfig(format="heph", listen="127.0.0.1:1"),
            "jets-udp": UdpConfig(format="jets", listen="127.0.0.1:2"),
            "jets-tcp": TcpConfig(format="jets", listen="127.0.0.1:2"),
        },
    )
