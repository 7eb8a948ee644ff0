"""Write sessions in the formats of their producers, into a directory with a subdirectory for each source.

The encoder of the format (`Format.encoder`) makes the bytes. `sessions.jsonl` describes each written file, and
`gaps.jsonl` lists the gaps. Sessions are written whole. A copy must not look more complete than the stored session.
Missing sequence numbers are also missing in the copy, but lost bytes would leave no such sign. So the copy of a session
with lost bytes is gzip data (`PackedFile`). At the offset of each loss, the data is truncated or damaged, or states the
loss.
"""

from __future__ import annotations

import posixpath
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, takewhile
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, get_args

import msgspec

from tailrace.decoding.contract import Encoder, FileEncoder, without_gz
from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.formats import FORMATS
from tailrace.export.output import Directory, RowCount
from tailrace.export.records import (
    COLUMNS,
    ORDER,
    ROWS,
    QuarantineReader,
    StoredRow,
    quarantined,
    records,
    with_following,
)
from tailrace.export.selected import Left, Selected, note_columns, note_rows
from tailrace.model.gap import Reason
from tailrace.model.quarantine import QuarantineFrame, frames
from tailrace.model.record import Kind, Record
from tailrace.query.answer import Shape
from tailrace.query.output import write_json
from tailrace.query.views import GAPS, SESSIONS, STREAMS
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
    """Return the path of the exported copy of a metadata file, which stays in the directory of the source.
    `document` is its path relative to the trace file's directory."""
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


REFUSED = "session without events, which readers refuse"
MAY_BE_WHOLE = "record that a copy may have whole"
OF_KERNEL = "gap of reason kernel, which a copy calls network"
TORN, BAD, UNREAD = "torn_member", "bad_member", "unread"
GZIP, TOO_LONG, CUT = "gzip", "too_long", "cut"
CLOSED = "end of a compressed part"

_DETAILS = ", ".join(f"'{detail}'" for detail in get_args(LossDetail))
_LOSSES = f"""
SELECT source, part.root(session) AS root, reason, detail, "offset", attributes FROM gaps
WHERE (
  detail IN ('{GZIP}', '{TOO_LONG}', {_DETAILS}) OR detail = '{CUT}' AND reason = 'truncated'
  OR reason IN ('uncounted', 'damaged', 'kernel')
) AND {{}}
ORDER BY source, root, "offset", detail DESC
"""  # noqa: S608 - our own words
"""SQL for the gaps that a reader of the exported file may not detect in its records. If a gzip file is truncated and
damaged at one offset, the truncation comes first."""

_CHOSEN = "(source, part.root(session)) IN (SELECT (source, part.root(session)) FROM {} WHERE {})"
_ORIGINS = """
SELECT source, part.root(session) AS root, any_value(format), any_value(peer) FILTER (transport = 'tail')
FROM sessions WHERE {} GROUP BY source, root ORDER BY source, min(opened), root
"""
_ROWS = f"""
SELECT source, part.root(session) AS root, {COLUMNS} FROM ({ROWS})
WHERE {{}} ORDER BY source, root, {ORDER}
"""  # noqa: S608 - our own words


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
        """Truncate the gzip member, write the damaged bytes, or state the loss."""
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
        if detail in {GZIP, TOO_LONG}:
            if detail == GZIP:
                found.setdefault((source, session), [])
            elif not repair:
                left[MAY_BE_WHOLE] += 1
            continue
        if reason == Reason.KERNEL:
            left[OF_KERNEL] += 1
            continue
        # If a connection broke, state in the copy that its last bytes were never read.
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
    """Return a function that reads frames of unreadable bytes from a session's quarantine file. The function's caller
    names the session; without a name, it is `of`."""

    @lru_cache(2)
    def read(session: str) -> bytes:
        for directory in quarantine:
            with suppress(FileNotFoundError):
                return (directory / file_name(session)).read_bytes()
        return b""

    def kept(session: str | None, at: int, count: int) -> Sequence[QuarantineFrame]:
        found = islice(frames(read(session or of)[at:]), count)
        # A frame without a reason stands for lost frames. Nobody knows how many, so later frames may be of other gaps.
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
