"""Summarise a job certificate for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tailrace.job.certificate import JobCertificate, RankEvidence
from tailrace.job.presence import RankState
from tailrace.run.summary import lacking, missing_in_words
from tailrace.units import counted

RANKS_SHOWN = 100
"""Ranks that get a line, of those that did not end by themselves or lack anything."""


def lines(done: JobCertificate, path: Path) -> Iterator[str]:
    totals = done.totals
    yield f"job certificate {path}: sha256 {done.sha256}"
    yield f"  store: {done.store}; {counted(len(done.nodes), 'node')}"
    for job in sorted({rank.job or "" for rank in done.ranks}):
        yield f"  {_job(done, job)}"
    yield (
        f"  events: {totals.expected} expected, {totals.stored} stored,"
        f" {missing_in_words(totals.missing, totals.unknown)}"
    )
    for node in done.nodes:
        if node.collectors_ended < node.collectors:
            yield f"  node {node.node}: its collector was killed; what it had received is in the table"
    odd = [rank for rank in done.ranks if _is_odd(rank)]
    for rank in odd[:RANKS_SHOWN]:
        yield f"  {_rank(rank)}"
    if len(odd) > RANKS_SHOWN:
        yield f"  and {counted(len(odd) - RANKS_SHOWN, 'rank')} more, which the certificate names"
    yield from _without_rank(done)


def _job(done: JobCertificate, job: str) -> str:
    states = Counter(rank.state for rank in done.ranks if (rank.job or "") == job)
    size = done.sizes.get(job)
    how_many = "an unknown number of ranks" if size is None else counted(size, "rank")
    words = ", ".join(f"{states[state]} {state}" for state in RankState if states[state])
    return f"job {job or 'without a name'}: {how_many}: {words}"


def _is_odd(rank: RankEvidence) -> bool:
    return (
        rank.state != RankState.ENDED
        or bool(rank.exit_status)
        or rank.unknown
        or any(rank.missing.values())
    )


def _rank(rank: RankEvidence) -> str:
    name = f"rank {rank.rank}" + (f" on {rank.node}" if rank.node else "")
    match rank.state:
        case RankState.MISSING:
            how = "never came: it was not started, or not traced"
        case RankState.KILLED:
            how = f"was killed by {rank.signal}" if rank.signal else "was killed"
        case RankState.UNKNOWN:
            how = "is not known to have ended"
        case _:
            how = f"ended with exit status {rank.exit_status}"
    left = f"{counted(rank.stored, 'event')} stored, {missing_in_words(rank.missing, rank.unknown)}"
    if rank.last_event is not None:
        at = datetime.fromtimestamp(rank.last_event / 10**9, UTC)
        left += f", the last at {at:%Y-%m-%d %H:%M:%S.%f}"
    return f"{name} {how}" if rank.state == RankState.MISSING else f"{name} {how}: {left}"


def _without_rank(done: JobCertificate) -> Iterator[str]:
    """Yield what sessions without a rank lack: all that is missing beyond what the ranks lack."""
    of_ranks: Counter[str] = Counter()
    for rank in done.ranks:
        of_ranks.update(rank.missing)
    rest = {r: n - of_ranks[r] for r, n in done.totals.missing.items() if n > of_ranks[r]}
    if rest:
        yield f"  sessions without a rank: {missing_in_words(rest, unknown=False)}"
        yield from (f"    {s.source} session {s.session}" for s in lacking(done.streams))
