"""Define the run certificate: what a program emitted, what is stored, and digests to verify both.

A certificate is one JSON object. Its member `sha256` is the digest of its canonical form: the object without
`sha256` and `signature`, with sorted keys, without white space, in UTF-8. The optional `signature` is an Ed25519
signature over the 32 bytes of the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import structs

from tailrace.errors import StoreError
from tailrace.filesystem import refusal_text
from tailrace.query.engine import Engine
from tailrace.query.filters import quote
from tailrace.run.launcher import alternatives
from tailrace.units import counted

ROWS = """
SELECT source, session, stream, to_json(row)::VARCHAR AS text
FROM stored AS row {where}
ORDER BY source, session, stream, "offset", text
"""

STREAMS = """
SELECT source, session, stream, events, missing
FROM streams {where}
"""

GAPS = """
SELECT source, session, stream, reason, remaining, first, last, detail
FROM gaps {where} ORDER BY source, session, stream, first, "offset", reason, remaining, last, detail
"""

GAPS_SHOWN = 10

SESSIONS = "SELECT session, format FROM sessions {where}"


StreamKey = tuple[str, str, str]


class StreamEvidence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The event counts and the digest of one stream of one session, computed from the table. `expected` is `stored`
    plus all known missing events, which `missing` holds by reason. `unknown` states whether further events may be
    missing. `rows` is the number of the stream's rows, and `digest` the SHA-256 (hex) of all their columns."""

    source: str
    format: str
    session: str
    stream: str
    expected: int
    stored: int
    missing: dict[str, int]
    gaps: list[str]
    unknown: bool
    rows: int
    digest: str


def stream_evidence(engine: Engine, sessions: Collection[str]) -> list[StreamEvidence]:
    """Return the event counts and the digest of each stream of the given sessions, computed from the table."""
    where = _where(sessions)
    formats = dict(engine.rows(SESSIONS.format(where=where)))
    missing: dict[StreamKey, dict[str, int]] = {}
    unknown: set[StreamKey] = set()
    words: dict[StreamKey, list[str]] = {}
    for source, session, stream, *gap in engine.rows(GAPS.format(where=where)):
        key = (source, session, stream)
        reasons = missing.setdefault(key, {})
        if gap[1] is None:
            unknown.add(key)
        reasons[gap[0]] = reasons.get(gap[0], 0) + (gap[1] or 0)
        if len(shown := words.setdefault(key, [])) < GAPS_SHOWN:
            shown.append(_in_words(*gap))
    counted = {tuple(row[:3]): row[3:] for row in engine.rows(STREAMS.format(where=where))}
    digests: dict[StreamKey, tuple[int, str]] = {}
    for key, rows in groupby(engine.rows(ROWS.format(where=where)), itemgetter(0, 1, 2)):
        sha, count = hashlib.sha256(), 0
        for row in rows:
            sha.update(row[3].encode() + b"\n")
            count += 1
        digests[key] = count, sha.hexdigest()
    found: list[StreamEvidence] = []
    # A stream may have no stored row, but only a gap that a view derives from the session's rows.
    for key in sorted(digests.keys() | missing.keys()):
        source, session, stream = key
        number, digest = digests.get(key, (0, _NO_ROWS))
        stored, lost = counted.get(key, (0, 0))
        found.append(
            StreamEvidence(
                source=source,
                format=formats[session],
                session=session,
                stream=stream,
                expected=stored + lost,
                stored=stored,
                missing=missing.get(key, {}),
                gaps=words.get(key, []),
                unknown=key in unknown,
                rows=number,
                digest=digest,
            )
        )
    return found


def _where(sessions: Collection[str]) -> str:
    listed = ", ".join(map(quote, sorted(sessions))) or "''"
    return f"WHERE session IN ({listed})"


def _in_words(
    reason: str, count: int | None, first: int | None, last: int | None, detail: str | None
) -> str:
    where = "" if first is None else f" {first}" if first == last else f" {first} to {last}"
    how_many = "an unknown number of events" if count is None else counted(count, "event")
    return f"{reason}{where}: {how_many}" + (f" ({detail})" if detail else "")


_NO_ROWS = hashlib.sha256().hexdigest()


COSTS = """
SELECT producer ->> '$.cost' FROM sessions {where} AND producer ->> '$.client' IS NOT NULL
"""


class ClientCost(msgspec.Struct):
    """The cost of tracing in one process, as its client states at the end: CPU times in ns.

    `emitting` is an estimate, because the client times only `sampled` of its `events`. `sending` is the time of the
    thread that sends. `program` is the time of the whole process."""

    events: int
    sampled: int
    emitting: int
    sending: int
    program: int


class TracingCost(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The cost of tracing in those of the run's processes that state this cost: sums over the processes, CPU times in
    ns.

    `processes` is the number of sessions of clients, and `stating` the number of those that state their cost. `tracing`
    is an estimate, because clients time only `sampled` of their `events`. `program` is the time of the processes."""

    processes: int = 0
    stating: int = 0
    events: int = 0
    sampled: int = 0
    tracing: int = 0
    program: int = 0

    def add(self, stated: str | None) -> None:
        """Add the cost of one process. `stated` is the JSON of its `ClientCost`, or None if the process does not state
        its cost."""
        self.processes += 1
        try:
            cost = msgspec.json.decode(stated or "", type=ClientCost)
        except msgspec.DecodeError:
            return
        if (
            0 < cost.sampled <= cost.events
            and cost.emitting >= 0
            and cost.sending >= 0
            and 0 < cost.emitting + cost.sending <= cost.program
        ):
            self.stating += 1
            self.events += cost.events
            self.sampled += cost.sampled
            self.tracing += cost.emitting + cost.sending
            self.program += cost.program


def tracing_cost(engine: Engine, sessions: Collection[str]) -> TracingCost:
    """Return what tracing cost the processes with these sessions, from the costs that their clients state."""
    found = TracingCost()
    for (stated,) in engine.rows(COSTS.format(where=_where(sessions))):
        found.add(stated)
    return found


KIND = "tailrace run certificate"
VERSION = 1


class Program(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The program that the run executed. Times are Unix nanoseconds."""

    arguments: list[str]
    exit_status: int
    started: int
    ended: int


class Machine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    host: str
    system: str
    release: str
    architecture: str
    processors: int


class Totals(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Sums of `StreamEvidence` over all streams. `unknown` states whether a stream lacks an unknown number of
    events."""

    expected: int
    stored: int
    missing: dict[str, int]
    unknown: bool


class CertificateSignature(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An Ed25519 signature of a certificate: the signature itself and the public key, both in hex."""

    public_key: str
    value: str


class Signed(Protocol):
    """The members that a run certificate and a job certificate have in common."""

    kind: str
    version: int
    sha256: str
    signature: CertificateSignature | None


C = TypeVar("C", bound=Signed)


class Certificate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    kind: str
    version: int
    program: Program
    machine: Machine
    versions: dict[str, str]
    """Versions of Tailrace, Python and the packages that the run used, by name."""
    store: str
    max_loss: int
    """The maximum number of missing events that the user accepts. An unknown number of missing events counts as
    more."""
    totals: Totals
    streams: list[StreamEvidence]
    tracing: TracingCost | None = None
    """The cost of tracing to the program; None if no process used a client."""
    no_room: dict[str, int] = {}
    """Number of connections and datagrams that were refused because a limit was reached, by cause."""
    empty: list[str] = []
    """Paths of the trace files that the program left without content, whose events are unknown."""
    sha256: str = ""
    signature: CertificateSignature | None = None

    @property
    def complete(self) -> bool:
        return not self.totals.unknown and not any(self.totals.missing.values())

    @property
    def within_budget(self) -> bool:
        return not self.totals.unknown and sum(self.totals.missing.values()) <= self.max_loss

    @property
    def untraced(self) -> bool:
        """Return whether the program succeeded but emitted no event at all, neither stored nor missing."""
        return not self.streams and self.program.exit_status == 0


def total(streams: list[StreamEvidence], *unknown: Collection[object]) -> Totals:
    """Return the sums over `streams`. The result's `unknown` is also true if one of the collections `unknown` is not
    empty."""
    missing: dict[str, int] = {}
    for stream in streams:
        for reason, count in stream.missing.items():
            missing[reason] = missing.get(reason, 0) + count
    return Totals(
        expected=sum(stream.expected for stream in streams),
        stored=sum(stream.stored for stream in streams),
        missing=missing,
        unknown=any(unknown) or any(stream.unknown for stream in streams),
    )


def digest(certificate: Signed) -> bytes:
    """Return the SHA-256 (32 bytes) of the canonical form of a run certificate or a job certificate."""
    content = msgspec.to_builtins(certificate)
    content.pop("sha256", None)
    content.pop("signature", None)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()


def write(certificate: Signed, path: Path) -> Path:
    """Write the certificate to a new file, and return its path: `path`, or the next free numbered name beside it.
    Raise StoreError if it cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(certificate), indent=2)
    for free in alternatives(path):
        try:
            with free.open("xb") as file:
                file.write(text + b"\n")
        except FileExistsError:
            continue
        except OSError as error:
            # Remove the certificate, which was written only partly
            with suppress(OSError):
                free.unlink(missing_ok=True)
            raise StoreError(f"{free}: {refusal_text(error.errno, free)}") from error
        return free
    raise AssertionError("there is always a next name")


def read(path: Path) -> Certificate:
    """Read a run certificate. Raise StoreError if the file contains no valid run certificate of a supported version."""
    return decoded(path, Certificate, KIND, VERSION)


def decoded(path: Path, type_: type[C], kind: str, version: int) -> C:
    """Decode a run certificate or a job certificate. Raise StoreError if the JSON is not a certificate of this `kind`
    and `version`, or has unknown or repeated members: the digest does not cover them, but another program might rely on
    them."""
    what = kind.removeprefix("tailrace ")
    try:
        text = path.read_bytes()
        certificate = msgspec.json.decode(text, type=type_)
        json.loads(text, object_pairs_hook=_once)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: is not a {what}: {error}") from error
    if (certificate.kind, certificate.version) != (kind, version):
        raise StoreError(f"{path}: is not a {what} of version {version}")
    return certificate


def _once(members: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise ValueError(f"the member {name!r} occurs twice")
        seen.add(name)


def differences(certificate: Certificate, engine: Engine) -> list[str]:
    """Return one line for each difference between a certificate and the table; an empty list if they agree."""
    found: list[str] = []
    if digest(certificate).hex() != certificate.sha256:
        found.append("its own digest does not match: the certificate was changed after it was made")
    if total(certificate.streams, certificate.no_room, certificate.empty) != certificate.totals:
        found.append("its totals are not the sums of its streams")
    sessions = {stream.session for stream in certificate.streams}
    return found + list(compare(certificate.streams, stream_evidence(engine, sessions)))


def compare(certified: list[StreamEvidence], there: list[StreamEvidence]) -> Iterator[str]:
    """Yield one line for each stream whose counts or digest differ between a certificate and the table."""
    before, now = (
        {(each.source, each.session, each.stream): structs.asdict(each) for each in streams}
        for streams in (certified, there)
    )
    for key in sorted(before.keys() | now.keys()):
        name = f"{key[0]}, session {key[1]}, stream {key[2] or '(whole session)'}"
        if key not in now:
            yield f"{name}: is not in the table"
        elif key not in before:
            yield f"{name}: is in the table but not in the certificate"
        else:
            changed = [
                "its rows differ from the certified rows"
                if field == "digest"
                else f"{field} was {then}, is {now[key][field]}"
                for field, then in before[key].items()
                if then != now[key][field]
            ]
            if changed:
                yield f"{name}: {', '.join(changed)}"
