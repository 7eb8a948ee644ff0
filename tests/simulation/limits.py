"""Draw small limits of the ledger, so that the behaviour beyond a limit is tested, too.

Each seed draws a few limits and leaves all others at their defaults (swarm testing). The limits are part of the
scenario: the collector has them in all its lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from msgspec.structs import replace

from tailrace.config.schema import LedgerConfig
from tailrace.units import Duration, Size

Draw = Callable[[Random], float]


def _one_of(*values: float) -> Draw:
    return lambda random: random.choice(values)


LIMITS: dict[str, Draw] = {
    "gap_rows_max": _one_of(1, 2, 5),
    "holes_max": _one_of(2, 5, 20),
    "source_holes_max": _one_of(4, 20, 100),
    "reorder_events": _one_of(8, 32, 128),
    "reorder_time": _one_of(0.1, 0.5, 6.0),
    "resume_time": _one_of(15.0, 40.0),
    "sessions_max": _one_of(1, 2),
    "streams_max": _one_of(1, 2),
    "session_state_max": _one_of(2**11, 2**13),
    "source_state_max": _one_of(2**12, 2**14),
    "state_max": _one_of(2**12, 2**14),
}


FORGETFUL = frozenset(
    {"holes_max", "source_holes_max", "session_state_max", "source_state_max", "state_max"}
)
"""Limits beyond which the collector forgets gaps."""


TELLING_RUNS_APART = frozenset({"reorder_time", "streams_max"})
"""Limits beyond which a late event from an address that several programs use may count for the next program there."""


def draw(random: Random, *, announced: bool, shared: bool) -> dict[str, float]:
    """Return some small limits by name; in every other seed none.

    Unless all programs are `announced`, leave out limits that make the collector forget gaps: without an announcement,
    a late event looks like a copy (ARCHITECTURE.md, "Blind spots"). If programs have a `shared` address, leave out
    limits by which the collector knows whose a late event is.
    """
    if random.random() < 0.5:
        return {}
    names = LIMITS.keys() - (TELLING_RUNS_APART if shared else set())
    if not announced:
        names -= FORGETFUL | ({"reorder_events"} if shared else set())
    return {
        name: LIMITS[name](random) for name in random.sample(sorted(names), random.randint(1, 3))
    }


def forget_gaps(limits: dict[str, float]) -> bool:
    """Return whether the collector forgets gaps with these limits."""
    return not FORGETFUL.isdisjoint(limits)


def forgets_connections(limits: Mapping[str, float]) -> bool:
    """Return whether the collector forgets a connection so early that its program may connect again later."""
    return not limits.keys().isdisjoint({"resume_time", "sessions_max"})


def ledger(limits: dict[str, float], places: int) -> LedgerConfig:
    """Return the ledger's configuration with these limits, and with places for the given number of streams."""
    types = {"reorder_time": Duration, "resume_time": Duration}
    types |= dict.fromkeys(("session_state_max", "source_state_max", "state_max"), Size)
    values = {name: types.get(name, int)(value) for name, value in limits.items()}
    return replace(LedgerConfig(source_streams_max=places), **values)
