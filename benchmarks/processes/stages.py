"""Run the daemon's stages one after the other in one process, on bytes that are in memory.

The difference of two stages is the cost of the later one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import BlockDecoder
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import encode
from tailrace.rows.block import Block
from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.payloads import FileFacts, OpenInfo
from tailrace.spool.segment import HEAD_SIZE
from tailrace.store.data_files import to_arrow, write_rows

CHUNK = 512 * 1024
LIMIT = 1 << 20
COMMIT_ROWS = 250_000
TIME = 1_700_000_000 * 10**9


def decoded(format_: str, paths: list[str]) -> Callable[[], int]:
    """Return a function that decodes and returns the number of records."""
    chunks = [list(_chunks(path)) for path in paths]
    readers = [FORMATS[format_].decoder(LIMIT, None) for _ in paths]

    def work() -> int:
        found = 0
        for reader, mine in zip(readers, chunks, strict=True):
            for chunk in mine:
                packs = isinstance(reader, BlockDecoder) and len(chunk) >= reader.block_min
                units = reader.blocks(chunk) if packs else reader.feed(chunk)
                found += sum(unit.rows if isinstance(unit, Block) else 1 for unit in units)
        return found

    return work


def ingested(format_: str, paths: list[str]) -> Callable[[], int]:
    """Return a function that decodes, matches begins and ends, and counts numbers. It returns the number of rows."""
    entries = list(_entries(format_, paths))

    def work() -> int:
        return sum(_ingest(entries, lambda ingest: len(ingest.batch.take())))

    return work


def written(format_: str, paths: list[str], home: str) -> Callable[[], int]:
    """Return a function that does the same and also writes the rows to files of the table, and syncs them.

    It makes no commits.
    """
    entries, root = list(_entries(format_, paths)), Path(home)

    def write(ingest: Ingest) -> int:
        batch = ingest.batch.take()
        for rows in to_arrow(batch):
            write_rows(root, rows)
        return len(batch)

    def work() -> int:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        return sum(_ingest(entries, write))

    return work


def _ingest(entries: list[Entry], take: Callable[[Ingest], int]) -> Iterator[int]:
    """Apply entries of the spool to an ingest. Yield what `take` returns for each commit."""
    ingest = Ingest()
    for entry in entries:
        ingest.apply(entry)
        if len(ingest.batch) >= COMMIT_ROWS:
            yield take(ingest)
    yield take(ingest)


def _entries(format_: str, paths: list[str]) -> Iterator[Entry]:
    """Yield the spool's entries for files. If the format has no files, yield those for one connection."""
    at = 0

    def entry(kind: EntryKind, session: int, payload: bytes) -> Entry:
        nonlocal at
        position, at = at, at + HEAD_SIZE + len(payload)
        return Entry(position, at, kind, session, TIME, payload)

    tail = "tcp" not in FORMATS[format_].transports
    for inode, path in enumerate(paths):
        number = at
        info = OpenInfo(
            source="s", format=format_, session=f"session{inode}", transport="tail" if tail else "tcp", peer=path,
            record_max=LIMIT, ledger=LedgerConfig(), group=str(Path(path).parent),
            file=FileFacts(path=path, device=1, inode=inode + 1, birth=1) if tail else None,
        )  # fmt: skip
        yield entry(EntryKind.OPEN, number, encode(info))
        for chunk in _chunks(path):
            yield entry(EntryKind.DATA, number, chunk)


def _chunks(path: str) -> Iterator[bytes]:
    data = Path(path).read_bytes()
    return (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
