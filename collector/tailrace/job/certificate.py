"""Create, read and check the job certificate: the stored and the missing events of each rank of a job, and how each
rank and node ended.

A job certificate is one JSON object. Its digest and its signature are computed like those of a run certificate
(`run.certificate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tailrace import __version__
from tailrace.errors import StoreError
from tailrace.job.presence import NodePresence, Presence, RankPresence, RankState, presence
from tailrace.query.engine import Engine
from tailrace.run import certificate as certificates
from tailrace.run.certificate import StreamEvidence, total
from tailrace.run.launcher import alternatives
from tailrace.run.ranks import RankLine
from tailrace.run.summary import lacking, missing_in_words
from tailrace.units import counted

KIND = "tailrace job certificate"
VERSION = 1


class RankEvidence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One rank of a job: when and where it ran, how its program ended, and the event counts of its sessions. Times
    are Unix nanoseconds, or null if unknown."""

    job: str | None
    rank: int
    node: str | None
    state: RankState
    exit_status: int | None
    signal: str | None
    came: int | None
    left: int | None
    last_event: int | None
    """Latest time (Unix ns) of all events of the rank that are in the table."""
    sessions: int
    expected: int
    stored: int
    missing: dict[str, int]
    unknown: bool
    """Whether more events are missing than `missing` counts, because the size of a gap is unknown."""


class JobCertificate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    kind: str
    version: int
    tailrace: str
    store: str
    sizes: dict[str, int]
    """Number of ranks of each job whose launcher states this number. A job without a name has the empty key."""
    nodes: list[NodePresence]
    ranks: list[RankEvidence]
    totals: certificates.Totals
    """Sums over all streams, including the streams of sessions without a rank."""
    streams: list[StreamEvidence]
    sha256: str = ""
    signature: certificates.CertificateSignature | None = None

    @property
    def complete(self) -> bool:
        """Return whether no event of the job is missing and every rank started and ended without being killed."""
        ended = all(rank.state == RankState.ENDED for rank in self.ranks)
        return ended and not self.totals.unknown and not any(self.totals.missing.values())


def certify(store: str, logs: Iterable[list[RankLine]], engine: Engine) -> JobCertificate:
    """Return the certificate of all sessions in the merged store `store`. `logs` are the rank logs of the nodes."""
    there = presence(logs)
    sessions = {session for (session,) in engine.rows("SELECT session FROM sessions")}
    streams = certificates.stream_evidence(engine, sessions)
    certificate = JobCertificate(
        kind=KIND, version=VERSION, tailrace=__version__, store=store,
        sizes={job or "": size for job, size in there.sizes.items()},
        nodes=there.nodes, ranks=ranks(there, streams, engine),
        totals=total(streams, [node for node in there.nodes if node.unknown]), streams=streams,
    )  # fmt: skip
    certificate.sha256 = certificates.digest(certificate).hex()
    return certificate


def ranks(there: Presence, streams: list[StreamEvidence], engine: Engine) -> list[RankEvidence]:
    """Return the state and the event counts of each rank in the rank logs (`there`) or in the table. The state of a
    rank that occurs only in the table is UNKNOWN."""
    query = "SELECT session, job, rank, node FROM part.places"
    places = {session: place for session, *place in engine.rows(query)}
    last = dict(engine.rows("SELECT session, max(last_time) FROM streams GROUP BY session"))
    of_rank: dict[tuple[str | None, int], list[StreamEvidence]] = {}
    known = {(each.job, each.rank): each for each in there.ranks}
    sessions: dict[tuple[str | None, int], set[str]] = {}
    for session, (job, rank, node) in places.items():
        if rank is not None:
            known.setdefault((job, rank), RankPresence(job, rank, node, RankState.UNKNOWN))
            sessions.setdefault((job, rank), set()).add(session)
    for stream in streams:
        job, rank, _ = places.get(stream.session, (None, None, None))
        if rank is not None:
            of_rank.setdefault((job, rank), []).append(stream)
    found = []
    for key, each in sorted(known.items(), key=lambda item: (item[0][0] or "", item[0][1])):
        own, sums = sessions.get(key, set()), total(of_rank.get(key, []))
        times = [at for session in own if (at := last.get(session)) is not None]
        evidence = RankEvidence(
            **each._asdict(), last_event=max(times, default=None), sessions=len(own),
            expected=sums.expected, stored=sums.stored, missing=sums.missing, unknown=sums.unknown,
        )  # fmt: skip
        found.append(evidence)
    return found


def read(path: Path) -> JobCertificate:
    """Return the job certificate in a file. Raise StoreError if the file has no job certificate, or a certificate of
    another version."""
    return certificates.decoded(path, JobCertificate, KIND, VERSION)


def write(certificate: JobCertificate, path: Path) -> Path:
    """Write the certificate to `path` or, if it exists, to the next free numbered name beside it, and return the
    path. Write nothing if the certificate is not signed and an existing file has an equal one. Raise StoreError if a
    file cannot be read or written."""
    for taken in alternatives(path):
        if not taken.exists():
            break
        equal = is_job(taken) and read(taken).sha256 == certificate.sha256
        if equal and certificate.signature is None:
            return taken
    return certificates.write(certificate, path)


def is_job(path: Path) -> bool:
    """Return whether a file contains a JSON object whose member `kind` is that of a job certificate. Raise
    StoreError if the file is unreadable."""
    try:
        kind = msgspec.json.decode(path.read_bytes(), type=_Kind).kind
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return kind == KIND


class _Kind(msgspec.Struct):
    kind: str


def differences(
    certificate: JobCertificate, logs: list[list[RankLine]], engine: Engine
) -> list[str]:
    """Return one line for each difference between a job certificate and the content of the merged store. `logs` are
    the rank logs beside the store's table."""
    found: list[str] = []
    if certificates.digest(certificate).hex() != certificate.sha256:
        found.append("its own digest does not match: the certificate was changed after it was made")
    anew = certify(certificate.store, logs, engine)
    found += [
        f"its {name} differ from what the store has"
        for name in ("totals", "sizes", "nodes")
        if getattr(certificate, name) != getattr(anew, name)
    ]
    found += _compare_ranks(certificate.ranks, anew.ranks)
    return found + list(certificates.compare(certificate.streams, anew.streams))


def _compare_ranks(certified: list[RankEvidence], there: list[RankEvidence]) -> Iterator[str]:
    before = {(rank.job, rank.rank): rank for rank in certified}
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


RANKS_SHOWN = 100
"""Maximum number of ranks that the summary lists one by one. Only ranks that did not end normally or that have
missing events are listed."""


def lines(done: JobCertificate, path: Path) -> Iterator[str]:
    totals = done.totals
    yield f"job certificate {path}: sha256 {done.sha256}"
    yield f"  store: {done.store}; {counted(len(done.nodes), 'node')}"
    for job in sorted({rank.job or "" for rank in done.ranks}):
        states = Counter(rank.state for rank in done.ranks if (rank.job or "") == job)
        size = done.sizes.get(job)
        how_many = "an unknown number of ranks" if size is None else counted(size, "rank")
        words = ", ".join(f"{states[state]} {state}" for state in RankState if states[state])
        yield f"  job {job or 'without a name'}: {how_many}: {words}"
    yield (
        f"  events: {totals.expected} expected, {totals.stored} stored,"
        f" {missing_in_words(totals.missing, totals.unknown)}"
    )
    for node in done.nodes:
        if node.collectors_ended < node.collectors:
            yield f"  node {node.node}: its collector was killed; what it had received is in the table"
        if node.no_room:
            yield f"  node {node.node}: refused, because a limit was reached: {node.no_room:,} connections and datagrams"
        if node.empty:
            yield f"  node {node.node}: {counted(node.empty, 'trace file')} without content"
        if node.empty is None:
            yield f"  node {node.node}: trace files without content could not be searched for"
    odd = [rank for rank in done.ranks if _is_odd(rank)]
    for rank in odd[:RANKS_SHOWN]:
        yield f"  {_rank(rank)}"
    if len(odd) > RANKS_SHOWN:
        yield f"  and {counted(len(odd) - RANKS_SHOWN, 'rank')} more, which the certificate names"
    yield from _without_rank(done)


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
    """Yield lines of text about missing events of sessions without a rank: the number by reason, then each session."""
    of_ranks: Counter[str] = Counter()
    for rank in done.ranks:
        of_ranks.update(rank.missing)
    rest = {r: n - of_ranks[r] for r, n in done.totals.missing.items() if n > of_ranks[r]}
    if rest:
        yield f"  sessions without a rank: {missing_in_words(rest, unknown=False)}"
        yield from (f"    {s.source} session {s.session}" for s in lacking(done.streams))
