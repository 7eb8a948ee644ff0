"""The sources of a running daemon, by name: each is a task that starts and ends while the others go on.

A source that starts goes on with the sessions that an earlier life of it has left open, in this
daemon or in one before. A session that no source goes on with is ended, unless it reads a file (`file_sessions`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from tailrace.config.reload import starts_anew
from tailrace.config.schema import Config, ConnectionConfig, SourceConfig, TailConfig
from tailrace.daemon.configured import Configured, refused
from tailrace.daemon.context import Context
from tailrace.daemon.file_sessions import FileSessions
from tailrace.daemon.gate import Gate
from tailrace.daemon.intake import SourceIntake
from tailrace.errors import ConfigError
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.payloads import OpenInfo
from tailrace.rhythm import pause
from tailrace.sources.source import Source
from tailrace.spool.entry import EntryKind

LOOK_SECONDS = 0.5
"""How often peers are looked at that take long over one record."""

DECODED_SECONDS = 0.02
"""How often a file source that starts looks whether the log is decoded that far."""

CHANGED = "source changed"
REMOVED = "source removed"

logger = logging.getLogger(__name__)


class _Task:
    """The task of a source that takes in; `intake` from when it does."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.intake: SourceIntake | None = None


class Receiving:
    """The tasks of the configured sources, in a nursery.

    Entries that the log holds already need not be decoded yet: the log ends at `ahead`. `ended` is called
    when no source has anything more to come."""

    def __init__(
        self,
        configured: Configured,
        context: Context,
        gate: Gate,
        ahead: Ahead,
        *,
        ended: Callable[[], None],
        nursery: trio.Nursery,
    ) -> None:
        self._configured = configured
        self._context = context
        self._spool, self._gate, self._ingest, self._ahead = gate.spool, gate, gate.ingest, ahead
        self._files = FileSessions(gate)
        self._ended = ended
        self._nursery = nursery
        self._tasks: dict[str, _Task] = {}
        self._left: dict[str, dict[int, OpenInfo]] = {}
        """Open sessions of sources that do not run, by source and number."""
        for number, info in ahead.sessions.items():
            self._left.setdefault(info.source, {})[number] = info
        self._waited_until = 0
        """When sources were last seen to wait for room (Unix ns)."""

    async def start_all(self) -> None:
        """Start every source. Raise ConfigError for an address that cannot be had."""
        for name in self._configured.sources:
            await self._start(name)
        self._configured.close_rest()

    async def replace(self, config: Config, *, put: Callable[[], None]) -> None:
        """Replace the sources by those of another configuration, which `put` makes current. Sources that are
        equal in both go on undisturbed.

        Raise ConfigError, with every problem, if one cannot be had: then all is as it was."""
        configured, now = self._configured, self._context.config.sources
        stays = {
            name for name, wanted in config.sources.items()
            if name in self._tasks and not starts_anew(now[name], wanted)
        }  # fmt: skip
        in_the_way = configured.in_the_way(now, config)
        first = [name for name in in_the_way if name in self._tasks and name not in stays]
        for name in first:
            await self._stop(name, CHANGED)
            configured.give_up(name, now[name])
        try:
            sources, listening = configured.prepare(config, stays)
        except ConfigError:
            for name in first:
                configured.renew(name, now[name])
                await self._start(name)
            raise
        for name in self._tasks.keys() - stays:
            await self._stop(name, CHANGED if name in sources else REMOVED)
        put()
        configured.put(sources, listening)
        self.leave_orphans()
        for name, source in sources.items():
            if name in stays:
                source.reconfigure(config.sources[name])
            else:
                await self._start(name)

    def cut_slow(self) -> None:
        """Disconnect peers that take longer over one record than their source allows.

        Time in which sources wait for room does not count, nor does time in which the rest of the record may have
        waited in the spool."""
        time = self._spool.timeline.now()
        if self._gate.closed:
            self._waited_until = time
        caught_up = self._ingest.position == self._spool.end
        now = time if caught_up else self._ingest.now
        sources = self._context.config.sources.items()
        timeouts = {n: c.record_timeout.ns for n, c in sources if isinstance(c, ConnectionConfig)}
        for timeout in set(timeouts.values()):
            if time - self._waited_until < timeout:
                continue
            for number in self._ingest.slow(now - timeout):
                name = self._ingest.source_of(number)
                if timeouts.get(name) == timeout:
                    self._configured.sources[name].cut(number, "slow")

    def leave_orphans(self) -> None:
        """End the sessions whose source is gone, or has another format or transport now. Sessions of files
        wait for another source."""
        for name, sessions in self._left.items():
            config = self._context.config.sources.get(name)
            for number, info in list(sessions.items()):
                if config is None or (config.format, _type(config)) != (
                    info.format,
                    info.transport,
                ):
                    if info.file:
                        self._files.let_go(number, info)
                    else:
                        self._gate.append(EntryKind.CLOSE, number, REMOVED.encode())
                    del sessions[number]

    async def _start(self, name: str) -> None:
        """Return once the source takes in. Raise ConfigError for an address that cannot be had."""
        config, source = self._context.config.sources[name], self._configured.sources[name]
        try:
            await self._nursery.start(self._receive, name, source)
        except* OSError as errors:
            raise refused(name, config, errors.exceptions[0]) from errors
        logger.info("source %s: %s %s", name, config.format, source.address, extra={"source": name})

    async def _stop(self, name: str, reason: str) -> None:
        """Return once the source has taken in what was sent to it, and has ended. The sessions that
        end with it end for this reason."""
        task = self._tasks[name]
        if task.intake is not None:
            task.intake.stopped = reason
        task.scope.cancel()
        await task.over.wait()

    async def _receive(
        self, name: str, source: Source, *, task_status: trio.TaskStatus[None]
    ) -> None:
        left = self._left.pop(name, {})
        task = self._tasks[name] = _Task()
        config = self._context.config.sources[name]
        try:
            with task.scope:
                if isinstance(config, TailConfig):
                    # How far its files are read is known once the log is decoded up to here. They can wait.
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await self._decoded(self._spool.end)
                task.intake = SourceIntake(
                    name, config.format, self._context, self._gate,
                    files=self._files, ahead=self._ahead, earlier=left,
                )  # fmt: skip
                await source.run(task.intake, task_status=task_status)
        finally:
            self._left[name] = task.intake.open_now if task.intake else left
            self._files.end(name)
            del self._tasks[name]
            task.over.set()
        if not task.scope.cancelled_caught and not self._tasks:
            self._ended()

    async def _decoded(self, position: int) -> None:
        """Return once the log is decoded up to a position."""
        while self._ingest.position < position:  # noqa: ASYNC110 - entries come in from many sides
            await trio.sleep(DECODED_SECONDS)


async def receive(
    configured: Configured,
    context: Context,
    gate: Gate,
    ahead: Ahead,
    *,
    once: bool,
    ended: Callable[[], None],
    task_status: trio.TaskStatus[Receiving],
) -> None:
    """Take in until cancelled. Raise ConfigError for an address that cannot be had.

    With `once`, sessions that other sources have left open stay open, and nothing more comes where there is no source."""
    try:
        async with trio.open_nursery() as nursery:
            receiving = Receiving(configured, context, gate, ahead, ended=ended, nursery=nursery)
            if not once:
                receiving.leave_orphans()
            await receiving.start_all()
            task_status.started(receiving)
            if once and not configured.sources:
                ended()
            while True:
                await pause(LOOK_SECONDS)
                receiving.cut_slow()
    finally:
        configured.close()


def _type(config: SourceConfig) -> str:
    return str(config.__struct_config__.tag)
