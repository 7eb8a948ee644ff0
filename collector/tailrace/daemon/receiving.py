"""The sources of a running daemon, by name: each is a task that starts and ends while the others go on.

A source that starts goes on with the sessions that an earlier life of it has left open, in this
daemon or in one before. What no source goes on with is ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from tailrace.daemon.current import Current
from tailrace.daemon.intake import Gate, SourceIntake
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.machine import Ingest, Rejected
from tailrace.ingest.state import OpenInfo
from tailrace.security.guard import guard
from tailrace.service_manager.descriptors import Descriptors, Slot
from tailrace.sources.address import refusal
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listening import Listening
from tailrace.sources.places import Place, address_of, place_of
from tailrace.sources.source import Source
from tailrace.sources.tail import Chosen, TailSource
from tailrace.sources.tcp import TcpListener
from tailrace.sources.udp import UdpSource
from tailrace.sources.unix import UnixListener, UnixListening
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool

LOOK_SECONDS = 0.5
"""How often peers are looked at that take long over one record."""

DECODED_SECONDS = 0.02
"""How often a file source that starts looks whether the log is decoded that far."""

CHANGED = "source changed"
REMOVED = "source removed"

logger = logging.getLogger(__name__)


class Running:
    """The task of a source that takes in; `intake` from when it does."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.intake: SourceIntake | None = None


class Receiving:
    """`sources` are those of the configuration, whether they take in or not.

    With `once`, they are there for what they find now and no longer: sessions that other sources have
    left open are not their business, and those of files read what is `chosen`. `descriptors` keep
    their sockets while no process has them; sockets in `held` are there already."""

    def __init__(
        self,
        current: Current,
        clock: Clock,
        *,
        once: bool,
        chosen: Chosen | None,
        descriptors: Descriptors,
        held: Mapping[Place, Listening],
    ) -> None:
        self.sources: dict[str, Source] = {}
        self._current = current
        self._descriptors = descriptors
        self._clock = clock
        self._once = once
        self._chosen = chosen
        self._listening = dict(held)
        self._running: dict[str, Running] = {}
        self._left: dict[str, dict[int, OpenInfo]] = {}
        """The sessions that sources have left open which do not run, by name and number."""
        self._waited_until = 0
        """When sources were last seen to wait for room (Unix ns)."""
        for name, config in current.config.sources.items():
            self.sources[name] = self._source(name, config, self._listening)

    async def run(
        self,
        spool: Spool,
        gate: Gate,
        ingest: Ingest,
        ahead: Ahead,
        *,
        ended: Callable[[], None],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take in until cancelled; `ended` is called when no source has anything more to come. What the
        log holds already need not be decoded yet: its end is `ahead`. Raise ConfigError for an address
        that cannot be had."""
        self._spool, self._gate, self._ingest, self._ended = spool, gate, ingest, ended
        self._ahead = ahead
        for number, info in ahead.sessions.items():
            self._left.setdefault(info.source, {})[number] = info
        if not self._once:
            self._close_orphans()
        try:
            async with trio.open_nursery() as self._nursery:
                for name in self.sources:
                    await self._start(name)
                self._descriptors.close_rest()
                task_status.started()
                while True:
                    await trio.sleep(LOOK_SECONDS)
                    self._cut_slow()
        finally:
            for listening in self._listening.values():
                listening.close()

    async def replace(self, config: Config, *, put: Callable[[], None]) -> None:
        """Have the sources of another configuration; `put` makes it the current one. Sources that are
        the same in both go on without noticing.

        Raise ConfigError, with every problem, if one cannot be had: then all is as it was."""
        now = self._current.config.sources
        stays = {
            name for name, wanted in config.sources.items()
            if name in self._running and not starts_anew(now[name], wanted)
        }  # fmt: skip
        first = [name for name in self._in_the_way(config) if name not in stays]
        for name in first:
            await self._stop(name, CHANGED)
            self._listening[place_of(name, now[name])].give_up()
        try:
            sources, listening = self._prepare(config, stays)
        except ConfigError:
            for name in first:
                self.sources[name] = self._source(name, now[name], self._listening)
                await self._start(name)
            raise
        for name in self._running.keys() - stays:
            await self._stop(name, CHANGED if name in sources else REMOVED)
        put()
        self.sources.clear()
        self.sources.update(sources)
        gone = [held for place, held in self._listening.items() if place not in listening]
        self._listening = listening
        for held in gone:
            held.give_up()
        self._close_orphans()
        for name, source in sources.items():
            if name in stays:
                source.reconfigure(config.sources[name])
            else:
                await self._start(name)

    def cut(self, rejected: Rejected) -> None:
        """Be rid of a session's peer."""
        source = self.sources.get(self._ingest.source_of(rejected.number))
        if source is not None:
            source.cut(rejected.number, rejected.why)

    async def _start(self, name: str) -> None:
        """Return once the source takes in. Raise ConfigError for an address that cannot be had."""
        config = self._current.config.sources[name]
        try:
            await self._nursery.start(self._receive, name, self.sources[name])
        except* OSError as errors:
            raise _refusal(name, config, errors.exceptions[0]) from errors
        address = self.sources[name].address
        logger.info("source %s: %s %s", name, config.format, address, extra={"source": name})

    async def _stop(self, name: str, reason: str) -> None:
        """Return once the source has taken in what was sent to it, and has ended. The sessions that
        end with it end for this reason."""
        running = self._running[name]
        if running.intake is not None:
            running.intake.stopped = reason
        running.scope.cancel()
        await running.over.wait()

    async def _receive(
        self, name: str, source: Source, *, task_status: trio.TaskStatus[None]
    ) -> None:
        left = self._left.pop(name, {})
        running = self._running[name] = Running()
        config = self._current.config.sources[name]
        try:
            with running.scope:
                if isinstance(config, TailConfig):
                    # How far its files are read is known once the log is decoded up to here. They can wait.
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await self._decoded(self._spool.end)
                running.intake = SourceIntake(
                    name, config.format, self._current, earlier=left,
                    spool=self._spool, gate=self._gate, ingest=self._ingest, ahead=self._ahead,
                    clock=self._clock,
                )  # fmt: skip
                await source.run(running.intake, task_status=task_status)
        finally:
            self._left[name] = running.intake.open_now if running.intake else left
            del self._running[name]
            running.over.set()
        if not running.scope.cancelled_caught and not self._running:
            self._ended()

    async def _decoded(self, position: int) -> None:
        """Return once the log is decoded up to a position."""
        while self._ingest.position < position:  # noqa: ASYNC110 - entries come in from many sides
            await trio.sleep(DECODED_SECONDS)

    def _in_the_way(self, config: Config) -> list[str]:
        """The sources that have a port of which another configuration wants another address."""
        places = {place_of(name, wanted) for name, wanted in config.sources.items()}
        wanted = {(p[0], p[2]) for p in places - self._listening.keys() if p[2]}
        have = {name: place_of(name, c) for name, c in self._current.config.sources.items()}
        return [
            name for name, place in have.items()
            if name in self._running and place not in places and (place[0], place[2]) in wanted
        ]  # fmt: skip

    def _prepare(
        self, config: Config, stays: set[str]
    ) -> tuple[dict[str, Source], dict[Place, Listening]]:
        """The sources of another configuration, those of now that stay and new ones, and their
        addresses, which are ours by then. Raise ConfigError with every problem."""
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
                problems += _refusal(name, wanted, error).problems
            except ConfigError as error:
                problems += error.problems
        if problems:
            for place, held in listening.items():
                if place not in self._listening:
                    held.give_up()
            raise ConfigError(problems)
        return sources, listening

    def _source(self, name: str, config: SourceConfig, listening: dict[Place, Listening]) -> Source:
        """A source, not running; its address goes into `listening`. Raise ConfigError."""
        if isinstance(config, TailConfig):
            _check_dialect(name, config)
            return TailSource(name, config, self._clock, once=self._once, chosen=self._chosen)
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
        """A source's address, in `listening` from now on: the one that is held now, or a new one."""
        if isinstance(config, TailConfig):
            return None
        place = place_of(name, config)
        held = self._listening.get(place)
        if held is None:
            # Of port 0 no address is known that another socket could have.
            slot = self._descriptors.slot(
                _slot_name(place), anywhere=place[0] == "unix" or place[2] > 0
            )
            held = _listening(config, slot)
        listening[place] = held
        held.kept = True
        return held

    def _cut_slow(self) -> None:
        """Be rid of peers that take longer over one record than their source allows. The time in which
        sources wait for room does not count, nor the time for which the rest of a record may have
        waited in the spool."""
        time = self._spool.timeline.now()
        if self._gate.closed:
            self._waited_until = time
        caught_up = self._ingest.position == self._spool.end
        now = time if caught_up else self._ingest.now
        sources = self._current.config.sources.items()
        timeouts = {n: c.record_timeout.ns for n, c in sources if isinstance(c, ConnectionConfig)}
        for timeout in set(timeouts.values()):
            if time - self._waited_until < timeout:
                continue
            for number in self._ingest.slow(now - timeout):
                name = self._ingest.source_of(number)
                if timeouts.get(name) == timeout:
                    self.sources[name].cut(number, "slow")

    def _close_orphans(self) -> None:
        """End the sessions that no source goes on with: there is none of the name, or it is of
        another kind."""
        for name, sessions in self._left.items():
            config = self._current.config.sources.get(name)
            for number, info in list(sessions.items()):
                if config is None or (config.format, _type(config)) != (
                    info.format,
                    info.transport,
                ):
                    self._spool.append(EntryKind.CLOSE, number, REMOVED.encode())
                    self._gate.touched()
                    del sessions[number]


def _refusal(name: str, config: SourceConfig, error: BaseException) -> ConfigError:
    """Return what to raise for a source that could not start."""
    if isinstance(config, TailConfig) or not isinstance(error, OSError):
        return ConfigError([f"sources.{name}: {error}"])
    return refusal(f"sources.{name}.listen", config.listen, error)


def _listening(config: UdpConfig | ConnectionConfig, slot: Slot) -> Listening:
    if isinstance(config, UnixConfig):
        return UnixListening(Path(config.listen), parse_mode(config.mode), slot)
    return address_of(config, slot)


def _slot_name(place: Place) -> str:
    """What the service manager calls the socket of a place."""
    return ".".join(quote(str(part), safe="/") for part in place if part)


def _check_dialect(name: str, config: TailConfig) -> None:
    dialects = ("auto", *FORMATS[config.format].dialects)
    if config.dialect not in dialects:
        allowed = ", ".join(dialects)
        raise ConfigError([f"sources.{name}.dialect: must be one of {allowed} for {config.format}"])


def _type(config: SourceConfig) -> str:
    return str(config.__struct_config__.tag)
