"""The records that a session's rows were made of, in the order of its bytes.

The ingest turns records into rows; this goes back, as far as rows allow. A span that a record of its own
ended stands for two records, at `offset` and at `end_offset`. Bytes that nobody could read are taken from the quarantine.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tailrace.model.quarantine import QuarantineFrame
from tailrace.model.record import FLAW_OF_ROW, Kind, Record, malformed

OWN = frozenset(
    {
        "open", "moved", "restart", "resume", "continue", "rest", "evicted", "gave_way", "leave", "close",
    }
)  # fmt: skip
"""Session rows of the collector itself, which have a time and no start."""

ROWS = """
SELECT *, "offset" AS "at", false AS ends FROM part.stored_rows
UNION ALL
SELECT *, end_offset AS "at", true AS ends FROM part.stored_rows WHERE end_offset IS NOT NULL
"""
"""All rows, those of two records twice."""

COLUMNS = """
  "at", ends, end_offset IS NOT NULL AS spans, stream, substream, seq, kind, name, category, id, parent, start, "end",
  time, attributes
"""
"""The columns of a `StoredRow`."""

ORDER = "\"at\", ends DESC, session, kind <> 'session' OR start IS NOT NULL, seq, time"
"""The order of a session's rows: a row about the session stands before the rows that it describes."""

UNREADABLE_GONE = "unreadable piece that is no longer kept"


class StoredRow(NamedTuple):
    """A row of the table. One that `spans` two records comes twice, with `ends` where the second one stands."""

    at: int
    ends: bool
    spans: bool
    stream: str
    substream: int | None
    seq: int | None
    kind: str
    name: str | None
    category: str | None
    id: int | None
    parent: int | None
    start: int | None
    end: int | None
    time: int | None
    attributes: str | None

    @property
    def is_record(self) -> bool:
        """Return whether the producer wrote it, and not the collector."""
        of_collector = self.name in OWN and self.start is None and self.time is not None
        return self.kind not in {Kind.GAP, Kind.HEAL} and not (
            self.kind == Kind.SESSION and of_collector
        )


QuarantineReader = Callable[[str | None, int, int], Sequence[QuarantineFrame]]
"""Returns frames of the quarantine: of a session (None: this one), from a position in its file on, so many."""

_FLAWED = f'{{"{FLAW_OF_ROW}":"'
_read_any = msgspec.json.Decoder(dict[str, object]).decode


def records(
    rows: Iterable[StoredRow],
    kept: QuarantineReader,
    unreadable: Container[str],
    left: Counter[str],
) -> Iterator[Record]:
    """Yield the records of a session, given its rows in their order.

    A record's size is the distance to the next one, 0 if that is unknown. `unreadable` are the reasons for which the
    format's decoder refuses bytes; `left` counts the pieces that the quarantine has lost."""
    waiting: list[Record] = []  # at one offset
    end = 0
    for at, record in _placed(rows, kept, unreadable, left):
        if record is None:
            end = (
                at  # rows that are no records need not stand where one ends; but the last one does
            )
            continue
        if waiting and at > waiting[0].offset:
            yield from (_sized(each, at) for each in waiting)
            waiting = []
        waiting.append(record)
    yield from (_sized(each, end) for each in waiting)


def with_following(found: Iterable[Record]) -> Iterator[tuple[Record, Record | None]]:
    """Yield each record and the one behind it."""
    before = None
    for record in found:
        if before is not None:
            yield before, record
        before = record
    if before is not None:
        yield before, None


def _sized(record: Record, end: int) -> Record:
    if record.kind == Kind.MALFORMED:
        return record
    return record._replace(size=max(0, end - record.offset))


def _placed(
    rows: Iterable[StoredRow],
    kept: QuarantineReader,
    unreadable: Container[str],
    left: Counter[str],
) -> Iterator[tuple[int, Record | None]]:
    """Yield records in order, and None where a row stands that is no record."""
    pieces: list[tuple[int, int, QuarantineFrame]] = []  # a heap
    for number, row in enumerate(rows):
        while pieces and pieces[0][0] <= row.at:
            yield _piece(heapq.heappop(pieces)[-1])
        if row.kind in {Kind.GAP, Kind.HEAL}:
            for frame in quarantined(row.attributes, kept, unreadable, left):
                heapq.heappush(pieces, (frame.offset, number, frame))
            yield row.at, None
        else:
            yield row.at, _record(row) if row.is_record else None
    while pieces:
        yield _piece(heapq.heappop(pieces)[-1])


def _piece(frame: QuarantineFrame) -> tuple[int, Record]:
    return frame.offset, malformed(frame.offset, frame.data, frame.reason)


def quarantined(
    attributes: str | None, kept: QuarantineReader, details: Container[str], left: Counter[str]
) -> Sequence[QuarantineFrame]:
    """Return the bytes of a gap row with one of these `details`; count in `left` those that the quarantine has lost."""
    about = _read_any(attributes or "{}")
    at, count, session = about.get("quarantine"), about.get("frames", 1), about.get("quarantine_of")
    if about.get("detail") not in details or not isinstance(at, int) or not isinstance(count, int):
        return ()
    frames = kept(session if isinstance(session, str) else None, at, count)
    if len(frames) < count:
        left[UNREADABLE_GONE] += count - len(frames)
    return frames


def _record(row: StoredRow) -> Record:
    kind = row.kind if not row.spans else Kind.END if row.ends else Kind.BEGIN
    flaw, attributes = (None, row.attributes) if row.spans else _without_flaw(row.attributes)
    return Record(
        row.at, 0, kind, row.stream, row.substream, row.seq, row.name, row.category, row.id, row.parent, row.start,
        row.end, attributes, flaw, None,
    )  # fmt: skip


def _without_flaw(attributes: str | None) -> tuple[str | None, str | None]:
    """Return the flaw in front of a record's attributes, and the attributes behind it."""
    if attributes is None or not attributes.startswith(_FLAWED):
        return None, attributes
    flaw, _, rest = attributes.removeprefix(_FLAWED).partition('"')
    return flaw, "{" + rest[1:] if rest != "}" else None
