"""Check what must hold for the collector itself at the end of a play.

- The log alone determines the rows. An ingest that reads the whole log at once, without kills and checkpoints, makes
  the rows that the table has. Begins are excepted if the table has their spans. One seed in `REPLAY_EVERY` is checked
  in this way.
- Nothing is left in memory: a collector that has ended holds no session, stream, hole or byte. Files are excepted,
  because they continue in the next life.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from tests.ingest.log import applied, as_seen, rows
from tests.simulation.play import Play
from tests.simulation.tail import format_of
from tests.simulation.violation import demand

REPLAY_EVERY = 10
"""The log is read again for one seed in this number: 3, 13, …."""


def check_aftermath(play: Play) -> None:
    """Raise Violation for the first rule that does not hold."""
    if play.scenario.seed % REPLAY_EVERY == 3 and not (
        play.collector.rotten or play.collector.losses.for_good
    ):
        _check_replay(play)
    _check_nothing_left(play)


def _check_replay(play: Play) -> None:
    ingest = applied(sorted(play.collector.book.entries.values()))
    taken = ingest.batch.take()
    for told, stored in zip_longest(_seen(rows(taken)), _seen(play.collector.rows)):
        demand(told == stored, "other rows from the same log", (told, stored))


def _seen(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that readers of the table see. The day of a begin is that of its commit."""
    return [row | {"day": None} if row["kind"] == "begin" else row for row in as_seen(found)]


def _check_nothing_left(play: Play) -> None:
    life = play.collector.life
    assert life is not None
    state, left, files = life.ingest.state, {}, set(play.yard.formats)
    for source in sorted(name for name in state.commons if format_of(name) not in files):
        commons = state.commons[source]
        left |= {
            f"{source} streams": commons.streams,
            f"{source} ranges": commons.ranges,
            f"{source} uncounted": commons.uncounted_sessions,
            f"{source} announced": len(state.announced.get(source, ())),
            f"{source} pending": life.ingest.pending(source),
        }
    left |= {
        "sessions": sum(
            format_of(session.info.source) not in files for session in state.sessions.values()
        ),
        "held": sum(
            n for who, n in life.ingest.budget._held.items() if format_of(who.source) not in files
        ),
        "waiting": life.ingest.waiting,
    }
    demand(not any(left.values()), "something is left", {what: n for what, n in left.items() if n})
