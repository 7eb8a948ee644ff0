"""Check the rows of sessions: they state truly how each session began and ended, and use only known words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.ingest.test_machine import attributes, of
from tests.simulation.book import Row
from tests.simulation.play import Play
from tests.simulation.tail import format_of
from tests.simulation.violation import demand

_RESTARTS = frozenset(f"restart: {why}" for why in ("epoch", "session", "counter", "header"))
_ENDS = frozenset(
    {
        "collector ended", "collector restart", "eof", "goodbye", "not resumed", "reset",
        "source removed", "stop", "too many new sessions", "too many sessions",
        "too many streams",
    }
)  # fmt: skip
_TELLING = {"event", "tailrace.goodbye", "tailrace.report"}
"""Kinds of rows by which it can be known whether a program is the same as the one before."""
_CLOCK = {"clock", "ticks_per_second", "epoch"}


def check_session_rows(play: Play) -> None:
    """Raise Violation for the first row that is not true."""
    rows = [
        r
        for r in of(play.collector.rows, "session")
        if format_of(r["source"]) not in play.yard.formats
    ]
    peers = {row["session"]: attributes(row)["peer"] for row in rows if row["name"] == "open"}
    lives = Counter(program.begin.address for program in play.programs.values())
    closing = {p.begin.address for p in play.programs.values() if p.closing is not None}
    names = {p.client.emitter.session for p in play.programs.values() if p.client is not None}
    for row in rows:
        about, peer = attributes(row), peers.get(row["session"].partition(".")[0])
        if row["name"] == "close":
            why = about["closed"]
            known = why in _ENDS or why in _RESTARTS or why.startswith(("resumes ", "reset: "))
            demand(known, "an end that nobody knows", row)
            # A copy of a JETS header looks like a restart.
            alone = row["format"] == "heph" and lives[peer] == 1
            true = not (why in _RESTARTS and alone) or stays_in_doubt(
                play.collector.rows, row["session"]
            )
            demand(true, "a restart of nobody", row)
            demand(why != "goodbye" or peer in closing, "a goodbye that nobody said", row)
        elif row["name"] == "tailrace.session":
            demand(about["session"] in names, "a session of no client", row)
        elif row["name"] == "resume" and _CLOCK & about.keys():
            demand(about.keys() >= _CLOCK, "half a clock", row)


def stays_in_doubt(rows: Sequence[Row], session: str) -> bool:
    """Return whether it stays unknown if a session and the next one are of the same program: the first one had no
    epoch, and nothing followed the epoch or announcement of the next one (ARCHITECTURE.md, "Blind spots").
    """
    base, _, number = session.partition(".")
    following = f"{base}.{int(number or 0) + 1}"
    said = {name: set[str]() for name in (session, following)}
    for row in rows:
        if row["session"] in said:
            said[row["session"]].add("event" if row["kind"] == "span" else str(row["name"]))
    introduced = not said[session].isdisjoint({"epoch", "resume"})
    return not introduced and said[following].isdisjoint(_TELLING)
