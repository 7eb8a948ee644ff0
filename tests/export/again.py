"""Write a session's rows in their own format again, and read them once more, without a disk."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tailrace.decoding.contract import FileEncoder
from tailrace.export.original import StoredRow, records, with_following
from tailrace.model.quarantine import frames
from tailrace.model.record import Kind
from tailrace.rows.schema import is_own
from tests.ingest.log import applied, as_seen, rows as rows_of_batch


class Rebuilt(NamedTuple):
    data: bytes
    documents: dict
    left: Counter


def play(log):
    """Return the rows that readers see, and the quarantine files by session."""
    ingest = applied(log.entries)
    batch = ingest.batch.take()
    files = {}
    for each in batch.quarantined:
        file = files.setdefault(each.session, bytearray())
        assert each.at == len(file)
        file += each.frame
    return as_seen(rows_of_batch(batch)), files


def rebuild(format_, rows, files, *, path=None, repair=False):
    """Return the bytes from which the rows of one session were made. `path` is that of its file."""
    encoder, left = format_.encoder(repair), Counter()
    of_file = isinstance(encoder, FileEncoder) and path is not None
    if of_file:
        encoder.begin(path, {})
    session = rows[0]["session"].partition(".")[0]

    def kept(other, at, count):
        return list(frames(bytes(files.get(other or session, b""))[at:]))[:count]

    data = b""
    for record, following in with_following(records(_stored(rows), kept, format_.malformed, left)):
        if record.kind == Kind.MALFORMED:
            part = b"" if repair else record.detail
        else:
            part = encoder.encode(record, following=following) or b""
        data += part
    closing = encoder.close()
    data = b"" if closing is None else data + closing
    return Rebuilt(data, encoder.documents() if of_file else {}, left)


def _stored(rows):
    """Return `rows` in the form and the order of the SQL `_ROWS` of `export.original`."""
    found = []
    for row in rows:
        for ends in (False, True):
            at = row["end_offset" if ends else "offset"]
            if at is not None:
                other = row["kind"] != Kind.SESSION or row["start"] is not None
                key = (at, not ends, row["session"], other, _first(row["seq"]), _first(row["time"]))
                spans = row["end_offset"] is not None
                given = {name: row[name] for name in StoredRow._fields if name in row}
                found.append((key, StoredRow(at=at, ends=ends, spans=spans, **given)))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _first(value):
    return (value is None, value or 0)


def told(rows):
    """Return the rows as far as the producer determined them.

    Their places in its bytes are left out, and so are blank lines, which have no content.
    """
    dropped = {"day", "wall", "time", "offset", "end_offset"}
    return [
        {name: value for name, value in row.items() if name not in dropped}
        for row in rows
        if not is_own(row["kind"], row["name"], row["start"], row["time"])
        and not (row["kind"] == Kind.SESSION and row["name"] == "blank_lines")
    ]
