"""Delete the keys that the tests wrote, and say which remain."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.doctor.finding import Finding, Severity, good, plural
from tailrace.doctor.object_store.probe import EndpointProbe, pages

CHECK = "endpoint clean-up"

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


def check(probe: EndpointProbe, remaining: dict[str, str]) -> Iterator[Finding]:
    if not remaining:
        count = plural(len(probe.written), "key")
        yield good(CHECK, f"The {count} of this examination are deleted.", keys=len(probe.written))
        return
    key, why = next(iter(remaining.items()))
    yield Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{plural(len(remaining), 'key')} of this examination may remain: {key}: {why}.",
        why="They are no part of the table, and nothing else removes them.",
        commands=[f"aws s3 rm --recursive {probe.url(probe.folder)}"],
        figures={"remaining": len(remaining)},
    )
