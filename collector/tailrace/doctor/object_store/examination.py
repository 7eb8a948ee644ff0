"""Run all tests of an endpoint, and delete their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.clock import Clock
from tailrace.doctor.finding import Finding, good
from tailrace.doctor.object_store import cleaning, creating, reaching, rights
from tailrace.doctor.object_store.freshness import Freshness
from tailrace.doctor.object_store.place import CHECK, place_of, unresolved
from tailrace.doctor.object_store.probe import EndpointProbe


def examine(
    url: str, options: Mapping[str, str], environ: Mapping[str, str], clock: Clock
) -> list[Finding]:
    """Return the findings about the endpoint of a store. The table is neither read nor written."""
    place = place_of(url, options, environ)
    if isinstance(place, Finding):
        return [place]
    try:
        addresses = place.addresses()
    except OSError as error:
        return [unresolved(place, error)]
    reached = reaching.reach(place, addresses, clock)
    findings = [*reaching.check(place, reached), *reaching.check_clock(reached)]
    answering = [each.address for each in reached if each.answer.status]
    if answering:
        findings += _probed(EndpointProbe(place, answering, clock))
    return findings


def not_asked_for() -> Finding:
    """Return the finding about a configured store that nobody asked to test."""
    return good(CHECK, "Not tested, because that writes keys there: give its URL as --store.")


def _probed(probe: EndpointProbe) -> Iterator[Finding]:
    try:
        refused = rights.refused(probe)
        yield from rights.check(probe.place, refused)
        if not rights.NEEDED & refused.keys():
            raced = creating.race(probe)
            yield creating.judged(raced, len(probe.addresses))
            freshness = Freshness(probe, deletes=rights.DELETE not in refused)
            freshness.measure({each.key for each in raced if each.winners})
            yield from freshness.findings()
    finally:
        remaining = cleaning.clean(probe)
        for client in probe.clients:
            client.close()
    yield from cleaning.check(probe, remaining)
