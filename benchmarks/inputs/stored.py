"""Write a table with many rows, with the collector's own table writer and without a daemon: 10⁸ rows take 30 s of CPU.

The rows are those of ten Heph producers with five streams each. The ingest makes the rows of one second. Each commit
has these rows again, one second later. So the table has the files that a daemon would leave at 500,000 events a second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.inputs import heph
from tailrace.clock import SystemClock
from tailrace.config.schema import LedgerConfig, StoreConfig
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import encode
from tailrace.rows.batch import Batch, BlockRows, ListRows
from tailrace.rows.block import Integers, Values
from tailrace.rows.schema import ROW, Row
from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.payloads import OpenInfo
from tailrace.spool.segment import HEAD_SIZE
from tailrace.store.table import Table

SOURCE = "heph"
PRODUCERS = 10
COMMIT_ROWS = 500_000
SECOND = 10**9
STRETCH = 88
"""Factor by which time passes more slowly than in `inputs.heph`, so that the events of a commit fill a second."""
GAPS = 5
"""Number of gaps in each commit."""
BEGINS = 40
"""Number of begins without an end in each commit, if begins are requested. The spans come with the next commit."""
COMMITS_A_CHECKPOINT = 100


_EMPTY = Row._make([None] * len(Row._fields))._replace(offset=0)


class Made(NamedTuple):
    """The numbers of events, gaps and begins that were added to a table, and the time that they span."""

    events: int
    gaps: int
    begins: int
    seconds: int
    """Time (seconds) from that of the first event, `heph.EPOCH`, to about that of the last one."""


class _Producer(NamedTuple):
    """The rows of one producer's first second: the rows about its session, and its events."""

    day: int
    session: str
    opening: ListRows
    events: list[BlockRows]
    length: int
    """Size (bytes) of the producer's events."""
    streams: dict[str, int]
    """Number of events in each stream, by stream."""


def write(store: str, events: int, *, begins: bool = False) -> Made:
    """Write a new table with the given number of events, rounded up to whole commits. Add sessions and gaps, and with
    `begins` also begins without an end.

    The second half of the rows is in the partition of the next day.
    """
    table = Table.open(
        store, options={}, collector="benchmark", config=StoreConfig(), clock=SystemClock(), refills=lambda _: False
    )  # fmt: skip
    per_commit = min(COMMIT_ROWS, events)
    producers = [_producer(number, per_commit // PRODUCERS) for number in range(PRODUCERS)]
    commits = -(-events // (per_commit // PRODUCERS * PRODUCERS))
    made = 0
    for number in range(commits):
        batch = Batch()
        for producer in producers:
            made += _add(producer, batch, number, later=2 * number >= commits)
        few = list(_findings(number))
        if begins:
            few += _begins(producers[0], number)
        first = producers[0]
        _extend(batch, first, int(2 * number >= commits), _columns(few))
        table.land(table.prepare(batch), (table.position() or 0) + 1)
        if number % COMMITS_A_CHECKPOINT == COMMITS_A_CHECKPOINT - 1:
            table.checkpoint()
    return Made(made, GAPS * commits, BEGINS * commits if begins else 0, commits)


def _add(producer: _Producer, batch: Batch, number: int, *, later: bool) -> int:
    """Append a producer's events of one commit to the batch. Return their number."""
    if not number:
        _extend(batch, producer, int(later), producer.opening)
    for rows in producer.events:
        _extend(batch, producer, int(later), _moved(rows, producer, number))
    return sum(rows.rows for rows in producer.events)


def _extend(batch: Batch, producer: _Producer, later: int, rows: ListRows | BlockRows) -> None:
    batch.day = producer.day + later
    batch.extend(SOURCE, "heph", producer.session, rows, 0)


def _moved(rows: BlockRows, producer: _Producer, number: int) -> BlockRows:
    """Return the producer's rows, moved `number` seconds later."""
    block = rows.block
    ticks = number * SECOND
    numbers = pa.array([number * producer.streams[text] for text in block.stream.texts], pa.int64())
    streams = pa.Array.from_buffers(
        pa.int32(), block.rows, [None, pa.py_buffer(block.stream.codes)]
    )
    start, end = _plus(block.start, block.rows, ticks), _plus(block.end, block.rows, ticks)
    moved = block._replace(
        start=start, end=end, offset=_plus(block.offset, block.rows, number * producer.length)
    )
    return rows._replace(
        block=moved,
        time=_plus(rows.time, block.rows, ticks),
        seq=_plus(rows.seq, block.rows, numbers.take(streams)),
    )


def _plus(values: Values, count: int, more: int | pa.Array) -> Integers:
    return _packed(pc.add(_array(values, count), more))


def _array(values: Values, count: int) -> pa.Array:
    if not isinstance(values, Integers):
        raise TypeError("this column of a Heph event has no numbers")
    valid = None if values.valid is None else pa.py_buffer(values.valid)
    return pa.Array.from_buffers(pa.int64(), count, [valid, pa.py_buffer(values.values)])


def _packed(array: pa.Array) -> Integers:
    valid, values = array.buffers()
    return Integers(memoryview(values), None if valid is None else memoryview(valid))


def _findings(number: int) -> Iterator[Row]:
    for index in range(GAPS):
        yield _EMPTY._replace(
            kind="gap",
            name="network",
            stream=str(index),
            seq=10**12 + 10 * number,
            missing=3,
            attributes='{"count":3}',
        )


def _begins(producer: _Producer, number: int) -> Iterator[Row]:
    """Yield rows for begins of spans that end in the next commit."""
    rows = _moved(producer.events[0], producer, number + 1)
    step = max(rows.rows // BEGINS, 1)
    chosen = range(0, step * BEGINS, step)
    names = ("stream", "name", "start", "time", "offset")
    values = rows.columns()
    columns = [rows.block.column(values[ROW.index(name)]) for name in names]
    for index in chosen:
        yield _EMPTY._replace(
            kind="begin", **dict(zip(names, (column[index] for column in columns), strict=True))
        )


def _columns(rows: list[Row]) -> ListRows:
    return [list(column) for column in zip(*rows, strict=True)]


def _producer(number: int, events: int) -> _Producer:
    """Return the rows that the ingest makes of a producer's first second."""
    with tempfile.TemporaryDirectory() as home:
        written = heph.write(Path(home), events, seed=number)
        data = Path(home, written.streams[0]).read_bytes()
    ingest = Ingest()
    for entry in _entries(f"producer{number}", data):
        ingest.apply(entry)
    batch = ingest.batch.take()
    blocks = [part.rows for part in batch.parts if isinstance(part.rows, BlockRows)]
    lists = [part.rows for part in batch.parts if not isinstance(part.rows, BlockRows)]
    opening = [list(chain.from_iterable(columns)) for columns in zip(*lists, strict=True)]
    streams: dict[str, int] = {}
    for rows in blocks:
        for stream in rows.block.stream.list(rows.rows):
            streams[stream] = streams.get(stream, 0) + 1
    run = batch.runs[0]
    return _Producer(
        run.day, run.session, opening, [_stretched(rows) for rows in blocks], len(data), streams
    )


def _stretched(rows: BlockRows) -> BlockRows:
    """Return the same rows with times so far apart that they fill a second."""
    count = rows.rows
    start, end = (_array(values, count) for values in (rows.block.start, rows.block.end))
    longer = pc.multiply(start, STRETCH - 1)
    block = rows.block._replace(
        start=_packed(pc.add(start, longer)), end=_packed(pc.multiply(end, STRETCH))
    )
    return rows._replace(block=block, time=_packed(pc.add(_array(rows.time, count), longer)))


def _entries(session: str, data: bytes) -> Iterator[Entry]:
    """Yield the spool's entries for one connection whose bytes arrive all at once."""
    at = 0
    info = OpenInfo(
        source=SOURCE, format="heph", session=session, transport="tcp", peer="127.0.0.1:1", record_max=1 << 20, ledger=LedgerConfig()
    )  # fmt: skip
    for kind, payload in ((EntryKind.OPEN, encode(info)), (EntryKind.DATA, data)):
        end = at + HEAD_SIZE + len(payload)
        yield Entry(at, end, kind, 0, heph.EPOCH, payload)
        at = end
