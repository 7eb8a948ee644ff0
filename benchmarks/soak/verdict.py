"""Compare the journals of programs with the table: each event is stored once, named missing, or covered by a gap of
unknown size.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.query.asking import ask_all

STRICT = {"heph_tcp", "heph_udp", "ovni", "dftracer", "dftracer_gz", "dftracer_real", "et3"}
"""Kinds of programs that lose nothing, or a known number of events, if they end in order, whatever else happens."""
SILENT = {"jets", "et3"}
"""Kinds whose format does not show that a killed program's last events are missing: a connection without a footer, and a
file without an end mark.
"""
SILENT_SECONDS = 0.5
"""Time (seconds) before the end of a killed program in which such events may be missing."""

_LIFE = r"(?:heph|jets|ovni|dftracer|et3)[a-z_]*-\d{5}"
_SESSIONS = f"""
  SELECT source, session, closed IS NOT NULL AS closed,
    coalesce(nullif(regexp_extract(concat_ws(' ', peer, producer), '{_LIFE}'), ''), emitter, '') AS life
  FROM sessions LEFT JOIN (
    SELECT source, session, any_value(name) AS emitter FROM events
    WHERE format = 'heph' AND regexp_full_match(name, '{_LIFE}') GROUP BY source, session
  ) USING (source, session)"""
"""SQL for the life of each session. A peer whose announcements were lost is known by the names of its events."""
EVENTS = f"""
WITH lives AS ({_SESSIONS}), numbered AS (
  SELECT
    CASE WHEN format IN ('ovni', 'et3') THEN life ELSE name END AS program,
    CASE format
      WHEN 'heph' THEN (attributes ->> '$.n')::BIGINT
      WHEN 'dftracer' THEN (attributes ->> '$.args.step')::BIGINT
      WHEN 'ovni' THEN (attributes ->> '$.value')::BIGINT
      ELSE id - 1 END AS number
  FROM events JOIN lives USING (source, session)
  WHERE kind = CASE format WHEN 'ovni' THEN 'counter' WHEN 'et3' THEN 'instant' ELSE 'span' END
    OR format = 'jets' AND kind = 'begin')
SELECT program, count(*), count(DISTINCT number), min(number), max(number)
FROM numbered WHERE number IS NOT NULL GROUP BY program"""
"""SQL for the stored events of each life."""
GAPS = f"""
WITH lives AS ({_SESSIONS})
SELECT life, coalesce(sum(remaining), 0)::BIGINT, bool_or(remaining IS NULL)::INT
FROM gaps JOIN lives USING (source, session) GROUP BY life"""
"""SQL for the events of each life that gaps name, and whether a gap has an unknown size."""
SESSIONS = (
    f"WITH lives AS ({_SESSIONS}) SELECT life, bool_and(closed)::INT FROM lives GROUP BY life"
)


class Life(NamedTuple):
    """One run of a program, from its start to its end. `over` is the time (seconds) at which it had ended."""

    name: str
    kind: str
    rate: float
    killed: bool
    over: float


class Share(msgspec.Struct, kw_only=True):
    """The events of all lives of a kind. `emitted` is the number in the journals, and the sum of `stored`, `counted`
    (named missing by gaps that state a number), `unknown` (covered by a gap of unknown size), `unshown` (the last events
    of killed programs whose loss no byte shows), `open` (their session is open, so more may come) and `unaccounted`.

    `lacking`: missing events of lives that ended in order, of the kinds `STRICT`. `twice`: rows beyond the first of an event. `invented`: lives with a stored number that was never emitted.
    `overstated`: events that gaps count beyond those that are missing.
    """

    kind: str
    lives: int = 0
    killed: int = 0
    emitted: int = 0
    stored: int = 0
    counted: int = 0
    unknown: int = 0
    unshown: int = 0
    open: int = 0
    unaccounted: int = 0
    lacking: int = 0
    twice: int = 0
    invented: int = 0
    overstated: int = 0
    named: list[str] = []
    """Lives with a fault, as text."""

    @property
    def faults(self) -> int:
        return self.unaccounted + self.twice + self.invented

    def add(self, life: Life, emitted: int, found: Found) -> None:
        """Add a life."""
        self.lives += 1
        self.killed += life.killed
        self.emitted += emitted
        self.stored += found.stored
        missing = max(emitted - found.stored, 0)
        counted = min(missing, found.named)
        rest = missing - counted
        self.counted += counted
        self.overstated += found.named - counted
        self.twice += found.rows - found.stored
        self.invented += found.least < 0 or found.most >= emitted
        if not life.killed and life.kind in STRICT:
            self.lacking += missing
        silent = life.kind in SILENT and rest <= life.rate * SILENT_SECONDS
        if not found.closed:
            self.open += rest
        elif found.unknown and (life.killed or life.kind not in STRICT):
            self.unknown += rest
        elif life.killed and (silent or not found.sessions):
            self.unshown += rest
        else:
            self.unaccounted += rest
            if rest:
                self.named.append(f"{life}: {emitted} emitted, {found}")
        if found.rows > found.stored or found.least < 0 or found.most >= emitted:
            self.named.append(f"{life}: {emitted} emitted, {found}")


class Found(NamedTuple):
    """The content of the table about a life: its rows, how many different events these are, and their numbers."""

    sessions: bool = False
    closed: bool = True
    rows: int = 0
    stored: int = 0
    least: int = 0
    most: int = -1
    named: int = 0
    unknown: int = 0


def compare(store: Path, lives: Iterable[Life], journals: Path, settled: float = inf) -> list[Share]:  # fmt: skip
    """Return the events of each kind of these lives, beside their journals. Rows of other lives are left out.

    The sessions of lives that were not over at the time `settled` (seconds) count as open. Without `settled`, the lives
    must be all that there were: a stored event of another name is invented.
    """
    lives = list(lives)
    events, gaps, sessions = ask_all(store, [EVENTS, GAPS, SESSIONS])
    numbers = {life: counts for life, *counts in events}
    missing = {life: counts for life, *counts in gaps}
    closed = dict(sessions)
    shares = {life.kind: Share(kind=life.kind) for life in lives}
    for life in lives:
        found = Found(
            life.name in closed, bool(closed.get(life.name, 1)) and life.over <= settled,
            *numbers.get(life.name, (0, 0, 0, -1)), *missing.get(life.name, (0, 0)),
        )  # fmt: skip
        emitted = (journals / life.name).stat().st_size
        shares[life.kind].add(life, emitted, found)
    strange = numbers.keys() - {life.name for life in lives}
    if strange and settled == inf:
        shares[""] = Share(kind="", invented=len(strange), named=sorted(map(str, strange)))
    return sorted(shares.values(), key=lambda share: share.kind)
