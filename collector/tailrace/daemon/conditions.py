"""Check at intervals for problems of the daemon, and report them as conditions of its health."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

import trio

from tailrace.config.check import needed
from tailrace.daemon.context import Context, Health
from tailrace.figures import AdminRefusal, Condition, Figures
from tailrace.ingest.limits import Budget
from tailrace.ingest.machine import Ingest
from tailrace.pauses import pause
from tailrace.security.guard import Guard
from tailrace.sources.source import RESERVE, Refusal, Source

LOOK_SECONDS = 0.5

LASTS_SECONDS = 60.0
"""Time (seconds) without a dropped record after which dropped records are no longer reported as a problem."""


async def watch_pending(ingest: Ingest, context: Context) -> None:
    """Report unfinished records that were dropped since the daemon started, until cancelled."""
    known = {name: ingest.tally(name).gave_way for name in context.config.sources}
    # For each source: monotonic time of its last dropped record, and number of records since its condition began
    since: dict[str, tuple[float, int]] = {}
    while True:
        now = context.clock.monotonic()
        for name in context.config.sources:
            total = ingest.tally(name).gave_way
            if new := total - known.get(name, 0):
                since[name] = now, since.get(name, (now, 0))[1] + new
            known[name] = total
        since = {n: s for n, s in since.items() if now - s[0] < LASTS_SECONDS}
        sources = context.config.sources
        given_up = [
            f"sources.{name}: {count} unfinished records were given up, the longest first: together they were"
            f" more than pending_max ({getattr(sources.get(name), 'pending_max', 0)}). A gap row names each;"
            " raise pending_max if the records are honest"
            for name, (_, count) in since.items()
        ]
        context.health.follow(Condition.PENDING, "; ".join(given_up) or None)
        await pause(LOOK_SECONDS)


STATE_LOOK_SECONDS, CALM_SECONDS = 1.0, 60.0
"""Time (seconds) between two checks for evicted state, and time (seconds) that must pass without an eviction before the
report of evictions ends."""


async def watch_state(budget: Budget, health: Health) -> None:
    """Report that state of sessions was evicted to save memory, until cancelled."""
    seen, since = 0, trio.current_time()
    while True:
        if budget.relieved > seen:
            seen, since = budget.relieved, trio.current_time()
            health.degrade(Condition.STATE, budget.said)
        elif trio.current_time() - since > CALM_SECONDS:
            health.clear(Condition.STATE)
        await pause(STATE_LOOK_SECONDS)


QUIET_SECONDS = 3.0
"""Time (seconds) without a failure after which the report of missing file descriptors ends."""

Sources = Mapping[str, Source]
_NAMES = ("EMFILE", "ENFILE")


def failures(sources: Sources, figures: Figures) -> dict[str, int]:
    """Return how often the process had no free file descriptor since the daemon started, by the use of the descriptor."""
    found = [source.figures() for source in sources.values()]
    return {
        "connections": sum(each.refused.get(Refusal.DESCRIPTORS, 0) for each in found),
        "files": sum(each.errors.get(name, 0) for each in found for name in _NAMES),
        "admin": figures.admin.refused[AdminRefusal.DESCRIPTORS],
        "log": figures.log_descriptors,
        "store": figures.store_descriptors,
        "upkeep": figures.upkeep_descriptors,
    }


async def watch_descriptors(sources: Sources, context: Context) -> None:
    """Report that the process has no free file descriptors, until cancelled."""
    known: Mapping[str, int] = failures(sources, context.figures)
    failed_at = float("-inf")
    lacking: list[str] = []
    while True:
        await pause(LOOK_SECONDS)
        now, found = context.clock.monotonic(), failures(sources, context.figures)
        if new := [what for what, count in found.items() if count > known.get(what, 0)]:
            failed_at = now
            lacking += [what for what in new if what not in lacking]
        known = found
        if not lacking:
            continue
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = _open(limit)
        if now - failed_at < QUIET_SECONDS or 0 <= limit - RESERVE <= used:
            wanted = needed(context.config)
            context.health.degrade(
                Condition.DESCRIPTORS,
                f"out of descriptors for {', '.join(lacking)}: {used} of {limit} are open, and the last"
                f" {RESERVE} are kept for the table; raise LimitNOFILE= or `ulimit -n` to {wanted}, or lower"
                " connections_max and descriptors_max",
            )
        else:
            context.health.clear(Condition.DESCRIPTORS)
            lacking.clear()


def _open(limit: int) -> int:
    """Return the number of open file descriptors of this process, or `limit` if none is free for counting."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - a count
    except OSError:
        return limit


LISTENERS_LOOK_SECONDS = 1.0


async def watch_listeners(sources: Sources, health: Health, admin: Guard) -> None:
    """Report unusable certificates or tokens of listeners, and lost socket files, until cancelled."""
    while True:
        unusable = [f"admin: {problem}" for problem in admin.problems]
        unreachable: list[str] = []
        for name, source in sources.items():
            figures = source.figures()
            unusable += [f"sources.{name}: {problem}" for problem in figures.problems]
            unreachable += [f"sources.{name}: {figures.unreachable}"] if figures.unreachable else []
        health.follow(Condition.CREDENTIALS, "; ".join(unusable) or None)
        health.follow(Condition.SOCKET, "; ".join(unreachable) or None)
        await pause(LISTENERS_LOOK_SECONDS)
