"""A signal to another configuration: all of it, or nothing.

The file and the environment are read anew and checked as at the start. Whatever is wrong, the
configuration before goes on, and the daemon is degraded until the next reload that is good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from tailrace import log
from tailrace.config.load import Loaded
from tailrace.config.reload import Takes, changes
from tailrace.config.schema import Config
from tailrace.daemon.daemon import Daemon
from tailrace.daemon.receiving import Receiving
from tailrace.errors import ConfigError
from tailrace.figures import Condition
from tailrace.security import guard
from tailrace.service_manager.notify import Notifier

logger = logging.getLogger(__name__)


class Reloading:
    """`load` reads the configuration or raises ConfigError; `replaced` is called after a good reload."""

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
        """Reload soon; once, however often it is asked for until then."""
        self._asked.set()

    async def run(self, receiving: Receiving) -> None:
        """Reload when asked to, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            self._notifier.reloading(self._daemon.clock.monotonic())
            self._daemon.current.tried(await self._once(receiving))
            self._notifier.ready()

    async def _once(self, receiving: Receiving) -> list[str]:
        """Reload. Return what prevented it."""
        try:
            loaded = await trio.to_thread.run_sync(self._read)
            await self._take_over(loaded, receiving)
        except ConfigError as error:
            self._failed(error.problems)
            return [*error.problems]
        self._daemon.health.clear(Condition.RELOAD)
        return []

    def _read(self) -> Loaded:
        """Return the configuration as it is written now, after a look at the files that it names. Raise ConfigError."""
        loaded = self._load()
        if unusable := guard.problems(loaded):
            raise ConfigError([str(problem) for problem in unusable])
        return loaded

    def _failed(self, problems: list[str]) -> None:
        message = f"failed, the configuration before it goes on: {'; '.join(problems)}"
        if Condition.RELOAD in self._daemon.health.conditions:  # which has been said already
            logger.error("reload: %s", message)
        self._daemon.health.degrade(Condition.RELOAD, message)

    async def _take_over(self, loaded: Loaded, receiving: Receiving) -> None:
        """Raise ConfigError; then nothing has changed."""
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
    """Return what a reload changed, in words."""
    before, after = old.sources, new.sources
    parts = {
        "sources added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(n for n in after.keys() & before.keys() if after[n] != before[n]),
        "keys changed": [f"{change.section}.{change.key}" for change in changes(old, new)],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)
