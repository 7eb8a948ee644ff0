"""A condition of the daemon while files of certificates or tokens cannot be used.

The last usable contents stay in use, so that somebody can mend the files before a peer is turned away.
"""

from __future__ import annotations

from tailrace.daemon.daemon import Daemon
from tailrace.figures import Condition
from tailrace.rhythm import pause
from tailrace.security.guard import Guard

LOOK_SECONDS = 1.0


async def run(daemon: Daemon, admin: Guard) -> None:
    while True:
        found = [f"admin: {problem}" for problem in admin.problems]
        for name, source in daemon.sources.items():
            found += [f"sources.{name}: {problem}" for problem in source.figures().problems]
        if found:
            daemon.health.degrade(Condition.CREDENTIALS, "; ".join(found))
        else:
            daemon.health.clear(Condition.CREDENTIALS)
        await pause(LOOK_SECONDS)
