"""Find the collectors that ever wrote to a store, and their health, from the heartbeats in the table.

The table is the only source of facts about a collector on another host. If the newest heartbeat of a
collector is too old, the collector counts as *silent*, whatever health the heartbeat reported, because its
current health is unknown.
"""

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
"""Number of heartbeat intervals after which a collector without a new heartbeat counts as silent."""

SLACK_SECONDS = 10.0
"""Additional time (seconds) before a collector counts as silent. The time covers the commit of a heartbeat
and the difference of clocks."""

STOPPED, KILLED, SILENT, UNKNOWN = "stopped", "killed", "silent", "unknown"


NAMED = 3
"""Maximum number of collectors on other hosts that an answer names."""

ELSEWHERE = (
    "{which} {names}: not stopped, and cannot be asked from here; the table may lack what came in since the last commit"
    " (`tailrace collectors` says how they are)"
)


class _About(msgspec.Struct):
    """The attributes of a heartbeat row."""

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
    """One collector and the figures of its newest heartbeat. Times are Unix nanoseconds. None means
    unknown."""

    name: str
    host: str
    identity: str
    """Identity of the collector's spool, which identifies the collector in the table."""
    since: int
    """Start of the collector's current or last run."""
    heartbeat: int
    interval_seconds: float
    """Time between the collector's heartbeats."""
    age_seconds: float
    health: str
    """Health of the collector: `ok` or `degraded` as the collector reports; `stopped`; `killed`; `silent` if
    the newest heartbeat is too old; `unknown` if the collector's clock is ahead."""
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
    """Watches the collectors of one store, with one engine for repeated looks."""

    def __init__(self, store: str, options: dict[str, str]) -> None:
        self._store = store
        self._options = options
        self._engine: Engine | None = None

    def look(self, now: int) -> list[CollectorHistory]:
        """Return the collectors at the time `now` (Unix ns), from the newest version of the table. Raise
        QueryError or StoreError.

        After an error, the next call opens the table again."""
        engine, self._engine = self._engine, None
        if engine is None:
            engine = Engine(self._store, self._options)
        else:
            engine.refresh()
        try:
            ended = set() if "://" in self._store else gone(Path(self._store))
        except OSError as error:
            raise StoreError(
                f"{self._store}: nobody can tell which collectors run: {error}"
            ) from error
        found = collectors(engine, now, ended)
        self._engine = engine
        return found

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def gone(store: Path) -> set[str]:
    """Return the identities of a local store's collectors whose lock no process holds. Raise OSError."""
    found = set()
    for directory in directories(store).values():
        who = presence.introduction_of(directory)
        if who is not None and not is_held(directory):
            found.add(who.identity)
    return found


def collectors(
    engine: Engine, now: int, gone: Container[str] = frozenset()
) -> list[CollectorHistory]:
    """Return the collectors that have heartbeats in the table, at the time `now` (Unix ns), sorted by name
    and host. The collectors with an identity in `gone` do not run any more.

    Raise QueryError or StoreError."""
    found = [_history(life, now, ended=life.about.identity in gone) for life in _lives(engine)]
    return sorted(found, key=lambda each: (each.name != MAIN, each.name, each.host, each.since))


def elsewhere(engine: Engine, here: Container[str]) -> str:
    """Return a warning that names the collectors on other hosts that may have received rows which the
    snapshot lacks. Return an empty text if no collector on another host may have more rows.

    Collectors with an identity in `here` can be asked directly. For any other collector, only a clean
    shutdown proves that no rows will follow, because rows after the newest heartbeat may not be committed
    yet. For a local store, `live.ask` reads the collectors' directories instead. Raise QueryError or
    StoreError."""
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
    return ELSEWHERE.format(which="collector" if len(others) == 1 else "collectors", names=names)


def _lives(engine: Engine) -> Iterable[_Life]:
    """Return the newest run of each collector."""
    lives: dict[str, _Life] = {}
    for session, opened, closed, beat, text in () if engine.empty else engine.rows(_LIVES):
        about = _about(text)
        life = _Life(opened or beat, closed, beat, about)
        key = about.identity or f"session {session}"
        if key not in lives or lives[key].heartbeat < beat:
            lives[key] = life
    return lives.values()


def _about(text: str | None) -> _About:
    try:
        return msgspec.json.decode(text or "{}", type=_About)
    except msgspec.DecodeError:
        return _About()


def _history(life: _Life, now: int, *, ended: bool) -> CollectorHistory:
    about = life.about
    age = (now - life.heartbeat) / 1e9
    bound = BEATS_MISSED * about.interval_seconds + SLACK_SECONDS
    health, since = about.state or UNKNOWN, None
    if life.closed == "stop":
        health = STOPPED
    elif ended:
        health = KILLED
    elif age > bound:
        health, since = SILENT, life.heartbeat
    elif age < -bound:
        health = UNKNOWN
    return CollectorHistory(
        name=about.collector, host=about.host, identity=about.identity, since=life.opened,
        heartbeat=life.heartbeat, interval_seconds=about.interval_seconds, age_seconds=age, health=health, conditions=about.conditions,
        silent_since=since, uncommitted_bytes=about.uncommitted_bytes,
        spool_bytes=about.spool_bytes, missing_events=about.missing_events,
    )  # fmt: skip
