"""Build spool entries by hand: the ingest's input without a disk."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import encode
from tailrace.rows.schema import COLUMNS
from tailrace.spool.entry import Entry, EntryKind, pack_datagrams, pack_document
from tailrace.spool.payloads import DropCount, FileFacts, FileLoss, OpenInfo
from tailrace.spool.segment import HEAD_SIZE
from tests.rows.columns import column

SECOND, MS = 10**9, 10**6
EVENT_MAGIC, METADATA_MAGIC = 0xC1FC1FB7, 0x75D11D4D


def heph_event(stream, count, start=None, end=None, name=b"work", attributes=b""):
    start = 1000 * count if start is None else start
    end = start + 500 if end is None else end
    size = 42 + len(name) + len(attributes)
    head = struct.pack(
        ">IIIIQQQH", EVENT_MAGIC, size, stream, count % 2**32, 0, start, end, len(name)
    )
    return head + name + attributes


def heph_epoch(nanoseconds):
    return struct.pack(">IIH5sQ", METADATA_MAGIC, 23, 5, b"epoch", nanoseconds)


def heph_option(name, value):
    """Return a metadata packet whose value is a JSON object."""
    name, value = name.encode(), json.dumps(value).encode()
    size = 10 + len(name) + len(value)
    return struct.pack(">IIH", METADATA_MAGIC, size, len(name)) + name + value


def heph_session(number, **more):
    """Return the announcement of a session whose id is this number."""
    return heph_option("tailrace.session", {"session": f"{number:032x}", **more})


def heph_report(*ranges, **more):
    return heph_option("tailrace.report", {"ranges": ranges, **more})


def heph_goodbye(finals, **more):
    return heph_option("tailrace.goodbye", {"streams": finals, **more})


class Log:
    """Entries in order, with positions as the spool assigns them."""

    def __init__(self):
        self.entries = []
        self.now = 1_000 * SECOND

    def add(self, kind, session=0, payload=b""):
        position = self.entries[-1].end if self.entries else 0
        end = position + HEAD_SIZE + len(payload)
        self.entries.append(Entry(position, end, kind, session, self.now, payload))
        return position

    def open(
        self,
        format_="heph",
        *,
        source="s",
        transport="tcp",
        limits=None,
        garbage_max=0,
        pending_max=0,
        record_max=2**20,
        peer="127.0.0.1:5",
    ):
        number = self.entries[-1].end if self.entries else 0
        info = OpenInfo(
            source=source,
            format=format_,
            session=f"session{number}",
            transport=transport,
            peer=peer,
            record_max=record_max,
            garbage_max=garbage_max,
            pending_max=pending_max,
            ledger=limits or LedgerConfig(),
        )
        self.add(EntryKind.OPEN, number, encode(info))
        return number

    def open_file(
        self,
        format_,
        path="/runs/a",
        *,
        group="/runs",
        dialect="auto",
        pending_max=0,
        record_max=2**20,
    ):
        number = self.entries[-1].end if self.entries else 0
        info = OpenInfo(
            source="s",
            format=format_,
            session=f"session{number}",
            transport="tail",
            peer=path,
            record_max=record_max,
            pending_max=pending_max,
            ledger=LedgerConfig(),
            file=FileFacts(path=path, device=1, inode=2, birth=3),
            group=group,
            dialect=dialect,
        )
        self.add(EntryKind.OPEN, number, encode(info))
        return number

    def file(self, session, facts):
        self.add(EntryKind.FILE, session, encode(facts))

    def document(self, session, name, data):
        for payload in pack_document(name, data):
            self.add(EntryKind.DOCUMENT, session, payload)

    def loss(self, session, **loss):
        self.add(EntryKind.LOSS, session, encode(FileLoss(**loss)))

    def drops(self, count, *, source="s", since=None):
        since = self.now if since is None else since
        self.add(EntryKind.DROPS, 0, encode(DropCount(source=source, count=count, since=since)))

    def data(self, session, payload):
        self.add(EntryKind.DATA, session, payload)

    def datagrams(self, session, payloads):
        self.add(EntryKind.DATAGRAMS, session, pack_datagrams(payloads))

    def close(self, session, reason="eof"):
        self.add(EntryKind.CLOSE, session, reason.encode())

    def tick(self, seconds):
        self.now += round(seconds * SECOND)
        self.add(EntryKind.TICK)

    def clock(self, ahead):
        """Add an entry: from now on, the wall clock is ahead of the log by this time (ns)."""
        self.add(EntryKind.CLOCK, payload=encode(ahead))

    def stop(self, payload=b""):
        self.add(EntryKind.STOP, payload=payload)


def log_of_file(format_, data, path, documents=(), **options):
    """Return the log of a file that is read to its end. Documents beside it are pairs of name and bytes."""
    log = Log()
    session = log.open_file(format_, path, **options)
    for name, text in documents:
        log.document(session, name, text)
    log.data(session, data)
    log.tick(0.1)
    log.close(session)
    return log


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def applied(entries, ingest=None):
    """Return an ingest, by default a new one, to which entries were applied. Its batches have not been taken."""
    ingest = ingest or Ingest()
    for entry in entries:
        ingest.apply(entry)
    return ingest


def run(entries, ingest=None):
    """Apply entries. Return the ingest, and the rows that it made, each as a dict."""
    ingest = applied(entries, ingest)
    batch = ingest.batch.take()
    return ingest, rows(batch)


def rows(batch):
    names = [column.name for column in COLUMNS]
    found = [
        dict(zip(names, row, strict=True))
        for row in zip(*(column(batch, name) for name in names), strict=True)
    ]
    for row in found:
        if row["wall"] is not None:
            row["wall"] = EPOCH + timedelta(microseconds=row["wall"])
    return found


def as_seen(rows):
    """Return the rows as readers see them, whenever commits were made: begins without a span come last."""
    whole = {(r["source"], r["session"], r["offset"]) for r in rows if r["kind"] == "span"}
    begins = [
        row
        for row in rows
        if row["kind"] == "begin" and (row["source"], row["session"], row["offset"]) not in whole
    ]
    begins.sort(key=lambda row: (row["source"], row["session"], row["offset"]))
    return [row for row in rows if row["kind"] != "begin"] + begins
