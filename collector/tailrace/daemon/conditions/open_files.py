"""Conditions of the daemon while file descriptors are short, or while a listener is not what the configuration says: its
credentials cannot be used, or the file of its socket is gone.

The last usable contents of certificates and tokens stay in use, so that somebody can mend the files before a peer is
turned away.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from tailrace.config.check import needed
from tailrace.daemon.context import Context, Health
from tailrace.figures import AdminRefusal, Condition, Figures
from tailrace.rhythm import pause
from tailrace.security.guard import Guard
from tailrace.sources.source import RESERVE, Refusal, Source

LOOK_SECONDS = 0.5

QUIET_SECONDS = 3.0
"""Seconds without a failure after which descriptors count as free again."""

Sources = Mapping[str, Source]
"""The sources of the configuration that runs, by name."""

_NAMES = ("EMFILE", "ENFILE")


def failures(sources: Sources, figures: Figures) -> dict[str, int]:
    """Return how often no descriptor was free since the daemon started, by purpose."""
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
    """Look until cancelled."""
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
    """Return how many descriptors are open; all of them if even the question needs one."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - a count
    except OSError:
        return limit


LISTENERS_LOOK_SECONDS = 1.0


async def watch_listeners(sources: Sources, health: Health, admin: Guard) -> None:
    """Look until cancelled."""
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
