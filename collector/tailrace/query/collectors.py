"""Find the collectors that ever wrote to a store, and the health of each, from the heartbeat rows in the table."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tailrace.config.schema import MAIN, OWN_SOURCE
from tailrace.errors import StoreError
from tailrace.query.engine import Engine
from tailrace.store import presence
from tailrace.store.presence import directories, is_held

BEATS_MISSED = 3
"""Number of heartbeat intervals without a new heartbeat after which a collector counts as silent."""

SLACK_SECONDS = 10.0
"""Additional time (seconds) until a collector counts as silent, because the commit of a heartbeat takes time, and the
clocks of two hosts may differ."""

STOPPED, KILLED, SILENT, UNKNOWN = "stopped", "killed", "silent", "unknown"


NAMED = 3
"""Maximum number of collectors on other hosts that a warning lists by name."""


class _About(msgspec.Struct):
    """The attributes of a heartbeat row in the table: facts about the collector that wrote it."""

    collector: str = MAIN
    identity: str = ""
    host: str = ""
    state: str = ""
    conditions: str = ""
    interval_seconds: float = 60.0
    uncommitted_bytes: int | None = None
    spool_bytes: int | None = None
    missing_events: int | None = None


class CollectorHistory(msgspec.Struct, kw_only=True):
    """One collector that has written to the store, with its newest heartbeat. Times are Unix nanoseconds."""

    name: str
    host: str
    identity: str
    """Identity of the collector's spool, by which collectors with equal names are distinguished."""
    since: int
    """Time (Unix ns) at which the collector's latest run started."""
    heartbeat: int
    interval_seconds: float
    """Time (seconds) between two heartbeats of the collector."""
    age_seconds: float
    health: str
    """Health of the collector.

    - `ok` or `degraded`: as the newest heartbeat states.
    - `stopped` or `killed`: how the latest run ended.
    - `silent`: the newest heartbeat is too old.
    - `unknown`: the newest heartbeat lies too far in the future, because the clocks of two hosts differ."""
    conditions: str
    silent_since: int | None
    uncommitted_bytes: int | None
    spool_bytes: int | None
    missing_events: int | None


class _Life(NamedTuple):
    opened: int
    closed: str | None
    heartbeat: int
    about: _About


_LIVES = f"""
    SELECT session, min(opened), min(closed), max(beat), arg_max(about, beat)
    FROM (
        SELECT session,
               CASE WHEN kind = 'session' AND name = 'open' THEN time END AS opened,
               CASE WHEN kind = 'session' AND name = 'close' THEN attributes::JSON ->> 'closed' END AS closed,
               CASE WHEN kind = 'instant' THEN time END AS beat,
               CASE WHEN kind = 'instant' THEN attributes::VARCHAR END AS about
        FROM stored WHERE source = '{OWN_SOURCE}'
    )
    GROUP BY session HAVING max(beat) IS NOT NULL ORDER BY session
"""  # noqa: S608 - our own words


class CollectorWatch:
    """Determines the health of a store's collectors repeatedly, with one database connection."""

    def __init__(self, store: str, options: dict[str, str]) -> None:
        self._store = store
        self._options = options
        self._engine: Engine | None = None

    def look(self, now: int) -> list[CollectorHistory]:
        """Return the collectors of the store with their health at the time `now` (Unix ns), from the newest version
        of the table. Raise QueryError or StoreError if the table cannot be read; the next call then opens it again."""
        engine, self._engine = self._engine, None
        if engine is None:
            engine = Engine(self._store, self._options)
        else:
            engine.refresh()
        try:
            ended = set() if "://" in self._store else gone(Path(self._store))
        except OSError as error:
            why = f"{self._store}: it is unknown which collectors run: {error}"
            raise StoreError(why) from error
        found = collectors(engine, now, ended)
        self._engine = engine
        return found

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def gone(store: Path) -> set[str]:
    """Return the identities of a local store's collectors whose lock no process holds. Raise OSError on failure."""
    return {
        who.identity
        for directory in directories(store).values()
        if (who := presence.introduction_of(directory)) is not None and not is_held(directory)
    }


def collectors(
    engine: Engine, now: int, gone: Container[str] = frozenset()
) -> list[CollectorHistory]:
    """Return the collectors with heartbeats in the table, sorted by name and host, with their health at the time `now`
    (Unix ns). `gone` has the identities of collectors that certainly no longer run."""
    found = []
    for opened, closed, heartbeat, about in _lives(engine):
        age = (now - heartbeat) / 1e9
        bound = BEATS_MISSED * about.interval_seconds + SLACK_SECONDS
        health, since = about.state or UNKNOWN, None
        if closed == "stop":
            health = STOPPED
        elif about.identity in gone:
            health = KILLED
        elif age > bound:
            health, since = SILENT, heartbeat
        elif age < -bound:
            health = UNKNOWN
        found.append(CollectorHistory(
            name=about.collector, host=about.host, identity=about.identity, since=opened, heartbeat=heartbeat,
            interval_seconds=about.interval_seconds, age_seconds=age, health=health, conditions=about.conditions,
            silent_since=since, uncommitted_bytes=about.uncommitted_bytes,
            spool_bytes=about.spool_bytes, missing_events=about.missing_events,
        ))  # fmt: skip
    return sorted(found, key=lambda each: (each.name != MAIN, each.name, each.host, each.since))


def elsewhere(engine: Engine, here: Container[str]) -> str:
    """Return a warning about collectors on other hosts whose newest rows may not be committed yet, or "" if there are
    none. Leave out collectors that shut down normally, and collectors in `here`, because this process can ask them. All
    collectors of a local store run on this host."""
    if engine.table.local:
        return ""
    others = {
        f"{life.about.collector} on {life.about.host or 'a host that it does not name'}"
        for life in _lives(engine)
        if life.closed != "stop" and life.about.identity not in here
    }
    if not others:
        return ""
    names = ", ".join(sorted(others)[:NAMED])
    if len(others) > NAMED:
        names += f" and {len(others) - NAMED} more"
    which = "collector" if len(others) == 1 else "collectors"
    return (
        f"{which} {names}: not stopped, and cannot be asked from here; the table may lack what came in since the last"
        " commit (`tailrace collectors` says how they are)"
    )


def _lives(engine: Engine) -> Iterable[_Life]:
    """Return the latest run of each collector that has heartbeats in the table."""
    lives: dict[str, _Life] = {}
    for session, opened, closed, beat, text in () if engine.empty else engine.rows(_LIVES):
        try:
            about = msgspec.json.decode(text or "{}", type=_About)
        except msgspec.DecodeError:
            about = _About()
        life = _Life(opened or beat, closed, beat, about)
        key = about.identity or f"session {session}"
        if key not in lives or lives[key].heartbeat < beat:
            lives[key] = life
    return lives.values()
