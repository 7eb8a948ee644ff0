"""Turn the stored rows of a session back into the records from which the ingest made them, ordered by offset."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import tee, zip_longest
from typing import NamedTuple

import msgspec

from tailrace.model.quarantine import QuarantineFrame
from tailrace.model.record import FLAW_OF_ROW, Kind, Record, malformed
from tailrace.rows.schema import is_own

ROWS = """
SELECT *, "offset" AS "at", false AS ends FROM part.stored_rows
UNION ALL
SELECT *, end_offset AS "at", true AS ends FROM part.stored_rows WHERE end_offset IS NOT NULL
"""
"""SQL for all rows of the table. A row that stands for the begin and the end of a span appears twice."""

COLUMNS = """
  "at", ends, end_offset IS NOT NULL AS spans, stream, substream, seq, kind, name, category, id, parent, start, "end",
  time, attributes
"""
"""SQL for the columns of a `StoredRow`, in the order of its fields."""

ORDER = "\"at\", ends DESC, session, kind <> 'session' OR start IS NOT NULL, seq, time"
"""SQL for the order in which the rows of a session are read. Among rows at the same offset, ends of spans come
first, then session rows without a start."""

UNREADABLE_GONE = "unreadable piece that is no longer kept"


class StoredRow(NamedTuple):
    """A row of the table, as `ROWS` selects it. `at` is the offset of its record. `spans` is true if a begin and an
    end record became this row; `ROWS` then selects it twice, with `ends` false and true."""

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
        """Whether the row comes from a record of the producer, and not from the collector itself."""
        of_collector = is_own(self.kind, self.name, self.start, self.time)
        return self.kind not in {Kind.GAP, Kind.HEAL} and not of_collector


QuarantineReader = Callable[[str | None, int, int], Sequence[QuarantineFrame]]
"""Function that reads frames of unreadable bytes from a quarantine file. Arguments: the session (None for the
current one), the position in the file, the number of frames."""

_FLAWED = f'{{"{FLAW_OF_ROW}":"'
_read_any = msgspec.json.Decoder(dict[str, object]).decode


def records(
    rows: Iterable[StoredRow],
    kept: QuarantineReader,
    unreadable: Container[str],
    left: Counter[str],
) -> Iterator[Record]:
    """Yield the records from which the ingest made the rows of one session. The rows must come in the order `ORDER`.
    The size of a record is the distance to the next record's offset, or 0 if unknown. `unreadable` has the reasons of
    malformed records. The bytes of these records come from the quarantine. Count in `left` the bytes' frames that the
    quarantine no longer has."""
    waiting: list[Record] = []  # records at the same offset, whose size is not known yet
    end = 0
    for at, record in _placed(rows, kept, unreadable, left):
        if record is None:
            # Use the offset of a row that is not a record only as the end of the last record: it may be any offset.
            end = at
            continue
        if waiting and at > waiting[0].offset:
            yield from (_sized(each, at) for each in waiting)
            waiting = []
        waiting.append(record)
    yield from (_sized(each, end) for each in waiting)


def with_following(found: Iterable[Record]) -> Iterator[tuple[Record, Record | None]]:
    ahead, following = tee(found)
    next(following, None)
    return zip_longest(ahead, following)


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
    """Yield the offset of each stored row, in order, and the row's record, or None if the row is not a record."""
    # A heap of pieces of unreadable bytes. Each item has the offset of the piece, the number of the gap's row (to sort
    # items with equal offsets), and the quarantine frame that has the bytes.
    pieces: list[tuple[int, int, QuarantineFrame]] = []
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
    """Return the quarantine frames with the unreadable bytes of a gap, if the member `detail` of its attributes is one
    of `details`. Count in `left` the frames that the quarantine no longer has."""
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
    flaw, attributes = None, row.attributes
    if not row.spans and attributes is not None and attributes.startswith(_FLAWED):
        # The record's flaw is the first member of the stored attributes.
        flaw, _, rest = attributes.removeprefix(_FLAWED).partition('"')
        attributes = "{" + rest[1:] if rest != "}" else None
    return Record(
        row.at, 0, kind, row.stream, row.substream, row.seq, row.name, row.category, row.id, row.parent, row.start,
        row.end, attributes, flaw, None,
    )  # fmt: skip
