"""Check the memory that the ingest holds: it must stay within its budgets at every step."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.units import Size
from tests.simulation.facts import Scenario
from tests.simulation.limits import ledger
from tests.simulation.violation import demand

SESSION_BYTES, STREAM_BYTES = 4096, 1024
"""Maximum size (bytes) that a session and a stream take in a snapshot, in addition to what the budgets count."""


def limits_of(scenario: Scenario) -> LedgerConfig:
    """Return the configuration of the limits that a scenario gives its collector."""
    limits = ledger(scenario.limits, scenario.places)
    if not scenario.state:
        return limits
    return replace(
        limits,
        session_state_max=Size(scenario.state),
        source_state_max=Size(2 * scenario.state),
        state_max=Size(3 * scenario.state),
    )


def check(ingest: Ingest, limits: LedgerConfig) -> None:
    """Raise Violation if sessions hold more memory than they may.

    The sums are computed again from what each session holds.
    """
    sources: Counter[str] = Counter()
    for holder in ingest.budget._held:
        held = sum(holding.held for holding in holder.holdings)
        demand(held <= limits.session_state_max, "a session over its budget", (holder.name, held))
        sources[holder.source] += held
    for source, held in sources.items():
        demand(held <= limits.source_state_max, "a source over its budget", (source, held))
        streams = ingest.common(source).state.streams
        demand(streams <= limits.source_streams_max, "more streams than places", (source, streams))
    held = sources.total()
    demand(held <= limits.state_max, "all sources over their budget", held)
    counted = ingest.budget.total
    demand(held <= counted, "more held than was counted", (held, counted))


def check_snapshot(snapshot: bytes, ingest: Ingest, limits: LedgerConfig) -> None:
    """Raise Violation if the whole state is larger than the budgets, sessions and streams explain."""
    streams = sum(common.streams for common in ingest.state.commons.values())
    departed = sum(
        SESSION_BYTES + STREAM_BYTES * len(each.streams)
        for some in ingest.state.departures.values()
        for each in some
    )
    sessions = len(ingest.state.sessions) + sum(map(len, ingest.state.announced.values()))
    most = limits.state_max + STREAM_BYTES * streams + SESSION_BYTES * (sessions + 1) + departed
    size = len(snapshot)
    demand(size <= most, "a snapshot over the budgets", (size, most, streams, sessions))
