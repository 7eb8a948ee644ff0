"""Collect what a table has of some sessions, stream by stream: counts, losses, and a digest of every row."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

import msgspec

from tailrace.query.engine import Engine
from tailrace.query.filters import quote
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
FROM gaps {where} ORDER BY source, session, stream, first, "offset", reason, remaining
"""

GAPS_SHOWN = 10

SESSIONS = "SELECT session, format FROM sessions {where}"


Key = tuple[str, str, str]
"""Source, session and stream."""


class StreamEvidence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One stream of one session, where expected = stored + missing. `missing` counts by reason.

    `unknown` says that an unknown number of further events is missing. `rows` and `digest` (SHA-256, hex)
    cover every column of all the stream's rows, including gaps and heals."""

    source: str
    format: str
    session: str
    stream: str
    expected: int
    stored: int
    missing: dict[str, int]
    gaps: list[str]
    """The first gaps in words, at most `GAPS_SHOWN`."""
    unknown: bool
    rows: int
    digest: str


def collect(engine: Engine, sessions: Collection[str]) -> list[StreamEvidence]:
    """Return the streams of these sessions, ordered by source, session and stream."""
    listed = ", ".join(map(quote, sorted(sessions))) or "''"
    where = f"WHERE session IN ({listed})"
    formats = dict(engine.rows(SESSIONS.format(where=where)))
    missing: dict[Key, dict[str, int]] = {}
    unknown: set[Key] = set()
    words: dict[Key, list[str]] = {}
    for source, session, stream, *gap in engine.rows(GAPS.format(where=where)):
        key = (source, session, stream)
        reasons = missing.setdefault(key, {})
        if gap[1] is None:
            unknown.add(key)
        reasons[gap[0]] = reasons.get(gap[0], 0) + (gap[1] or 0)
        if len(said := words.setdefault(key, [])) < GAPS_SHOWN:
            said.append(_in_words(*gap))
    counted = {tuple(row[:3]): row[3:] for row in engine.rows(STREAMS.format(where=where))}
    found: list[StreamEvidence] = []
    for key, rows, digest in _digests(engine, where):
        source, session, stream = key
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
                rows=rows,
                digest=digest,
            )
        )
    return found


def _in_words(
    reason: str, count: int | None, first: int | None, last: int | None, detail: str | None
) -> str:
    where = "" if first is None else f" {first}" if first == last else f" {first} to {last}"
    how_many = "an unknown number of events" if count is None else counted(count, "event")
    return f"{reason}{where}: {how_many}" + (f" ({detail})" if detail else "")


def _digests(engine: Engine, where: str) -> Iterator[tuple[Key, int, str]]:
    """Yield for each stream the number of its rows, and their SHA-256."""
    current: Key | None = None
    digest, count = hashlib.sha256(), 0
    for source, session, stream, text in engine.rows(ROWS.format(where=where)):
        key = (source, session, stream)
        if key != current:
            if current is not None:
                yield current, count, digest.hexdigest()
            current, digest, count = key, hashlib.sha256(), 0
        digest.update(text.encode() + b"\n")
        count += 1
    if current is not None:
        yield current, count, digest.hexdigest()
