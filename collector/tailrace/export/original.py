"""Write sessions in the formats of their producers, into a directory with a subdirectory for each source.

The stored rows of a session are turned back into the records from which the ingest made them (`records`), and the
encoder of the format (`Format.encoder`) makes their bytes. `sessions.jsonl` describes each written file, and
`gaps.jsonl` lists the gaps. Sessions are written whole. A copy must not look more complete than the stored session.
Missing sequence numbers are also missing in the copy, but lost bytes would leave no such sign. So the copy of a session
with lost bytes is gzip data (`PackedFile`). At the offset of each loss, the data is truncated or damaged, or states the
loss.
"""

from __future__ import annotations

import heapq
import posixpath
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, takewhile, tee, zip_longest
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, get_args

import msgspec

from tailrace.decoding.contract import Encoder, FileEncoder, without_gz
from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.formats import FORMATS
from tailrace.export.output import Directory, RowCount
from tailrace.export.selected import Left, Selected, note_columns, note_rows
from tailrace.model.gap import Reason
from tailrace.model.quarantine import QuarantineFrame, frames
from tailrace.model.record import FLAW_OF_ROW, Kind, Record, malformed
from tailrace.query.answer import Shape
from tailrace.query.output import write_json
from tailrace.query.views import GAPS, SESSIONS, STREAMS
from tailrace.rows.schema import is_own
from tailrace.sources.tail.inflate import statement
from tailrace.spool.payloads import LossDetail
from tailrace.store.quarantine import SUFFIX, file_name

PACKED = ".gz"


class Origin(NamedTuple):
    """A session to export, and the path of its original file, or None. `session` is its name without the suffix that a
    restart adds. If `damaged` is true, only gzip data can reproduce the session's losses."""

    source: str
    session: str
    format: str
    path: str | None
    damaged: bool = False


def placed(origins: Iterable[Origin]) -> dict[Origin, PurePosixPath]:
    """Return the relative path of the exported copy of each session. It is `SOURCE/PATH` for a session from a file,
    otherwise `SOURCE/SESSION.SUFFIX`, and ends in `.gz` if the producer compressed the file, or if `Origin.damaged`
    is true. If two sessions would get one path, the later one gets a directory of its own."""
    names: dict[Origin, PurePosixPath] = {}
    sources = defaultdict(list)
    for origin in origins:
        sources[origin.source].append(origin)
    for source, mine in sources.items():
        # absolute and normalized paths without `.gz`
        paths = [
            (each, each.path and posixpath.normpath(posixpath.join("/", without_gz(each.path))))
            for each in mine
        ]
        base = _base([(origin, path) for origin, path in paths if path is not None])
        taken: set[str] = set()
        for origin, path in paths:
            known = FORMATS.get(origin.format)
            session = file_name(origin.session).removesuffix(SUFFIX)
            if path is None:
                name = session + ("" if known is None else known.suffix)
            else:
                name = posixpath.relpath(path, base)
            gz = known is not None and known.compresses and (origin.path or "").endswith(PACKED)
            name += PACKED if gz or origin.damaged else ""
            name = posixpath.join(session, name) if name in taken else name
            taken.add(name)
            names[origin] = PurePosixPath(source, name)
    return names


def beside(name: PurePosixPath, document: str) -> PurePosixPath:
    """Return the path of the copy of a metadata file. `document` is its path relative to the trace file's directory."""
    source, *within = name.parts
    path = posixpath.normpath(posixpath.join("/", *within[:-1], document))
    return PurePosixPath(source, path.lstrip("/"))


def _base(files: Sequence[tuple[Origin, str]]) -> str:
    """Return the deepest directory that contains all run directories (`Files.group`) of a source."""
    runs = []
    for origin, path in files:
        run = FORMATS[origin.format].files.group(path) if origin.format in FORMATS else ""
        runs.append(run if path.startswith(f"{run}/") else posixpath.dirname(path))
    return posixpath.commonpath(runs) if runs else "/"


UNREADABLE_GONE = "unreadable piece that is no longer kept"


class StoredRow(NamedTuple):
    """A row of the table, as `_ROWS` selects it. `at` is the offset of its record. `spans` is true if a begin and an
    end record became this row; `_ROWS` then selects it twice, with `ends` false and true."""

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
    """Yield the records from which the ingest made the rows of one session. The rows must come in the order of `_ROWS`.
    The size of a record is the distance to the next record's offset, or 0 if unknown. `unreadable` has the reasons of
    malformed records. The bytes of these records come from the quarantine. Count in `left` the frames whose bytes the
    quarantine no longer has."""
    waiting: list[Record] = []  # records at the same offset, whose size is not known yet
    end = 0
    for at, record in _placed(rows, kept, unreadable, left):
        if record is None:
            # A row that is not a record may have any offset. Use this offset only as the end of the record before.
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
    # A heap of quarantine frames with unreadable bytes, ordered by offset. Each item has the offset of the bytes, the
    # number of the gap's row (to sort items with equal offsets), and the frame.
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
    """Return the quarantine frames with a gap's unreadable bytes, if the member `detail` of the gap's attributes is one
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


REFUSED = "session without events, which readers refuse"
MAY_BE_WHOLE = "record that a copy may have whole"
OF_KERNEL = "gap of reason kernel, which a copy calls network"
SIZE_LOST = "gap whose size a copy may not show"
TORN, BAD, UNREAD = "torn_member", "bad_member", "unread"
GZIP, TOO_LONG, CUT, PART = "gzip", "too_long", "cut", "truncated"
CLOSED = "end of a compressed part"

_DETAILS = ", ".join(f"'{detail}'" for detail in get_args(LossDetail))
_LOSSES = f"""
WITH received AS (
  SELECT source, session, transport = 'udp' AS in_datagrams, producer IS NULL AS without_start
  FROM sessions WHERE transport <> 'tail'
),
begun AS (SELECT (source, session, stream) FROM streams WHERE events > 0)
SELECT source, part.root(session) AS root, reason, detail, "offset", attributes
FROM gaps LEFT JOIN received USING (source, session)
WHERE (
  detail IN ('{GZIP}', '{TOO_LONG}', {_DETAILS}) OR detail = '{CUT}' AND reason = 'truncated'
  OR reason IN ('uncounted', 'damaged', 'kernel') OR detail = '{PART}' AND in_datagrams
  OR "count" > 0 AND in_datagrams IS NOT NULL AND (
    reason = 'late_join' OR reason = 'unresolved' AND without_start
    OR reason = 'network' AND (source, session, stream) NOT IN (FROM begun)
  )
) AND {{}}
ORDER BY source, root, "offset", detail DESC
"""  # noqa: S608 - our own words
"""SQL for the gaps that a reader of the exported file may not detect in its records. If a gzip file is truncated and
damaged at one offset, the truncation comes first. The copy of a connection or a datagram peer may look like a part of a
file whose beginning is missing, for which readers state no number of missing events. In the copy of a datagram peer,
two datagrams with parts of one record become a readable record."""

_BEFORE = {Reason.LATE_JOIN, Reason.UNRESOLVED, Reason.NETWORK}
"""Reasons of gaps that may lie before the beginning of a file, as a reader sees the file."""

_CHOSEN = "(source, part.root(session)) IN (SELECT (source, part.root(session)) FROM {} WHERE {})"
_ORIGINS = """
SELECT source, part.root(session) AS root, any_value(format), any_value(peer) FILTER (transport = 'tail')
FROM sessions WHERE {} GROUP BY source, root ORDER BY source, min(opened), root
"""
_ROWS = """
SELECT source, part.root(session) AS root, "at", ends, end_offset IS NOT NULL AS spans, stream, substream, seq, kind,
  name, category, id, parent, start, "end", time, attributes
FROM (
  SELECT *, "offset" AS "at", false AS ends FROM part.stored_rows
  UNION ALL
  SELECT *, end_offset AS "at", true AS ends FROM part.stored_rows WHERE end_offset IS NOT NULL
)
WHERE {} ORDER BY source, root, "at", ends DESC, session, kind <> 'session' OR start IS NOT NULL, seq, time
"""
"""SQL for the rows of sessions, with the fields of a `StoredRow`. A row that stands for the begin and the end of a span
appears twice. Among rows at the same offset, ends of spans come first, then session rows without a time in `start`."""


class Loss(NamedTuple):
    """A loss of `size` bytes at an offset in a session's bytes. For damaged bytes of a compressed file, `data` has the
    bytes that are still in the quarantine."""

    offset: int
    detail: str = TORN
    size: int = 0
    data: bytes = b""


class WrittenSession(NamedTuple):
    """Facts about the exported copy of one session.

    - `file`: the path of the copy, or None if the repair left out the whole session.
    - `bytes`: the number of trace bytes in the copy, before compression.
    - `left_out`: the number of bytes that the copy lacks, because they are unreadable or because readers refuse
      them.
    - `added`: the number of additions by the repair, by kind of addition.
    """

    file: str | None
    source: str
    session: str
    format: str
    bytes: int
    left_out: int
    added: dict[str, int]


def write(
    selected: Selected,
    output: Directory,
    progress: RowCount,
    *,
    quarantine: Sequence[Path],
    added: Counter[str] | None = None,
) -> Left:
    """Write copies of the selected sessions into a directory. Return the number of rows and losses left out, by
    kind.

    `quarantine` lists the directories with unreadable bytes. If the dict `added` is given, repair the traces: leave
    out unreadable bytes and records that readers refuse, close open spans and streams, and count the additions in
    it.
    """
    left: Left = Counter()
    files: list[_SessionFile] = []
    runs: defaultdict[tuple[str, str, str], dict[str, Any]] = defaultdict(dict)
    if added is not None:
        added.clear()
    by_streams = selected.filters.selection.streams is not None
    wanted = selected.filters.rows(STREAMS if by_streams else SESSIONS)
    chosen = _CHOSEN.format("streams" if by_streams else "sessions", wanted.sql)
    gaps = selected.few(_LOSSES.format(chosen), wanted.values)
    losses = _losses(gaps, quarantine, left, repair=added is not None)
    origins = [
        Origin(*row)._replace(damaged=added is None and row[:2] in losses)
        for row in selected.few(_ORIGINS.format(chosen), wanted.values)
    ]
    names = placed(origins)
    of = {(origin.source, origin.session): origin for origin in origins}
    answer = selected.answer(_ROWS.format(chosen), Shape.JSON, wanted.values)
    rows = (row for page in selected.pages(answer, progress) for row in page)
    for (source, session), mine in groupby(rows, key=itemgetter(0, 1)):
        origin = of[source, session]
        format_ = FORMATS.get(origin.format)
        if format_ is None or format_.encoder is None:
            left[f"row of {origin.format}, which nobody can write"] += sum(1 for _ in mine)
            continue
        encoder = format_.encoder(added is not None)
        if isinstance(encoder, FileEncoder) and origin.path is not None:
            group = (source, origin.format, format_.files.group(origin.path))
            encoder.begin(origin.path, runs[group])
        lost = losses.get((source, session), [])
        file = _SessionFile(output, origin, names[origin], encoder, lost, added is not None)
        stored = file.counted(StoredRow(*row[2:]) for row in mine)
        unreadable = format_.malformed | FOREIGN.keys()
        file.write(records(stored, _kept(quarantine, session), unreadable, left))
        files.append(file)
        if file.refused:
            left[REFUSED] += 1
    for file in files:
        file.write_documents()
        if added is not None:
            added.update(file.facts.added)
    progress.written(sum(file.rows for file in files if not file.refused))
    _write_beside(selected, output, [file.facts for file in files])
    return left


@dataclass
class _SessionFile:
    """Writes the copy of one session, and the metadata files that its format has in the same directory."""

    output: Directory
    origin: Origin
    name: PurePosixPath
    encoder: Encoder
    losses: list[Loss]
    repair: bool
    refused: bool = False
    """Whether the repair has left out the whole session."""
    rows: int = 0
    size: int = 0
    left_out: int = 0

    @property
    def facts(self) -> WrittenSession:
        source, session, format_, *_ = self.origin
        added = dict(self.encoder.added)
        if self.repair and not self.refused and self.losses:
            added[CLOSED] = len(self.losses)
        file = None if self.refused else str(self.name)
        return WrittenSession(file, source, session, format_, self.size, self.left_out, added)

    def counted(self, rows: Iterable[StoredRow]) -> Iterator[StoredRow]:
        """Yield the rows unchanged, and count the producer's rows in `rows`. A span counts once."""
        for row in rows:
            self.rows += row.is_record and not row.ends
            yield row

    def write(self, found: Iterable[Record]) -> None:
        with self.output.file(self.name) as file:
            packed = PackedFile(file) if self.name.suffix == PACKED else None
            out = file if packed is None else packed
            losses = deque([] if packed is None or self.repair else self.losses)
            for record, following in with_following(found):
                while packed is not None and losses and losses[0].offset <= record.offset:
                    packed.lose(losses.popleft())
                data: bytes | None = None
                if record.kind != Kind.MALFORMED:
                    data = self.encoder.encode(record, following=following)
                elif not self.repair:
                    data = record.detail if isinstance(record.detail, bytes) else b""
                if data is None:
                    self.left_out += record.size
                else:
                    self.size += out.write(data)
            if packed is not None:
                for loss in losses:
                    packed.lose(loss)
            closing = self.encoder.close()
            self.size += out.write(closing or b"")
            if packed is not None:
                packed.close()
        if closing is None:
            self.output.remove(self.name)
            self.left_out, self.size, self.refused = self.left_out + self.size, 0, True

    def write_documents(self) -> None:
        if not isinstance(self.encoder, FileEncoder) or self.origin.path is None:
            return
        for document, text in self.encoder.documents().items():
            name = beside(self.name, document)
            if not self.output.has(name):
                with self.output.file(name) as out:
                    out.write(text)


class PackedFile:
    """Compresses the copy of a session's bytes with gzip. The gzip data is truncated or damaged where the original file
    was. It states any other loss in the form that `sources.tail.inflate` reads. Equal input gives equal files. An empty
    gzip member follows each truncated or damaged place: two truncated members in a row could look like damage."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._member: Any = None  # a zlib compressor, whose type zlib does not export

    def write(self, data: bytes, /) -> int:
        if data:
            self._out.write(self._begun().compress(data))
        return len(data)

    def lose(self, loss: Loss) -> None:
        """Show a loss in the gzip data: truncate the gzip member, write the damaged bytes, or state the loss."""
        if loss.detail == TORN:
            self._out.write(self._begun().flush(zlib.Z_SYNC_FLUSH))
            self._member = None
            self._end(empty=True)
        elif loss.data:
            self._end(empty=self._out.tell() == 0)
            self._out.write(loss.data)
            self._end(empty=True)
        else:
            self._end(empty=False)
            self._out.write(statement(loss.detail, loss.size))

    def close(self) -> None:
        self._end(empty=self._out.tell() == 0)

    def _end(self, *, empty: bool) -> None:
        """End the current gzip member. If no member has begun and `empty` is true, write an empty member."""
        if empty or self._member is not None:
            self._out.write(self._begun().flush())
        self._member = None

    def _begun(self) -> Any:  # noqa: ANN401 - zlib names no type for it
        if self._member is None:
            self._member = zlib.compressobj(zlib.Z_BEST_COMPRESSION, wbits=31)
        return self._member


def _losses(
    rows: Iterable[tuple[Any, ...]], quarantine: Sequence[Path], left: Counter[str], *, repair: bool
) -> dict[tuple[str, str], list[Loss]]:
    """Return the losses of bytes from the original files, by source and session. Count in `left` the losses that no
    copy can show. A session whose bytes are themselves gzip data is returned even without losses. Its copy is
    compressed once more, so that a reader that decompresses the copy finds the original bytes."""
    shown = {TORN, BAD} if repair else set(get_args(LossDetail))
    found: defaultdict[tuple[str, str], list[Loss]] = defaultdict(list)
    for source, session, reason, detail, offset, attributes in rows:
        if detail in {GZIP, TOO_LONG, PART}:
            if detail == GZIP:
                found.setdefault((source, session), [])
            elif not repair:
                left[MAY_BE_WHOLE] += 1
            continue
        if reason in _BEFORE and detail not in get_args(LossDetail):
            left[SIZE_LOST] += 1
            continue
        if reason == Reason.KERNEL:
            left[OF_KERNEL] += 1
            continue
        # If the connection of the session broke, state in the copy that the session's last bytes were never read.
        stated = UNREAD if detail == CUT else detail
        if stated not in shown:
            left[f"gap that no copy shows ({reason})"] += 1
            continue
        data = b""
        if detail == BAD:
            pieces = quarantined(attributes, _kept(quarantine, session), {BAD}, left)
            data = b"".join(piece.data for piece in pieces)
        size = msgspec.json.decode(attributes or "{}").get("bytes", 0)
        found[source, session].append(Loss(offset, stated, size, data))
    return dict(found)


def _kept(quarantine: Sequence[Path], of: str) -> QuarantineReader:
    """Return a function that reads frames from a session's quarantine file. If the returned function gets no session,
    it reads the file of the session `of`."""

    @lru_cache(2)
    def read(session: str) -> bytes:
        for directory in quarantine:
            with suppress(FileNotFoundError):
                return (directory / file_name(session)).read_bytes()
        return b""

    def kept(session: str | None, at: int, count: int) -> Sequence[QuarantineFrame]:
        found = islice(frames(read(session or of)[at:]), count)
        # A frame without a reason stands for an unknown number of lost frames, so the frames after it may belong to
        # other gaps.
        return [*takewhile(lambda frame: frame.reason, found)]

    return kept


def _write_beside(selected: Selected, output: Directory, written: Sequence[WrittenSession]) -> None:
    with output.file(PurePosixPath("sessions.jsonl")) as out:
        for each in written:
            out.write(msgspec.json.encode(each._asdict()) + b"\n")
    gaps = selected.condition(GAPS)
    answer = selected.answer(selected.rows(GAPS), Shape.JSON, gaps.values)
    with output.file(PurePosixPath("gaps.jsonl")) as out:
        write_json(answer.columns, selected.pages(answer, RowCount(None)), out)
    if notes := selected.notes.notes:
        with output.file(PurePosixPath("notes.jsonl")) as out:
            write_json(note_columns(Shape.JSON), [note_rows(notes)], out)
