"""State that all parts of a daemon share: the current configuration, its health, the clock, the figures and random
numbers."""

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
        """Record the result of a reload. `problems` says why it failed, and is empty after success."""
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
    """The health of a daemon: the conditions (problems by name) that hold, and the failure that ends the process."""

    def __init__(self) -> None:
        self.conditions: dict[str, str] = {}
        self.failure: str | None = None
        self.refusals = 0
        """Number of operations that a disk or store refused and that the daemon then tried again."""
        self._phase = State.STARTING

    @property
    def state(self) -> State:
        if self.failure is not None:
            return State.FAILED
        if self._phase is State.OK and self.conditions:
            return State.DEGRADED
        return self._phase

    @property
    def ready(self) -> bool:
        """Return whether sources accept input, even if decoding and commits lag far behind."""
        return self.state in {State.OK, State.DEGRADED} and Condition.SPOOL not in self.conditions

    def started(self) -> None:
        self._phase = State.OK

    def stopping(self) -> None:
        self._phase = State.STOPPING

    def degrade(self, name: Condition, message: str) -> None:
        """Report a condition with a message. If the condition holds already, replace its message."""
        if name not in self.conditions:
            logger.error("%s: %s", name, message, extra={"condition": name})
        self.conditions[name] = message

    def refuse(self, name: Condition, message: str) -> None:
        """Report as a condition that a disk or store refused an operation, which the daemon will try again."""
        self.refusals += 1
        self.degrade(name, message)

    def clear(self, name: Condition) -> None:
        if self.conditions.pop(name, None) is not None:
            logger.info("%s: all right again", name, extra={"condition": name})

    def follow(self, name: Condition, message: str | None) -> None:
        """Report a condition with the given message, or end it if the message is None."""
        self.clear(name) if message is None else self.degrade(name, message)

    def fail(self, message: str) -> None:
        logger.critical("stopping: %s", message)
        self.failure = message


class Chance(NamedTuple):
    """Two functions: one returns random bytes, for ids; the other returns a random number from 0 to 1, by which delays
    vary."""

    entropy: Callable[[int], bytes] = os.urandom
    share: Callable[[], float] = random.random


class Context(NamedTuple):
    """The objects that all parts of a daemon share. `watchdog_seconds` is how long the service manager's watchdog waits
    for a signal; None without a watchdog."""

    current: Current
    health: Health
    clock: Clock
    figures: Figures
    watchdog_seconds: float | None = None
    chance: Chance = Chance()

    @property
    def config(self) -> Config:
        return self.current.config
