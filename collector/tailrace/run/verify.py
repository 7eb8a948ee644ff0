"""Compare a certificate with the table, by computing everything in it anew."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.query.engine import Engine
from tailrace.run.certificate import Certificate, digest, total
from tailrace.run.evidence import Key, StreamEvidence, collect


def differences(certificate: Certificate, engine: Engine) -> list[str]:
    """Return a line for each difference, or nothing if the certificate holds."""
    found: list[str] = []
    if digest(certificate).hex() != certificate.sha256:
        found.append("its own digest does not match: the certificate was changed after it was made")
    if total(certificate.streams, certificate.no_room) != certificate.totals:
        found.append("its totals are not the sums of its streams")
    sessions = {stream.session for stream in certificate.streams}
    return found + list(compare(certificate.streams, collect(engine, sessions)))


def compare(said: list[StreamEvidence], there: list[StreamEvidence]) -> Iterator[str]:
    """Yield a line for each stream that differs."""
    before, now = _by_key(said), _by_key(there)
    for key in sorted(before.keys() | now.keys()):
        name = f"{key[0]}, session {key[1]}, stream {key[2] or '(whole session)'}"
        if key not in now:
            yield f"{name}: is not in the table"
        elif key not in before:
            yield f"{name}: is in the table but not in the certificate"
        elif before[key] != now[key]:
            yield f"{name}: {', '.join(_changed(before[key], now[key]))}"


def _changed(said: StreamEvidence, there: StreamEvidence) -> Iterator[str]:
    for field in StreamEvidence.__struct_fields__:
        then, now = getattr(said, field), getattr(there, field)
        if then != now and field == "digest":
            yield "its rows differ from the certified rows"
        elif then != now:
            yield f"{field} was {then}, is {now}"


def _by_key(streams: list[StreamEvidence]) -> dict[Key, StreamEvidence]:
    return {(s.source, s.session, s.stream): s for s in streams}
