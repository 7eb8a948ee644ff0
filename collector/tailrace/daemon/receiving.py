"""Run the sources of a daemon as tasks, which start and stop independently of each other.

A source continues the open sessions of an earlier source with the same name, even of an earlier run of the daemon. Open
sessions whose source no longer exists are closed, except sessions of files (`FileSessions`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from urllib.parse import quote

import trio

from tailrace.clock import Clock
from tailrace.config.listen import parse_mode
from tailrace.config.reload import starts_anew
from tailrace.config.schema import (
    Config,
    ConnectionConfig,
    SourceConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.daemon.context import Context
from tailrace.daemon.intake import FileSessions, SourceIntake
from tailrace.daemon.loops.steps import flagged
from tailrace.daemon.loops.sync import Gate
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.ingest.machine import Ahead
from tailrace.pauses import pause
from tailrace.security.guard import guard
from tailrace.service_manager.descriptors import Descriptors
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listeners import TcpListener, UnixListener, UnixListening
from tailrace.sources.listening import Listening, Place, address_of, names_users, place_of, refusal
from tailrace.sources.source import Source
from tailrace.sources.tail.watch import Chosen, TailSource
from tailrace.sources.udp import UdpSource
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import OpenInfo


class Configured:
    """The sources of the current configuration by name, and the sources' addresses, which are kept even while a source
    does not run.

    With `once`, a source ends when it has read its input. `chosen` has, by the name of a source of files, the files
    that the source leaves out, and the sessions that a file's new session replaces. `held` are sockets that are already
    open. Raise ConfigError if a source cannot be created."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        once: bool,
        chosen: Mapping[str, Chosen],
        descriptors: Descriptors,
        held: Mapping[Place, Listening],
    ) -> None:
        self._clock = clock
        self._once = once
        self._chosen = chosen
        self.descriptors = descriptors
        self._listening = dict(held)
        self.sources: dict[str, Source] = {}
        for name, wanted in config.sources.items():
            self.renew(name, wanted)

    def renew(self, name: str, config: SourceConfig) -> None:
        self.sources[name] = self._source(name, config, self._listening)

    def give_up(self, name: str, config: SourceConfig) -> None:
        """Close the listening socket of a source that has ended, so that another socket can bind its address."""
        self._listening[place_of(name, config)].give_up()

    def in_the_way(self, now: Mapping[str, SourceConfig], config: Config) -> list[str]:
        """Return the names of the running sources whose port the new configuration uses with another host address."""
        places = {place_of(name, wanted) for name, wanted in config.sources.items()}
        wanted = {(p[0], p[2]) for p in places - self._listening.keys() if p[2]}
        have = {name: place_of(name, source) for name, source in now.items()}
        return [
            name for name, place in have.items()
            if place not in places and (place[0], place[2]) in wanted
        ]  # fmt: skip

    def prepare(
        self, config: Config, stays: Collection[str]
    ) -> tuple[dict[str, Source], dict[Place, Listening]]:
        """Create the sources of a new configuration, and bind its new addresses. Keep the running sources named in
        `stays`. Raise ConfigError with all problems, and close the new addresses, if a source cannot be created."""
        sources: dict[str, Source] = {}
        listening: dict[Place, Listening] = {}
        problems: list[str] = []
        for name, wanted in config.sources.items():
            try:
                if name in stays:
                    sources[name] = self.sources[name]
                    self._hold(name, wanted, listening)
                else:
                    sources[name] = self._source(name, wanted, listening)
                if (place := place_of(name, wanted)) in listening:
                    listening[place].open()
            except OSError as error:
                problems += refused(name, wanted, error).problems
            except ConfigError as error:
                problems += error.problems
        if problems:
            for place, held in listening.items():
                if place not in self._listening:
                    held.give_up()
            raise ConfigError(problems)
        return sources, listening

    def put(self, sources: Mapping[str, Source], listening: dict[Place, Listening]) -> None:
        """Use the sources and addresses that `prepare` returned. Close the addresses that they do not use."""
        self.sources.clear()
        self.sources.update(sources)
        gone = [held for place, held in self._listening.items() if place not in listening]
        self._listening = listening
        for held in gone:
            held.give_up()

    def close(self) -> None:
        for listening in self._listening.values():
            listening.close()

    def _source(self, name: str, config: SourceConfig, listening: dict[Place, Listening]) -> Source:
        """Return a new source, and add its address to `listening`. Raise ConfigError if it cannot be created."""
        if isinstance(config, TailConfig):
            dialects = ("auto", *FORMATS[config.format].dialects)
            if config.dialect not in dialects:
                problem = f"must be one of {', '.join(dialects)} for {config.format}"
                raise ConfigError([f"sources.{name}.dialect: {problem}"])
            chosen = self._chosen.get(name)
            try:
                return TailSource(name, config, self._clock, once=self._once, chosen=chosen)
            except FileNotFoundError:
                relative = next(path for path in config.paths if not path.startswith("/"))
                problem = "the working directory is gone, so the pattern has no place: write it with its whole path"
                raise ConfigError([f"sources.{name}.paths: {relative}: {problem}"]) from None
        if isinstance(config, UdpConfig | TcpConfig) and config.same_user and not names_users():
            problem = (
                "this host does not name the users of sockets: allow AF_NETLINK, or remove the key"
            )
            raise ConfigError([f"sources.{name}.same_user: {problem}"])
        held = self._hold(name, config, listening)
        if isinstance(config, UdpConfig):
            return UdpSource(name, config, self._clock, held)
        if isinstance(config, TcpConfig):
            guarded = guard(f"sources.{name}", config, self._clock)
            return ConnectionSource(config, TcpListener(config, guarded, held))
        unix = UnixListener(Path(config.listen), parse_mode(config.mode), held)
        return ConnectionSource(config, unix)

    def _hold(
        self, name: str, config: SourceConfig, listening: dict[Place, Listening]
    ) -> Listening | None:
        """Return the address of a source, and add it to `listening`. If the address is open already, keep using it.
        Return None for a source of files."""
        if isinstance(config, TailConfig):
            return None
        place = place_of(name, config)
        held = self._listening.get(place)
        if held is None:
            # A listener on port 0 can find the socket that the service manager kept for it only by the listener's name,
            # because its port changes at each start.
            slot = self.descriptors.slot(
                ".".join(quote(str(part), safe="/") for part in place if part),
                anywhere=place[0] == "unix" or place[2] > 0,
            )
            if isinstance(config, UnixConfig):
                held = UnixListening(Path(config.listen), parse_mode(config.mode), slot)
            else:
                held = address_of(config, slot)
        listening[place] = held
        held.kept = True
        return held


def refused(name: str, config: SourceConfig, error: BaseException) -> ConfigError:
    """Return a ConfigError that explains why a source could not start."""
    if isinstance(config, TailConfig) or not isinstance(error, OSError):
        return ConfigError([f"sources.{name}: {error}"])
    return refusal(f"sources.{name}.listen", config.listen, error)


LOOK_SECONDS = 0.5
"""Time (seconds) between two checks for peers that take too long to send a record."""

CHANGED = "source changed"
REMOVED = "source removed"

logger = logging.getLogger(__name__)


class _Task:
    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.intake: SourceIntake | None = None


class Receiving:
    """Runs each configured source as a task. `ahead` has the sessions that were open in the spool at the start."""

    def __init__(self, configured: Configured, context: Context, gate: Gate, ahead: Ahead) -> None:
        self._configured = configured
        self._context = context
        self._spool, self._gate, self._ingest, self._ahead = gate.spool, gate, gate.ingest, ahead
        self._files = FileSessions(gate)
        self._nursery: trio.Nursery
        self._tasks: dict[str, _Task] = {}
        self._left: dict[str, dict[int, OpenInfo]] = {}
        for number, info in ahead.sessions.items():
            self._left.setdefault(info.source, {})[number] = info
        self._waited_until = 0
        """Log time (ns) of the latest check at which connections waited for free space in the spool."""

    async def run(
        self, *, once: bool, ended: Callable[[], None], task_status: trio.TaskStatus[None]
    ) -> None:
        """Run all sources until cancelled. Raise ConfigError if an address cannot be bound. With `once`, call `ended`
        when each source has read its input; sessions whose source is not configured stay open."""
        configured = self._configured
        try:
            async with trio.open_nursery() as self._nursery:
                if not once:
                    self._leave_orphans()
                for name in configured.sources:
                    await self._start(name)
                # Close the sockets that were kept across a restart and that no source uses.
                configured.descriptors.close_rest()
                task_status.started()
                if once:
                    for task in list(self._tasks.values()):
                        await task.over.wait()
                    ended()
                while True:
                    await pause(LOOK_SECONDS)
                    self._cut_slow()
        finally:
            configured.close()

    async def replace(self, config: Config, *, put: Callable[[], None]) -> None:
        """Replace the sources by those of a new configuration. Call `put` to make this configuration the current one.

        A source with unchanged settings goes on without interruption. If a source cannot be created, keep the old
        sources and raise ConfigError with all problems."""
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
        self._leave_orphans()
        for name, source in sources.items():
            if name in stays:
                source.reconfigure(config.sources[name])
            else:
                await self._start(name)

    def _cut_slow(self) -> None:
        """Disconnect peers that take longer than their source's `record_timeout` to send one record. Do not count the
        time in which sources waited for space in the spool, or received bytes were not decoded."""
        time = self._spool.timeline.now()
        if self._gate.closed:
            self._waited_until = time
        # Bytes that are not decoded yet may contain the end of a record, so use the time of the last decoded entry.
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

    def _leave_orphans(self) -> None:
        """Close the sessions of sources that were removed or have another format or transport, but not those of
        files."""
        for name, sessions in self._left.items():
            config = self._context.config.sources.get(name)
            for number, info in list(sessions.items()):
                kind = config and (config.format, config.__struct_config__.tag)
                if kind != (info.format, info.transport):
                    if info.file:
                        self._files.let_go(number, info)
                    else:
                        self._spool.append(EntryKind.CLOSE, number, REMOVED.encode())
                    del sessions[number]

    async def _start(self, name: str) -> None:
        """Start a source, and return when it receives. Raise ConfigError if its address cannot be bound."""
        config, source = self._context.config.sources[name], self._configured.sources[name]
        try:
            await self._nursery.start(self._receive, name, source)
        except* OSError as errors:
            raise refused(name, config, errors.exceptions[0]) from errors
        logger.info("source %s: %s %s", name, config.format, source.address, extra={"source": name})

    async def _stop(self, name: str, reason: str) -> None:
        """Stop a source, and return when it has read everything that peers had sent. Close its sessions with `reason`."""
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
                    # The read positions of files are known when all present entries are decoded. Files lose no bytes
                    # meanwhile, so the daemon's start does not wait for this.
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    end = self._spool.end
                    self._spool.hurry()
                    while self._ingest.position < end:
                        await flagged(self._gate.turned)
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
