"""Run all tests of an endpoint, and delete their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.clock import Clock
from tailrace.doctor.finding import Finding, Severity, good, plural
from tailrace.doctor.object_store import creating, reaching, rights
from tailrace.doctor.object_store.client import EndpointProbe, pages
from tailrace.doctor.object_store.freshness import Freshness
from tailrace.doctor.object_store.place import CHECK, place_of, unresolved


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
        remaining = clean(probe)
        for client in probe.clients:
            client.close()
    yield from check_remaining(probe, remaining)


KEYS_CHECK = "endpoint clean-up"

NOT_FOUND = 404
"""There is no such object, or not even the bucket."""


def clean(probe: EndpointProbe) -> dict[str, str]:
    """Delete all keys of this examination. Return those that remain, or may, each with why."""
    client = probe.clients[0]
    remaining = {}
    for key in sorted(probe.written):
        answer = client.delete(key)
        if not answer.done and answer.status != NOT_FOUND:
            remaining[key] = str(answer)
    listed = list(pages(client, probe.folder))
    if listed[-1].answer.done:
        found = {key for page in listed for key in page.keys}
        remaining = {key: remaining.get(key, "it is still listed") for key in found}
    return remaining


def check_remaining(probe: EndpointProbe, remaining: dict[str, str]) -> Iterator[Finding]:
    if not remaining:
        count = plural(len(probe.written), "key")
        yield good(
            KEYS_CHECK, f"The {count} of this examination are deleted.", keys=len(probe.written)
        )
        return
    key, why = next(iter(remaining.items()))
    yield Finding(
        check=KEYS_CHECK,
        severity=Severity.PROBLEM,
        what=f"{plural(len(remaining), 'key')} of this examination may remain: {key}: {why}.",
        why="They are no part of the table, and nothing else removes them.",
        commands=[f"aws s3 rm --recursive {probe.url(probe.folder)}"],
        figures={"remaining": len(remaining)},
    )
