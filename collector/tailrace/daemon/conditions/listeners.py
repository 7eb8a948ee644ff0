"""Conditions of the daemon while a listener is not what the configuration says: its credentials cannot be used, or the file
of its socket is gone.

The last usable contents of certificates and tokens stay in use, so that somebody can mend the files before a peer is
turned away.
"""

from __future__ import annotations

from tailrace.daemon.daemon import Daemon
from tailrace.figures import Condition
from tailrace.rhythm import pause
from tailrace.security.guard import Guard

LOOK_SECONDS = 1.0


async def run(daemon: Daemon, admin: Guard) -> None:
    """Look until cancelled."""
    while True:
        unusable = [f"admin: {problem}" for problem in admin.problems]
        unreachable: list[str] = []
        for name, source in daemon.sources.items():
            figures = source.figures()
            unusable += [f"sources.{name}: {problem}" for problem in figures.problems]
            unreachable += [f"sources.{name}: {figures.unreachable}"] if figures.unreachable else []
        daemon.health.follow(Condition.CREDENTIALS, "; ".join(unusable) or None)
        daemon.health.follow(Condition.SOCKET, "; ".join(unreachable) or None)
        await pause(LOOK_SECONDS)
