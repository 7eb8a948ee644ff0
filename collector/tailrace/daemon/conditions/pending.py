"""Conditions of the daemon while memory is short: sources give up unfinished records, or sessions give up state."""

from __future__ import annotations

import trio

from tailrace.config.schema import Config, UdpConfig
from tailrace.daemon.context import Context, Health
from tailrace.figures import Condition
from tailrace.ingest.budget import Budget
from tailrace.ingest.machine import Ingest
from tailrace.rhythm import pause

LOOK_SECONDS = 0.5

LASTS_SECONDS = 60.0
"""Seconds for which the condition holds after the last record was given up."""


async def watch_pending(ingest: Ingest, context: Context) -> None:
    """Look until cancelled. Records that earlier lives gave up do not count."""
    known = {name: ingest.tally(name).gave_way for name in context.config.sources}
    since: dict[str, tuple[float, int]] = {}  # by source, when the last one was, and how many
    while True:
        now = context.clock.monotonic()
        for name in context.config.sources:
            total = ingest.tally(name).gave_way
            if new := total - known.get(name, 0):
                since[name] = now, since.get(name, (now, 0))[1] + new
            known[name] = total
        since = {n: s for n, s in since.items() if now - s[0] < LASTS_SECONDS}
        if since:
            said = (_sentence(name, count, context.config) for name, (_, count) in since.items())
            context.health.degrade(Condition.PENDING, "; ".join(said))
        else:
            context.health.clear(Condition.PENDING)
        await pause(LOOK_SECONDS)


def _sentence(name: str, count: int, config: Config) -> str:
    source = config.sources.get(name)
    limit = 0 if source is None or isinstance(source, UdpConfig) else source.pending_max
    return (
        f"sources.{name}: {count} unfinished records were given up, the longest first: together they were"
        f" more than pending_max ({limit}). A gap row names each; raise pending_max if the"
        " records are honest"
    )


STATE_LOOK_SECONDS, CALM_SECONDS = 1.0, 60.0
"""Seconds between two looks, and seconds without evictions after which the condition ends."""


async def watch_state(budget: Budget, health: Health) -> None:
    """Watch until cancelled."""
    seen, since = 0, trio.current_time()
    while True:
        if budget.relieved > seen:
            seen, since = budget.relieved, trio.current_time()
            health.degrade(Condition.STATE, budget.said)
        elif trio.current_time() - since > CALM_SECONDS:
            health.clear(Condition.STATE)
        await pause(STATE_LOOK_SECONDS)
