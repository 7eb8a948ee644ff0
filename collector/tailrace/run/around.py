"""Run a collector beside a program, or beside whatever else. The program starts once the collector listens, and
runs on if the collector fails.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import trio

from tailrace import threads
from tailrace.daemon.daemon import Daemon
from tailrace.daemon.receiving import Receiving
from tailrace.errors import ConfigError, TailraceError
from tailrace.run import program
from tailrace.run.surroundings import RunToken, located, made, variables
from tailrace.sources.source import Refusal
from tailrace.store.durable import occupy_thread

SETTLE_SECONDS = 0.5
SETTLE_MOST = 60.0
LOOK_SECONDS = 0.05

OF_OTHERS = (Refusal.USER, Refusal.USER_UNKNOWN, Refusal.NO_TOKEN, Refusal.WRONG_TOKEN)

FOR_ROOM = (
    Refusal.DESCRIPTORS, Refusal.CONNECTIONS, Refusal.CONNECTIONS_OF_ADDRESS, Refusal.CONNECTIONS_OF_USER, Refusal.NEW_PEERS
)  # fmt: skip


class Collecting(ABC):
    """A collector that lives as long as something beside it. `failure` says what went wrong with it."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.refused: dict[str, int] = {}
        """Connections and datagrams of other users, by cause."""
        self.no_room: dict[str, int] = {}
        """Connections and datagrams for which there was no room, by cause."""
        self._stop = trio.Event()
        self._ready = trio.Event()

    async def main(self, daemon: Daemon) -> None:
        """Return when both have ended. Wait for what runs beside it even if the collector fails."""
        try:
            await threads.hold()
        except TailraceError as error:
            self.failure = error
            return
        async with trio.open_nursery() as beside:
            beside.start_soon(threads.occupy, partial(occupy_thread, daemon.disk.directory))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect, daemon)
                await self._ready.wait()
                if self.failure is None:
                    await self._run(daemon)
                self._stop.set()
            self.refused = _refused(daemon, OF_OTHERS)
            self.no_room = _refused(daemon, FOR_ROOM)
            beside.cancel_scope.cancel()

    async def _collect(self, daemon: Daemon) -> None:
        try:
            await daemon.run(self._stop, started=self._ready.set, beside=self._receive)
        except* Exception as group:  # noqa: BLE001 - the program runs on after any error
            self.failure = next(_leaves(group))
        finally:
            self._ready.set()

    @abstractmethod
    async def _run(self, daemon: Daemon) -> None:
        """Return when the collector is to end."""

    async def _receive(self, _: Receiving) -> None:
        """Run while sources take in."""
        await trio.sleep_forever()

    async def _settle(self, daemon: Daemon) -> None:
        """Return when nothing has arrived for a while."""
        with trio.move_on_after(SETTLE_MOST):
            before, quiet_since = _received(daemon), trio.current_time()
            while trio.current_time() - quiet_since < SETTLE_SECONDS:
                await trio.sleep(LOOK_SECONDS)
                now = _received(daemon)
                if now != before:
                    before, quiet_since = now, trio.current_time()


class Tracing(Collecting):
    """One run of a program. `status` is its exit status, or None if it did not run. `refusal` says why it
    could not be started."""

    def __init__(self, arguments: Sequence[str], traces: Path, token: RunToken) -> None:
        super().__init__()
        self.status: int | None = None
        self.refusal: ConfigError | None = None
        self._arguments = arguments
        self._traces = traces
        self._token = token

    async def _run(self, daemon: Daemon) -> None:
        sources = daemon.sources.items()
        addresses = {name: source.address for name, source in sources}
        try:
            for directory in made(self._traces):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.failure = error
            return
        store = located(daemon.config)
        given = variables(self._traces, os.environ, addresses, self._token.text, store)
        try:
            self.status = await program.run(self._arguments, given)
        except ConfigError as error:
            self.refusal = error
            return
        if self.failure is None:
            await self._settle(daemon)


def _refused(daemon: Daemon, causes: Sequence[Refusal]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for source in daemon.sources.values():
        refused = source.figures().refused
        found.update({cause: refused[cause] for cause in causes if cause in refused})
    return dict(found)


def _received(daemon: Daemon) -> tuple[int, ...]:
    figures = [source.figures() for source in daemon.sources.values()]
    return tuple(figure.bytes + figure.queue_bytes for figure in figures)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """Yield the exceptions in nested groups."""
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(inner)
        else:
            yield inner
