"""Check what must hold for the collector itself at the end of a play.

- The log alone determines the rows. An ingest that reads the whole log at once, without kills and checkpoints, makes
  the rows that the table has. Begins are excepted if the table has their spans. One seed in `REPLAY_EVERY` is checked
  in this way.
- Each session's account, in the row of its end, agrees with the rows that the table has of the session.
- Nothing is left in memory: a collector that has ended holds no session, stream, hole or byte. Files are excepted,
  because they continue in the next life.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import zip_longest
from typing import Any

from tailrace.rows.schema import is_own
from tests.ingest.log import applied, as_seen, rows
from tests.simulation.play import Play
from tests.simulation.tail import format_of
from tests.simulation.violation import demand

SIGNS = {"gap": 1, "heal": -1}
ABOUT = {"session", *SIGNS}
"""Kinds of rows whose attributes the collector writes."""

REPLAY_EVERY = 10
"""The log is read again for one seed in this number: 3, 13, …."""


def check_aftermath(play: Play) -> None:
    """Raise Violation for the first rule that does not hold."""
    if play.scenario.seed % REPLAY_EVERY == 3 and not (
        play.collector.rotten or play.collector.losses.for_good
    ):
        _check_replay(play)
    if not (play.collector.rotten or play.collector.losses.for_good):
        check_accounts(play.collector.rows)
    _check_nothing_left(play)


def _check_replay(play: Play) -> None:
    ingest = applied(sorted(play.collector.book.entries.values()))
    taken = ingest.batch.take()
    for told, stored in zip_longest(_seen(rows(taken)), _seen(play.collector.rows)):
        demand(told == stored, "other rows from the same log", (told, stored))


def _seen(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that readers of the table see. The day of a begin is that of its commit."""
    return [row | {"day": None} if row["kind"] == "begin" else row for row in as_seen(found)]


def check_accounts(found: list[dict[str, Any]]) -> int:
    """Compare the accounts of sessions with their rows. Return the number of accounts."""
    accounts: dict[str, dict[str, int]] = {}
    stored, missing = Counter[str](), Counter[str]()
    for row in found:
        about = json.loads(row["attributes"] or "{}") if row["kind"] in ABOUT else {}
        if row["kind"] == "session":
            if is_own(row["kind"], row["name"], row["start"], row["time"]) and "account" in about:
                accounts[row["session"]] = about["account"]
        elif row["kind"] != "begin" and "found_by" not in about:
            stored[row["session"]] += 1
            missing[row["session"]] += SIGNS.get(row["kind"], 0) * (row["missing"] or 0)
    for session, its in accounts.items():
        demand(its["rows"] == stored[session], "other rows than written", (session, its, stored))
        demand(its["missing"] == missing[session], "other gaps", (session, its, missing))
        law = its["seen"] + its["missing"] - its["duplicates"]
        demand(its["expected"] == law, "the account does not add up", (session, its))
    return len(accounts)


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
