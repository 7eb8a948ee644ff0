"""What the rows of sessions say: how each began and ended is true, and said in the words that are known."""

from __future__ import annotations

from collections import Counter

from tests.ingest.test_machine import attributes, of
from tests.simulation.play import Play
from tests.simulation.violation import demand

_RESTARTS = frozenset(f"restart: {why}" for why in ("epoch", "session", "counter", "header"))
_ENDS = frozenset(
    {
        "collector ended", "collector restart", "eof", "goodbye", "not resumed", "reset",
        "source removed", "stop", "too many sessions", "too many streams",
    }
)  # fmt: skip
_CLOCK = {"clock", "ticks_per_second", "epoch"}


def check_session_rows(play: Play) -> None:
    """Raise Violation for the first row that is not true."""
    rows = [r for r in of(play.collector.rows, "session") if r["source"] not in play.yard.formats]
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
            alone = (
                row["format"] == "heph" and lives[peer] == 1
            )  # a copied JETS header is a restart
            demand(not (why in _RESTARTS and alone), "a restart of nobody", row)
            demand(why != "goodbye" or peer in closing, "a goodbye that nobody said", row)
        elif row["name"] == "tailrace.session":
            demand(about["session"] in names, "a session of no client", row)
        elif row["name"] == "resume" and _CLOCK & about.keys():
            demand(about.keys() >= _CLOCK, "half a clock", row)
