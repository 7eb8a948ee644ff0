"""What is wrong right now, in words: the one thing /healthz, /readyz, the metrics and the log share.

A condition has a name and a sentence, begins and ends, and each is logged once.
"""

from __future__ import annotations

import logging

from tailrace.figures import Condition, State

logger = logging.getLogger(__name__)


class Health:
    """`degraded` mends itself when the cause is gone; `failed` ends the process."""

    def __init__(self) -> None:
        self.conditions: dict[str, str] = {}
        self.failure: str | None = None
        self.refusals = 0
        """How often work could not be done because a disk or a store would not have it."""
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
        """Whether what is sent now is taken in: it is while only the table is behind."""
        return self.state in {State.OK, State.DEGRADED} and Condition.SPOOL not in self.conditions

    def started(self) -> None:
        self._phase = State.OK

    def stopping(self) -> None:
        self._phase = State.STOPPING

    def degrade(self, name: Condition, message: str) -> None:
        """A condition begins, or there is something newer to say of it."""
        if name not in self.conditions:
            logger.error("%s: %s", name, message, extra={"condition": name})
        self.conditions[name] = message

    def refuse(self, name: Condition, message: str) -> None:
        """A disk or a store will not have it now; it is tried again."""
        self.refusals += 1
        self.degrade(name, message)

    def clear(self, name: Condition) -> None:
        if self.conditions.pop(name, None) is not None:
            logger.info("%s: all right again", name, extra={"condition": name})

    def follow(self, name: Condition, message: str | None) -> None:
        """A condition is there as this message says, or is not there."""
        self.clear(name) if message is None else self.degrade(name, message)

    def fail(self, message: str) -> None:
        logger.critical("stopping: %s", message)
        self.failure = message
