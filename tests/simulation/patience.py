"""Check that a client sends what it has even if the program never flushes, so that no event waits forever."""

from __future__ import annotations

from collections import Counter

from tests.simulation import facts
from tests.simulation.oracle import troubles
from tests.simulation.play import Play
from tests.simulation.violation import none
from tests.simulation.words import Event
from tests.simulation.world import SECOND

PATIENCE = 10 * SECOND
"""Time (ns) that is twice the maximum wait of a client between two attempts."""


def check_patience(play: Play, stored: Counter[Event]) -> None:
    """Raise Violation for an event that a client kept for too long before it was killed.

    Only some clients are checked: those that ask which events arrived, on a network that carries what they send, and
    whose host and connection stay (no `Vanish` or `Tear`). The collector must not be reloaded.
    """
    gone = {f.program for f in play.scenario.facts if isinstance(f, facts.Vanish | facts.Tear)}
    if any(isinstance(fact, facts.Reload) for fact in play.scenario.facts):
        return
    wrong = troubles(play)
    for fact in play.scenario.facts:
        if not isinstance(fact, facts.Kill) or (program := play.programs.get(fact.program)) is None:
            continue
        begin, since = program.begin, fact.at - PATIENCE
        arrives = begin.transport == "tcp" or (begin.transport == "udp" and not play.scenario.fates)
        calm = all(end < since or begun > fact.at for begun, end in wrong)
        if not (arrives and calm and begin.acknowledge) or fact.program in gone:
            continue
        if program.client is None or program.client.discarded:
            continue
        emits = [f for f in play.scenario.facts if isinstance(f, facts.Emit) and f.program == fact.program]  # fmt: skip
        early = sum(f.count for f in emits if f.at + f.over < since)
        if any(f.at + f.over >= since for f in emits):
            continue
        kept = [event for event in program.sent[:early] if event not in stored]
        none("kept for too long", kept)
