"""A condition of the daemon while sessions give up state to stay within their memory limits."""

from __future__ import annotations

import trio

from tailrace.daemon.health import Health
from tailrace.figures import Condition
from tailrace.ingest.budget import Budget
from tailrace.rhythm import pause

LOOK_SECONDS, CALM_SECONDS = 1.0, 60.0
"""Seconds between two looks, and seconds without evictions after which the condition ends."""


async def run(budget: Budget, health: Health) -> None:
    """Watch until cancelled."""
    seen, since = 0, trio.current_time()
    while True:
        if budget.relieved > seen:
            seen, since = budget.relieved, trio.current_time()
            health.degrade(Condition.STATE, budget.said)
        elif trio.current_time() - since > CALM_SECONDS:
            health.clear(Condition.STATE)
        await pause(LOOK_SECONDS)
