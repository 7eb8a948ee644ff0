"""The sources of a running daemon, by name: each is a task that starts and ends while the others go on.

A source that starts goes on with the sessions that an earlier life of it has left open. Those that no
source goes on with are ended when receiving begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio

from tailrace.clock import Clock
from tailrace.config.listen import parse_mode
from tailrace.config.schema import (
    Config,
    ConnectionConfig,
    SourceConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.ingest.machine import Ingest
from tailrace.pipeline.intake import Gate, SourceIntake
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.source import Source
from tailrace.sources.tail import TailSource
from tailrace.sources.tcp import TcpListener
from tailrace.sources.udp import UdpSource
from tailrace.sources.unix import UnixListener
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool

LOOK_SECONDS = 0.5
"""How often peers are looked at that take long over one record."""

logger = logging.getLogger(__name__)


class Running:
    """The task of a source that takes in."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()


class Receiving:
    """`sources` are those of the configuration, whether they take in or not.

    With `once`, they are there for what they find now and no longer: sessions that other sources have
    left open are not their business."""

    def __init__(self, config: Config, clock: Clock, *, once: bool) -> None:
        self.sources = {n: _source(n, c, clock, once) for n, c in config.sources.items()}
        self._config = config
        self._clock = clock
        self._once = once
        self._running: dict[str, Running] = {}

    async def run(
        self,
        spool: Spool,
        gate: Gate,
        ingest: Ingest,
        *,
        ended: Callable[[], None],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take in until cancelled; `ended` is called when no source has anything more to come. Raise
        ConfigError for an address that cannot be had."""
        self._spool, self._gate, self._ingest, self._ended = spool, gate, ingest, ended
        if not self._once:
            self._close_orphans()
        async with trio.open_nursery() as self._nursery:
            for name in self.sources:
                await self.start(name)
            task_status.started()
            while True:
                await trio.sleep(LOOK_SECONDS)
                self._cut_slow()

    async def start(self, name: str) -> None:
        """Return once the source takes in. Raise ConfigError for an address that cannot be had."""
        source, config = self.sources[name], self._config.sources[name]
        intake = SourceIntake(
            name, config.format, self._config.ledger,
            spool=self._spool, gate=self._gate, ingest=self._ingest, clock=self._clock,
        )  # fmt: skip
        try:
            await self._nursery.start(self._receive, name, source, intake)
        except* OSError as errors:
            raise ConfigError([f"sources.{name}: {errors.exceptions[0]}"]) from errors
        logger.info("source %s: %s %s", name, config.format, source.address)

    async def stop(self, name: str) -> None:
        """Return once the source has taken in what was sent to it and has ended."""
        running = self._running[name]
        running.scope.cancel()
        await running.over.wait()

    def reject(self, number: int) -> None:
        """Be rid of a session's peer, which sends nothing readable."""
        source = self.sources.get(self._ingest.source_of(number))
        if source is not None:
            source.cut(number, "garbage")

    async def _receive(
        self, name: str, source: Source, intake: SourceIntake, *, task_status: trio.TaskStatus[None]
    ) -> None:
        running = self._running[name] = Running()
        try:
            with running.scope:
                await source.run(intake, task_status=task_status)
        finally:
            del self._running[name]
            running.over.set()
        if not running.scope.cancelled_caught and not self._running:
            self._ended()

    def _cut_slow(self) -> None:
        """Be rid of peers that take longer over one record than their source allows."""
        sources = self._config.sources.items()
        timeouts = {n: c.record_timeout.ns for n, c in sources if isinstance(c, ConnectionConfig)}
        for timeout in set(timeouts.values()):
            for number in self._ingest.slow(self._clock.wall_ns() - timeout):
                name = self._ingest.source_of(number)
                if timeouts.get(name) == timeout:
                    self.sources[name].cut(number, "slow")

    def _close_orphans(self) -> None:
        """End the sessions of sources that the configuration does not have any more."""
        for number, info in self._ingest.open_sessions().items():
            now = self._config.sources.get(info.source)
            if now is None or now.format != info.format or _transport(now) != info.transport:
                self._spool.append(EntryKind.CLOSE, number, b"source removed")


def _source(name: str, config: SourceConfig, clock: Clock, once: bool) -> Source:
    if isinstance(config, UdpConfig):
        return UdpSource(name, config, clock)
    if isinstance(config, TcpConfig):
        return ConnectionSource(config, TcpListener(config.listen))
    if isinstance(config, UnixConfig):
        return ConnectionSource(config, UnixListener(Path(config.listen), parse_mode(config.mode)))
    dialects = ("auto", *FORMATS[config.format].dialects)
    if config.dialect not in dialects:
        allowed = ", ".join(dialects)
        raise ConfigError([f"sources.{name}.dialect: must be one of {allowed} for {config.format}"])
    return TailSource(name, config, clock, once=once)


def _transport(config: SourceConfig) -> str:
    return str(config.__struct_config__.tag)
