"""What the rows of sessions say: how each began and ended is true, and said in the words that are known."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.ingest.test_machine import attributes, of
from tests.simulation.oracle import Violation
from tests.simulation.play import Play

_RESTARTS = frozenset(f"restart: {why}" for why in ("epoch", "session", "counter"))
_ENDS = frozenset(
    {
        "collector ended", "collector restart", "eof", "goodbye", "not resumed", "reset",
        "too many sessions", "too many streams",
    }
)  # fmt: skip
_CLOCK = {"clock", "ticks_per_second", "epoch"}


def check_session_rows(play: Play) -> None:
    """Raise Violation for the first row that is not true."""
    rows = of(play.collector.rows, "session")
    peers = {row["session"]: attributes(row)["peer"] for row in rows if row["name"] == "open"}
    lives = Counter(program.begin.address for program in play.programs.values())
    closing = {p.begin.address for p in play.programs.values() if p.closing is not None}
    for row in rows:
        about, peer = attributes(row), peers.get(row["session"].partition(".")[0])
        if row["name"] == "close":
            why = about["closed"]
            known = why in _ENDS or why in _RESTARTS or why.startswith("resumes ")
            _demand(known, "an end that nobody knows", row)
            _demand(why not in _RESTARTS or lives[peer] > 1, "a restart of nobody", row)
            _demand(why != "goodbye" or peer in closing, "a goodbye that nobody said", row)
        elif row["name"] == "resume" and _CLOCK & about.keys():
            _demand(about.keys() >= _CLOCK, "half a clock", row)


def _demand(holds: bool, kind: str, row: Any) -> None:
    if not holds:
        raise Violation(kind, row)
