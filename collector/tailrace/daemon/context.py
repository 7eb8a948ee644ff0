"""The parts of a daemon share these: the configuration that runs, present problems in words, clock, figures, chance.

All holders of a `Current` see the next configuration as soon as a reload puts it there. /healthz, /readyz, the metrics
and the log share one `Health`. A condition has a name and a sentence; its begin and its end are logged once each.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.config.load import Loaded
from tailrace.config.schema import Config
from tailrace.figures import Condition, ConfigStatus, Figures, Reload, State

logger = logging.getLogger(__name__)


class Current:
    def __init__(self, loaded: Loaded, clock: Clock) -> None:
        self._clock = clock
        self._reloads = {"done": 0, "failed": 0}
        self._last: Reload | None = None
        self.put(loaded)

    @property
    def config(self) -> Config:
        return self.loaded.config

    def put(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._since = self._now()

    def tried(self, problems: Sequence[str]) -> None:
        """Note that a reload ended; without problems it succeeded."""
        self._reloads["failed" if problems else "done"] += 1
        self._last = Reload(
            timestamp_seconds=self._now(), good=not problems, problems=list(problems)
        )

    def status(self) -> ConfigStatus:
        return ConfigStatus(
            path=str(self.loaded.path) if self.loaded.path else None,
            sha256=self.loaded.sha256,
            loaded_timestamp_seconds=self._since,
            reload_success=int(self._last is None or self._last.good),
            reloads=self._reloads,
            last_reload=self._last,
        )

    def _now(self) -> float:
        return self._clock.wall_ns() / 10**9


class Health:
    """The state of a daemon. `degraded` ends by itself when its cause is gone; `failed` ends the process."""

    def __init__(self) -> None:
        self.conditions: dict[str, str] = {}
        self.failure: str | None = None
        self.refusals = 0
        """How often a disk or a store refused work."""
        self._phase = State.STARTING

    @property
    def state(self) -> State:
        if self.failure is not None:
            return State.FAILED
        if self._phase is State.OK and self.conditions:
            return State.DEGRADED
        return self._phase

    @property
    def alive(self) -> bool:
        return self.failure is None

    @property
    def ready(self) -> bool:
        """Return whether sources take in what is sent now; a table that is behind does not stop them."""
        return self.state in {State.OK, State.DEGRADED} and Condition.SPOOL not in self.conditions

    def started(self) -> None:
        self._phase = State.OK

    def stopping(self) -> None:
        self._phase = State.STOPPING

    def degrade(self, name: Condition, message: str) -> None:
        """Begin a condition, or replace its message."""
        if name not in self.conditions:
            logger.error("%s: %s", name, message, extra={"condition": name})
        self.conditions[name] = message

    def refuse(self, name: Condition, message: str) -> None:
        """Begin a condition because a disk or a store refused work that will be tried again."""
        self.refusals += 1
        self.degrade(name, message)

    def clear(self, name: Condition) -> None:
        if self.conditions.pop(name, None) is not None:
            logger.info("%s: all right again", name, extra={"condition": name})

    def follow(self, name: Condition, message: str | None) -> None:
        """Begin the condition with a message, or clear it if the message is None."""
        self.clear(name) if message is None else self.degrade(name, message)

    def fail(self, message: str) -> None:
        logger.critical("stopping: %s", message)
        self.failure = message


class Chance(NamedTuple):
    """Where random numbers come from: `entropy` for ids, `share` (0 to 1) for delays."""

    entropy: Callable[[int], bytes] = os.urandom
    share: Callable[[], float] = random.random


class Context(NamedTuple):
    """The values that all parts of a daemon share. A watchdog waits `watchdog_seconds` for the next commit, for ever if None."""

    current: Current
    health: Health
    clock: Clock
    figures: Figures
    watchdog_seconds: float | None = None
    chance: Chance = Chance()

    @property
    def config(self) -> Config:
        """Return the configuration that runs now."""
        return self.current.config
