"""The daemon as a process: signals, admin endpoint, service manager, and the final status.

The first SIGTERM or SIGINT stops the daemon in order. A second one ends the process at once without loss of
acknowledged data. SIGHUP requests a reload, also during the start. During a stop, SIGHUP has no effect. After a
failure the daemon serves the reason on /healthz for `LINGER_SECONDS`, and exits with status 1.

`Supervision` sends watchdog signals, requests for more time and a status line to the service manager. The daemon
sends a watchdog signal for each commit, and for each operation that a disk or store refused, because a restart would
not help. Heartbeats cause commits even while no data arrives. A hanging loop, a hanging disk or stopped decoding
sends no signal, so the service manager restarts the daemon.

`Reloading` replaces the whole configuration after a signal, or nothing. The daemon reads and checks file and
environment as at the start. After an error the old configuration stays current, and the daemon is degraded until a
reload succeeds.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial

import trio
from prometheus_client.core import Metric

from tailrace import __version__, kernels, log, threads
from tailrace.clock import Clock, SystemClock
from tailrace.config.environment import service_links
from tailrace.config.load import Loaded
from tailrace.config.reload import Takes, changes
from tailrace.config.schema import Config
from tailrace.daemon import conditions
from tailrace.daemon.daemon import (
    Daemon,
    DaemonProgress,
    Failed,
    Mode,
    bounded,
    collecting,
    raise_descriptor_limit,
)
from tailrace.daemon.memory import memory
from tailrace.daemon.receiving import Receiving
from tailrace.daemon.status import status
from tailrace.errors import ConfigError, MemoryLimitError, TailraceError, first_failure
from tailrace.figures import Condition, State, Status
from tailrace.filesystem import refusal_text
from tailrace.heaps import tamed_garbage_collection
from tailrace.metrics.families import families
from tailrace.pauses import pause
from tailrace.security.guard import OPEN, guard, problems
from tailrace.service_manager.descriptors import Descriptors
from tailrace.service_manager.notify import Notifier
from tailrace.serving.pages import HealthAnswer, Pages, Probe
from tailrace.serving.server import BACKLOG, Server
from tailrace.sources.listening import Listening, Place, bound, named, refusal
from tailrace.store.durable import occupy_thread

LOOK_SECONDS = 1.0
STATUS_SECONDS = 5.0
EXTEND_SECONDS = 30.0
"""Timeout (seconds) for the next step of a start or stop."""


class Supervision:
    """The connection between the service manager and the daemon."""

    def __init__(self, notifier: Notifier, clock: Clock) -> None:
        self._notifier = notifier
        self._clock = clock
        self._extended = float("-inf")
        self._seen: DaemonProgress | None = None
        self._sent = ""
        self._sent_at = float("-inf")
        self._rows = 0

    def working(self) -> None:
        """Ask the service manager for more time, because a start or stop continues."""
        now = self._clock.monotonic()
        if now - self._extended >= LOOK_SECONDS:
            self._extended = now
            self._notifier.extend(EXTEND_SECONDS)

    async def run(self, daemon: Daemon) -> None:
        """Send watchdog signals and status lines until cancelled."""
        seconds = min(LOOK_SECONDS, (self._notifier.watchdog_seconds or LOOK_SECONDS) / 4)
        while self._notifier.present:
            self._look(daemon)
            await pause(seconds)

    def _look(self, daemon: Daemon) -> None:
        state, progress = daemon.health.state, daemon.progress
        before, self._seen = self._seen, progress
        if state in {State.STARTING, State.STOPPING}:
            if before != progress:
                self.working()
        elif before and progress.lives_on(before):
            self._notifier.alive()
        if (now := self._clock.monotonic()) - self._sent_at >= STATUS_SECONDS:
            line = self._line(daemon, now - self._sent_at)
            self._sent_at, self._rows = now, daemon.figures.rows_committed
            if line != self._sent:
                self._notifier.status(line)
                self._sent = line

    def _line(self, daemon: Daemon, seconds: float) -> str:
        health = daemon.health
        if wrong := health.failure or "; ".join(health.conditions.values()):
            return f"{health.state}: {wrong}"
        behind = daemon.spool.durable - daemon.ingest.position
        rate = round((daemon.figures.rows_committed - self._rows) / seconds)
        line = f"{health.state}: {rate} rows/s into {daemon.disk.store}"
        return f"{line}, {behind / 2**20:.1f} MiB to decode" if behind else line


logger = logging.getLogger(__name__)


class Reloading:
    """Replaces the configuration on request.

    `load` reads the configuration or raises ConfigError. `replaced` is called after a successful reload.
    """

    def __init__(
        self,
        daemon: Daemon,
        load: Callable[[], Loaded],
        replaced: Callable[[], None],
        notifier: Notifier,
    ) -> None:
        self._daemon = daemon
        self._load = load
        self._replaced = replaced
        self._notifier = notifier
        self._asked = trio.Event()

    def ask(self) -> None:
        """Request a reload. Requests before the reload begins count as one."""
        self._asked.set()

    async def run(self, receiving: Receiving) -> None:
        """Reload the configuration on each request of `ask`, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            self._notifier.reloading(self._daemon.clock.monotonic())
            self._daemon.current.tried(await self._once(receiving))
            self._notifier.ready()

    async def _once(self, receiving: Receiving) -> list[str]:
        """Reload the configuration. Return the problems that prevented the reload."""
        try:
            loaded = await trio.to_thread.run_sync(self._read)
            await self._take_over(loaded, receiving)
        except ConfigError as error:
            self._failed(error.problems)
            return [*error.problems]
        self._daemon.health.clear(Condition.RELOAD)
        return []

    def _read(self) -> Loaded:
        """Return the configuration from file and environment, after checking the files named there. Raise
        ConfigError."""
        loaded = self._load()
        if unusable := problems(loaded):
            raise ConfigError([str(problem) for problem in unusable])
        return loaded

    def _failed(self, problems: list[str]) -> None:
        message = f"failed, the configuration before it goes on: {'; '.join(problems)}"
        if Condition.RELOAD in self._daemon.health.conditions:  # already logged by `degrade`
            logger.error("reload: %s", message)
        self._daemon.health.degrade(Condition.RELOAD, message)

    async def _take_over(self, loaded: Loaded, receiving: Receiving) -> None:
        """Replace the current configuration by the loaded one. Raise ConfigError and change nothing if a problem is
        found."""
        daemon, old, new = self._daemon, self._daemon.config, loaded.config
        if old == new:
            logger.info("reload: %s says what is running already", loaded.path or "the environment")
            return
        found = list(changes(old, new))
        if problems := [
            f"{change.section}.{change.key}: cannot change while the daemon runs; it needs a restart"
            for change in found if change.takes is Takes.RESTART
        ]:  # fmt: skip
            raise ConfigError(problems)
        await receiving.replace(new, put=lambda: daemon.current.put(loaded))
        daemon.disk.quarantine.config = new.quarantine
        daemon.ingest.paces.limit(new.metrics.series_max)
        if old.log != new.log:
            log.configure(new.log)
        self._replaced()
        logger.info("reload: done: %s; sha256 %s", _summary(old, new), loaded.sha256)


def _summary(old: Config, new: Config) -> str:
    """Return a summary of the changes of a reload."""
    before, after = old.sources, new.sources
    parts = {
        "sources added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(n for n in after.keys() & before.keys() if after[n] != before[n]),
        "keys changed": [f"{change.section}.{change.key}" for change in changes(old, new)],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)


LINGER_SECONDS = 3.0

PATIENCE_SECONDS = 60.0
"""Delay (seconds) of an exit for lack of memory; shorter than TimeoutStartSec in a unit file."""


def run(
    loaded: Loaded,
    *,
    load: Callable[[], Loaded],
    started: Callable[[Status], None],
    held: Mapping[Place, Listening],
) -> Status:
    """Run the daemon until a signal stops the process. Return the last status.

    Call `started` once all sockets listen, and `load` at each reload. Sockets in `held` are open already. Raise
    TailraceError if the start or the daemon fails.
    """
    if found := problems(loaded):
        raise ConfigError([str(problem) for problem in found])
    if links := service_links(os.environ):
        logger.info(
            "ignored, as they describe a service of Kubernetes or Docker: %s", ", ".join(links)
        )
    raise_descriptor_limit()
    clock, notifier = SystemClock(), Notifier.from_environment(os.environ)
    descriptors = Descriptors.from_environment(notifier, os.environ)
    supervision = Supervision(notifier, clock)
    mode = Mode(watchdog_seconds=notifier.watchdog_seconds)
    with (
        tamed_garbage_collection(), closing(descriptors), patience(managed=notifier.present),
        collecting(
            loaded, clock, mode, descriptors=descriptors, held=held, memory=memory(),
            working=supervision.working,
        ) as daemon,
    ):  # fmt: skip
        service = _Service(daemon, load, started, notifier, supervision)
        with bounded(daemon.message) as failed:
            trio.run(service.main, failed)
        if service.failure is not None:
            raise service.failure
        return service.status()


@contextmanager
def patience(*, managed: bool) -> Iterator[None]:
    """Delay a MemoryLimitError by `PATIENCE_SECONDS` under a service manager, which would restart the daemon at
    once.

    The sockets queue input during the delay.
    """
    try:
        yield
    except MemoryLimitError as error:
        if managed:
            logger.critical("%s; ends in %.0f s", error, PATIENCE_SECONDS)
            time.sleep(PATIENCE_SECONDS)
        raise


class _Service:
    def __init__(
        self,
        daemon: Daemon,
        load: Callable[[], Loaded],
        started: Callable[[Status], None],
        notifier: Notifier,
        supervision: Supervision,
    ) -> None:
        self.failure: TailraceError | None = None
        self._daemon = daemon
        self._started = started
        self._reloading = Reloading(daemon, load, self._write_ports, notifier)
        self._notifier = notifier
        self._supervision = supervision
        self._stop = trio.Event()
        self._admin = ""
        self._guard = OPEN

    def status(self) -> Status:
        return status(self._daemon, self._admin, self._guard)

    async def main(self, failed: Failed) -> None:
        daemon = self._daemon
        listen = daemon.config.admin.listen
        try:
            await threads.hold()
            server = self._server()
            listener = bound(listen, socket.SOCK_STREAM)
            listener.listen(BACKLOG)
        except TailraceError as error:
            self.failure = error
            return
        except OSError as error:
            self.failure = refusal("admin.listen", listen, error)
            return
        self._admin = named(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._signals)
            nursery.start_soon(
                conditions.watch_listeners, daemon.sources, daemon.health, self._guard
            )
            nursery.start_soon(threads.occupy, partial(occupy_thread, self._daemon.disk.directory))
            nursery.start_soon(conditions.watch_descriptors, daemon.sources, daemon.context)
            nursery.start_soon(self._supervision.run, self._daemon)
            nursery.start_soon(self._serve, server, listener)
            try:
                await self._daemon.run(
                    self._stop, started=self._ready, beside=self._reloading.run, failed=failed
                )
            except* TailraceError as group:
                self.failure = first_failure(group)
                # The caller reports a configuration error once.
                if not isinstance(self.failure, ConfigError):
                    self._daemon.health.fail(str(self.failure))
                    self._daemon.answering.set()
                    await trio.sleep(LINGER_SECONDS)
            nursery.cancel_scope.cancel()

    async def _serve(self, server: Server, listener: socket.socket) -> None:
        """Serve the admin endpoint once the counters have reached their values before the restart, because
        Prometheus treats a falling counter as a restart. Do not wait if decoding is suspended."""
        with listener:
            await self._daemon.answering.wait()
            await server.serve(trio.socket.from_stdlib_socket(listener))

    def _server(self) -> Server:
        """Create the admin server. Raise ConfigError for unusable certificates or tokens."""
        config = self._daemon.config.admin
        self._guard = guard("admin", config, self._daemon.clock)
        certificates, tokens, networks = self._guard
        pages = Pages(
            probe=self._probe, status=self.status, families=self._families,
            accepts=tokens.accepts if tokens else None,
        )  # fmt: skip
        return Server(
            pages.answer, self._daemon.figures.admin, connections_max=config.connections_max,
            allows=networks.allows,
            context=certificates.context if certificates else lambda: None,
        )  # fmt: skip

    def _ready(self) -> None:
        logger.info("tailrace %s, kernels: %s", __version__, kernels.word())
        self._write_ports()
        self._notifier.ready()
        self._started(self.status())

    def _write_ports(self) -> None:
        try:
            self._daemon.write_ports(self._admin)
        except OSError as error:
            # A full disk must not stop the daemon: /status has the addresses as well.
            directory = self._daemon.disk.directory
            logger.warning(
                "%s: cannot write the port file: %s",
                directory, refusal_text(error.errno, directory),
            )  # fmt: skip

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            signal.pthread_sigmask(
                signal.SIG_UNBLOCK, {signal.SIGHUP}
            )  # a pending SIGHUP arrives now
            try:
                async for number in signals:
                    if number == signal.SIGHUP:
                        self._reloading.ask()
                        continue
                    if self._stop.is_set():
                        # Exit at once and skip exit handlers, which might wait for a worker thread.
                        os._exit(128 + number)
                    self._notifier.stopping()
                    self._stop.set()
            finally:  # the default action would end the process during the stop
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    def _probe(self) -> Probe:
        health = self._daemon.health
        answer = HealthAnswer(health.state, dict(health.conditions), health.failure)
        return Probe(answer, alive=health.alive, ready=health.ready)

    def _families(self) -> Iterator[Metric]:
        return families(self.status(), self._daemon.config.metrics.series_max)
