"""The other collectors of a local store, as a start that is alone in it sees them: what their spools still have.

A repair may take out versions that hold their rows, if these rows come again from their spools (see
`store.recovery`). None of them runs meanwhile (`store.presence`), so their spools may be opened here.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from tailrace.clock import Clock
from tailrace.config.schema import SpoolConfig
from tailrace.daemon.replay import refills
from tailrace.errors import TailraceError
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.spool import Spool
from tailrace.store import presence
from tailrace.store.recovery import Refills

logger = logging.getLogger(__name__)


def neighbours(store: Path, own: Path, config: SpoolConfig, clock: Clock) -> dict[str, Refills]:
    """Return what the spools of the collectors in `store` can give again, by their identities, without that of the
    collector whose directory is `own`. Raise OSError where this process may not look."""
    found: dict[str, Refills] = {}
    for directory in presence.directories(store).values():
        who = presence.introduction_of(directory)
        if who is not None and directory != own:
            found[who.identity] = partial(_refills, directory, who, config, clock)
    return found


def _refills(
    directory: Path,
    who: presence.Introduction,
    config: SpoolConfig,
    clock: Clock,
    position: int | None,
) -> bool:
    """Return whether a collector's spool still has all rows from a position on.

    If it has any, note that the collector has not finished: these rows may be taken out of the table next."""
    path = Path(who.spool)
    if not path.is_dir():
        return False
    try:
        spool = Spool.open(path, config, clock)
    except (TailraceError, OSError) as error:
        logger.warning("the spool of another collector cannot be read: %s", error)
        return False
    try:
        has = spool.identity == who.identity and refills(spool, Checkpoints(path), position)
        if has and (position or 0) < spool.end:
            presence.begin(directory)
        return has
    finally:
        spool.close()
