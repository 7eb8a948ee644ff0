"""Write sessions in the formats of their producers, into a directory: `SOURCE/…` as the files lay there.

The encoder of the format (`Format.encoder`) makes the bytes. Beside the sources, `sessions.jsonl` says of each file what it
is of, and `gaps.jsonl` has the gaps. Sessions are written whole: a range of time selects those that were open then.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import msgspec

from tailrace.decoding.contract import Encoder, FileEncoder
from tailrace.decoding.formats import FORMATS
from tailrace.export import noted
from tailrace.export.directory import Directory
from tailrace.export.places import PACKED, Origin, beside, placed
from tailrace.export.progress import RowCount
from tailrace.export.records import COLUMNS, ORDER, ROWS, Kept, StoredRow, records, with_last
from tailrace.export.selected import Left, Selected
from tailrace.model.quarantine import QuarantineFrame, frames
from tailrace.model.record import Kind, Record
from tailrace.query.answer import Shape
from tailrace.query.output import write_json
from tailrace.query.views import GAPS, SESSIONS, STREAMS
from tailrace.store.quarantine import file_name

REFUSED = "session without events, which readers refuse"

_CHOSEN = "(source, part.root(session)) IN (SELECT (source, part.root(session)) FROM {} WHERE {})"
_ORIGINS = """
SELECT source, part.root(session) AS root, any_value(format), any_value(peer) FILTER (transport = 'tail')
FROM sessions WHERE {} GROUP BY source, root ORDER BY source, min(opened), root
"""


class WrittenSession(NamedTuple):
    """The facts of a session's file, None where a repair left it out. `in_place`: every record begins where it began in the session's bytes.

    `bytes` are those of the trace, which may be compressed in the file. `left_out` are bytes that a repair left out, since nobody could read them or readers refuse them; `added` counts what
    it added, by what that is."""

    file: str | None
    source: str
    session: str
    format: str
    bytes: int
    in_place: bool
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
    """Write the sessions of a selection; `quarantine` are the collectors' directories of unreadable bytes.

    With `added`, repair: leave out these bytes and what readers refuse, close what is open, and count there what that
    took."""
    left: Left = Counter()
    files: list[_SessionFile] = []
    runs: defaultdict[tuple[str, str, str], dict[str, Any]] = defaultdict(dict)
    if added is not None:
        added.clear()
    by_streams = selected.filters.selection.streams is not None
    wanted = selected.filters.rows(STREAMS if by_streams else SESSIONS)
    chosen = _CHOSEN.format("streams" if by_streams else "sessions", wanted.sql)
    origins = [Origin(*row) for row in selected.few(_ORIGINS.format(chosen), wanted.values)]
    names = placed(origins)
    of = {(origin.source, origin.session): origin for origin in origins}
    answer = selected.answer(_rows_of(chosen), Shape.JSON, wanted.values)
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
        file = _SessionFile(output, origin, names[origin], encoder, added is not None)
        found = records(
            (StoredRow(*row[2:]) for row in mine),
            _kept(quarantine, session),
            format_.malformed,
            left,
        )
        file.write(found)
        files.append(file)
        if file.file is None:
            left[REFUSED] += 1
    for file in files:
        file.write_documents()
        if added is not None:
            added.update(file.facts.added)
    _write_beside(selected, output, [file.facts for file in files])
    return left


class _SessionFile:
    """Writes one session's file and the documents beside it."""

    def __init__(
        self, output: Directory, origin: Origin, name: PurePosixPath, encoder: Encoder, repair: bool
    ) -> None:
        self._output = output
        self._origin = origin
        self._name = name
        self._encoder = encoder
        self._repair = repair
        self.file: PurePosixPath | None = name
        self._size = 0
        self._in_place = True
        self._left_out = 0

    @property
    def facts(self) -> WrittenSession:
        source, session, format_, _ = self._origin
        added = dict(self._encoder.added)
        file = None if self.file is None else str(self.file)
        return WrittenSession(
            file, source, session, format_, self._size, self._in_place, self._left_out, added
        )

    def write(self, found: Iterable[Record]) -> None:
        with self._output.file(self._name) as file, _packing(file, self._name) as out:
            for record, last in with_last(found):
                self._size += self._write(record, out, last=last)
            closing = self._encoder.close()
            self._size += out.write(closing or b"")
        if closing is None:
            self._output.remove(self._name)
            self._left_out, self._size, self.file = self._left_out + self._size, 0, None

    def write_documents(self) -> None:
        if not isinstance(self._encoder, FileEncoder) or self._origin.path is None:
            return
        for document, text in self._encoder.documents().items():
            name = beside(self._name, document)
            if not self._output.has(name):
                with self._output.file(name) as out:
                    out.write(text)

    def _write(self, record: Record, out: BinaryIO, *, last: bool) -> int:
        """Write a record's bytes; return how many there are."""
        data: bytes | None
        if record.kind != Kind.MALFORMED:
            data = self._encoder.encode(record, last=last)
        elif self._repair:
            data = None
        else:
            data = record.detail if isinstance(record.detail, bytes) else b""
        if data is None:
            self._left_out += record.size
            return 0
        if data and self._size != record.offset:
            self._in_place = False
        return out.write(data)


@contextmanager
def _packing(file: BinaryIO, name: PurePosixPath) -> Iterator[BinaryIO]:
    """Compress what is written, if the file's name says so; equal bytes become equal files."""
    if name.suffix != PACKED:
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        yield packed  # type: ignore[misc] # it has what a BinaryIO has to write


def _rows_of(chosen: str) -> str:
    return f"""
SELECT source, part.root(session) AS root, {COLUMNS} FROM ({ROWS})
WHERE {chosen} ORDER BY source, root, {ORDER}
"""  # noqa: S608 - our own words, and question marks


def _kept(quarantine: Sequence[Path], of: str) -> Kept:
    """Return what reads the quarantine for a session."""

    @lru_cache(2)
    def read(session: str) -> bytes:
        for directory in quarantine:
            with suppress(FileNotFoundError):
                return (directory / file_name(session)).read_bytes()
        return b""

    def kept(session: str | None, at: int, count: int) -> Sequence[QuarantineFrame]:
        found = islice(frames(read(session or of)[at:]), count)
        return [frame for frame in found if frame.reason]

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
            write_json(noted.columns(Shape.JSON), [noted.rows(notes)], out)
