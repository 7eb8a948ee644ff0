"""Compare a job certificate with the merged store, by computing everything in it anew."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.job.certificate import JobCertificate, RankEvidence, certify
from tailrace.query.engine import Engine
from tailrace.run.certificate import digest
from tailrace.run.ranks import RankLine
from tailrace.run.verify import compare


def differences(
    certificate: JobCertificate, logs: list[list[RankLine]], engine: Engine
) -> list[str]:
    """Return a line for each difference, or nothing if the certificate holds. `logs` are those beside the table."""
    found: list[str] = []
    if digest(certificate).hex() != certificate.sha256:
        found.append("its own digest does not match: the certificate was changed after it was made")
    anew = certify(certificate.store, logs, engine)
    found += [
        f"its {name} differ from what the store has"
        for name in ("totals", "sizes", "nodes")
        if getattr(certificate, name) != getattr(anew, name)
    ]
    found += _compare_ranks(certificate.ranks, anew.ranks)
    return found + list(compare(certificate.streams, anew.streams))


def _compare_ranks(said: list[RankEvidence], there: list[RankEvidence]) -> Iterator[str]:
    before = {(rank.job, rank.rank): rank for rank in said}
    now = {(rank.job, rank.rank): rank for rank in there}
    for key in sorted(before.keys() | now.keys(), key=lambda key: (key[0] or "", key[1])):
        name = f"rank {key[1]}" + (f" of job {key[0]}" if key[0] else "")
        if key not in now:
            yield f"{name}: is not in the store"
        elif key not in before:
            yield f"{name}: is in the store but not in the certificate"
        elif before[key] != now[key]:
            changed = [
                f"{field} was {getattr(before[key], field)}, is {getattr(now[key], field)}"
                for field in RankEvidence.__struct_fields__
                if getattr(before[key], field) != getattr(now[key], field)
            ]
            yield f"{name}: {', '.join(changed)}"
