"""The daemon's present problems in words, shared by /healthz, /readyz, the metrics and the log.

A condition has a name and a sentence. Its begin and its end are logged once each.
"""

from __future__ import annotations

import logging

from tailrace.figures import Condition, State

logger = logging.getLogger(__name__)


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
