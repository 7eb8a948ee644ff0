"""The daemon as a process: signals, the admin endpoint, and what it says at the end.

The first SIGTERM or SIGINT ends it in order; a second one ends it at once, which loses nothing
that was acknowledged. SIGHUP asks for a reload, before everything listens as well; while it ends, for
nothing. After a failure it answers /healthz with the reason for `LINGER_SECONDS`,
so that whoever watches it can learn more than that it is gone, and exits with 1.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial

import trio
from prometheus_client.core import Metric

from tailrace import __version__, kernels, threads
from tailrace.clock import SystemClock
from tailrace.config.environment import service_links
from tailrace.config.load import Loaded
from tailrace.daemon import ending
from tailrace.daemon.conditions import open_files
from tailrace.daemon.daemon import Daemon, Mode, collecting
from tailrace.daemon.ending import Failed
from tailrace.daemon.memory_limit import memory
from tailrace.daemon.reload import Reloading
from tailrace.daemon.status import status
from tailrace.daemon.supervision import Supervision
from tailrace.errors import ConfigError, MemoryLimitError, TailraceError
from tailrace.figures import Status
from tailrace.filesystem import refusal_text
from tailrace.metrics.families import families
from tailrace.security.guard import OPEN, guard, problems
from tailrace.service_manager.descriptors import Descriptors
from tailrace.service_manager.notify import Notifier
from tailrace.serving.pages import HealthAnswer, Pages, Probe
from tailrace.serving.server import BACKLOG, Server
from tailrace.sources.listening import Listening, Place, bound, named, refusal
from tailrace.store.durable import occupy_thread

LINGER_SECONDS = 3.0

PATIENCE_SECONDS = 60.0
"""Less than a unit's TimeoutStartSec."""

logger = logging.getLogger(__name__)


def run(
    loaded: Loaded,
    *,
    load: Callable[[], Loaded],
    started: Callable[[Status], None],
    held: Mapping[Place, Listening],
) -> Status:
    """Serve until told to stop. Return the last status.

    `started` is called once everything listens, `load` at each reload. Sockets in `held` exist already.

    Raise TailraceError for what prevents the start or ends the work."""
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
        with ending.bounded(daemon.message) as failed:
            trio.run(service.main, failed)
        if service.failure is not None:
            raise service.failure
        return service.status()


@contextmanager
def patience(*, managed: bool) -> Iterator[None]:
    """Delay a MemoryLimitError by a minute under a service manager, which would repeat the start at once.

    The sockets queue what comes meanwhile."""
    try:
        yield
    except MemoryLimitError as error:
        if managed:
            logger.critical("%s; ends in %.0f s", error, PATIENCE_SECONDS)
            time.sleep(PATIENCE_SECONDS)
        raise


def raise_descriptor_limit() -> None:
    """Raise the soft limit on descriptors to the hard one; the soft limit is for programs that use `select`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def tamed_garbage_collection() -> Iterator[None]:
    """Let the garbage collector run less often.

    Records come by the hundred thousand and form no cycles. With the default thresholds the garbage
    collector scans them again and again: a fifth of the time, in pauses that lose datagrams."""
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()  # libraries tidy up with what is collected at exit


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
                open_files.watch_listeners, daemon.sources, daemon.health, self._guard
            )
            nursery.start_soon(threads.occupy, partial(occupy_thread, self._daemon.disk.directory))
            nursery.start_soon(open_files.watch_descriptors, daemon.sources, daemon.context)
            nursery.start_soon(self._supervision.run, self._daemon)
            nursery.start_soon(self._serve, server, listener)
            try:
                await self._daemon.run(
                    self._stop, started=self._ready, beside=self._reloading.run, failed=failed
                )
            except* TailraceError as group:
                self.failure = first_failure(group)
                # Whoever started the daemon reports an error of configuration, once.
                if not isinstance(self.failure, ConfigError):
                    self._daemon.health.fail(str(self.failure))
                    self._daemon.answering.set()
                    await trio.sleep(LINGER_SECONDS)
            nursery.cancel_scope.cancel()

    async def _serve(self, server: Server, listener: socket.socket) -> None:
        """Answer once the counters have reached the values of the daemon's earlier life: to Prometheus, a counter
        that falls has restarted. Earlier requests wait, unless decoding itself waits."""
        with listener:
            await self._daemon.answering.wait()
            await server.serve(trio.socket.from_stdlib_socket(listener))

    def _server(self) -> Server:
        """Raise ConfigError for files that cannot be used."""
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
            # A full disk is no reason not to receive: the addresses are on /status too.
            directory = self._daemon.disk.directory
            logger.warning(
                "%s: cannot write the port file: %s",
                directory, refusal_text(error.errno, directory),
            )  # fmt: skip

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            signal.pthread_sigmask(
                signal.SIG_UNBLOCK, {signal.SIGHUP}
            )  # an earlier one arrives now
            try:
                async for number in signals:
                    if number == signal.SIGHUP:
                        self._reloading.ask()
                        continue
                    if self._stop.is_set():
                        # At once: not even exit handlers, which might wait for a worker thread.
                        os._exit(128 + number)
                    self._notifier.stopping()
                    self._stop.set()
            finally:  # while the process ends, the default action would apply again
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    def _probe(self) -> Probe:
        health = self._daemon.health
        answer = HealthAnswer(health.state, dict(health.conditions), health.failure)
        return Probe(answer, alive=health.alive, ready=health.ready)

    def _families(self) -> Iterator[Metric]:
        return families(self.status(), self._daemon.config.metrics.series_max)


def first_failure(group: BaseExceptionGroup[TailraceError]) -> TailraceError:
    leaves: Iterable[BaseException] = group.exceptions
    for leaf in leaves:
        return first_failure(leaf) if isinstance(leaf, BaseExceptionGroup) else leaf  # type: ignore[return-value] # only TailraceErrors are in the group
    raise AssertionError("an exception group is never empty")
