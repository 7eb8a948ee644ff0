"""Run the daemon as a process: handle signals, serve the admin endpoint, report to the service manager, and reload the
configuration.

The first SIGTERM or SIGINT stops the daemon in order; a second one ends the process at once, without a loss of
acknowledged data. SIGHUP requests a reload, even during the start. After a failure, the daemon serves the reason on
/healthz for `LINGER_SECONDS`, and exits with status 1.

The service manager gets a watchdog signal after each commit, which heartbeats cause even without input, and after each
operation that a disk or store refused, because a restart would not help then. If a loop or a disk hangs, the service
manager gets no signal and restarts the daemon."""

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

from tailrace import __version__, kernels, log, threads
from tailrace.clock import Clock, SystemClock
from tailrace.config.environment import service_links
from tailrace.config.load import Loaded, collector_path, store_path
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
from tailrace.decoding.formats import REFUSED
from tailrace.errors import ConfigError, MemoryLimitError, TailraceError, first_failure
from tailrace.figures import Condition, State, Status
from tailrace.filesystem import refusal_text
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
"""Time (seconds) that each request to the service manager allows for a start or stop, counted from the request."""


class Supervision:
    """Sends watchdog signals, requests for more time and status lines to the service manager."""

    def __init__(self, notifier: Notifier, clock: Clock) -> None:
        self._notifier = notifier
        self._clock = clock
        self._extended = float("-inf")
        self._seen: DaemonProgress | None = None
        self._sent = ""
        self._sent_at = float("-inf")
        self._rows = 0

    def working(self) -> None:
        """Request more time for a start or stop, unless the last request is less than `LOOK_SECONDS` old."""
        now = self._clock.monotonic()
        if now - self._extended >= LOOK_SECONDS:
            self._extended = now
            self._notifier.extend(EXTEND_SECONDS)

    async def run(self, daemon: Daemon) -> None:
        """Send watchdog signals and status lines to the service manager until cancelled."""
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
        line = f"{health.state}: {rate} rows/s into {store_path(daemon.config)}"
        return f"{line}, {behind / 2**20:.1f} MiB to decode" if behind else line


logger = logging.getLogger(__name__)


class Reloading:
    """Replaces the configuration on request: as a whole, or not at all. `load` returns the new configuration or raises
    ConfigError. `replaced` is called after each reload that succeeded."""

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
        """Request a reload. Several requests before the reload begins lead to one reload."""
        self._asked.set()

    async def run(self, receiving: Receiving) -> None:
        health, current = self._daemon.health, self._daemon.current
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            self._notifier.reloading(self._daemon.clock.monotonic())
            failed: list[str] = []
            try:
                loaded = await trio.to_thread.run_sync(lambda: _checked(self._load()))
                await self._take_over(loaded, receiving)
            except ConfigError as error:
                failed = error.problems
            current.tried(failed)
            if failed:
                message = f"failed, the configuration before it goes on: {'; '.join(failed)}"
                # `degrade` writes to the log only when a condition begins, so log a further failed reload here.
                if Condition.RELOAD in health.conditions:
                    logger.error("reload: %s", message)
                health.degrade(Condition.RELOAD, message)
            else:
                health.clear(Condition.RELOAD)
            self._notifier.ready()

    async def _take_over(self, loaded: Loaded, receiving: Receiving) -> None:
        """Make the loaded configuration the current one, or change nothing and raise ConfigError if it needs a
        restart."""
        daemon, old, new = self._daemon, self._daemon.config, loaded.config
        if old == new:
            logger.info("reload: %s is unchanged", loaded.path or "the environment")
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


def _checked(loaded: Loaded) -> Loaded:
    """Return a configuration after a check of the files that it names. Raise ConfigError with all problems."""
    if unusable := problems(loaded):
        raise ConfigError([str(problem) for problem in unusable])
    return loaded


def _summary(old: Config, new: Config) -> str:
    """Return a line for the log about the sources and keys that a reload changed."""
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
"""Time (seconds) that a process waits before it exits for lack of memory; less than systemd's TimeoutStartSec."""


def run(
    loaded: Loaded,
    *,
    load: Callable[[], Loaded],
    started: Callable[[Status], None],
    held: Mapping[Place, Listening],
) -> Status:
    """Run the daemon until a signal stops it. Return its final status.

    Call `started` once all sockets listen. `load` returns the new configuration at each reload. `held` are sockets that
    are already open. Raise TailraceError if the daemon cannot start or fails."""
    _checked(loaded)
    if links := service_links(os.environ):
        logger.info(
            "ignored, as they describe a service of Kubernetes or Docker: %s", ", ".join(links)
        )
    for refused in REFUSED:
        logger.warning("%s", refused)
    raise_descriptor_limit()
    clock, notifier = SystemClock(), Notifier.from_environment(os.environ)
    descriptors = Descriptors.from_environment(notifier, os.environ)
    supervision = Supervision(notifier, clock)
    mode = Mode(watchdog_seconds=notifier.watchdog_seconds)
    with (
        closing(descriptors), patience(managed=notifier.present),
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
    """Wait `PATIENCE_SECONDS` before a MemoryLimitError leaves the `with` block of a `managed` process. Without the
    wait, the service manager would restart the daemon at once, many times."""
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
            nursery.start_soon(threads.occupy, partial(occupy_thread, daemon.spool.directory))
            nursery.start_soon(conditions.watch_descriptors, daemon.sources, daemon.context)
            nursery.start_soon(self._supervision.run, daemon)
            nursery.start_soon(self._serve, server, listener)
            try:
                await daemon.run(
                    self._stop, started=self._ready, beside=self._reloading.run, failed=failed
                )
            except* TailraceError as group:
                self.failure = first_failure(group)
                # Show the error on /healthz. Do not show a configuration error, because the caller reports it.
                if not isinstance(self.failure, ConfigError):
                    daemon.health.fail(str(self.failure))
                    daemon.answering.set()
                    await trio.sleep(LINGER_SECONDS)
            nursery.cancel_scope.cancel()

    async def _serve(self, server: Server, listener: socket.socket) -> None:
        """Serve the admin endpoint once the counters are as before the restart, or decoding is suspended."""
        with listener:
            # Wait, because Prometheus would take a counter that is smaller than before the restart for a reset.
            await self._daemon.answering.wait()
            await server.serve(trio.socket.from_stdlib_socket(listener))

    def _server(self) -> Server:
        """Return the server of the admin endpoint. Raise ConfigError if its certificates or tokens cannot be used."""
        config = self._daemon.config.admin
        self._guard = guard("admin", config, self._daemon.clock)
        certificates, tokens, networks = self._guard
        pages = Pages(
            probe=self._probe, status=self.status,
            families=lambda: families(self.status(), self._daemon.config.metrics.series_max),
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
            # Only warn: a full disk must not end the daemon, and /status shows the addresses that the port file would
            # have.
            directory = collector_path(self._daemon.config)
            logger.warning(
                "%s: cannot write the port file: %s",
                directory, refusal_text(error.errno, directory),
            )  # fmt: skip

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            # Handle also a SIGHUP that arrived during the start
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            try:
                async for number in signals:
                    if number == signal.SIGHUP:
                        self._reloading.ask()
                        continue
                    if self._stop.is_set():
                        # Run no exit handlers: they might wait for a worker thread.
                        os._exit(128 + number)
                    self._notifier.stopping()
                    self._stop.set()
            finally:
                # Block SIGHUP again, because its default action would end the process during the stop
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    def _probe(self) -> Probe:
        health = self._daemon.health
        answer = HealthAnswer(health.state, dict(health.conditions), health.failure)
        return Probe(answer, alive=health.failure is None, ready=health.ready)
