"""Write a store with many spans, with the collector's own table writer. It resembles the store of a run of many ranks
and threads.

Each rank is a session with several streams. A stream has steps, which contain solves, which contain calls of random
length, from microseconds to a second. Each step also has a counter and an instant, and gaps follow some steps. Half of
the sessions record depths. The rows come in the order in which a collector commits them: each commit has some time of
all streams, and spans follow those that they contain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.rows.batch import Batch, BlockRows
from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.rows.schema import Row
from tailrace.store.table import Table

EPOCH = 1_790_000_000_000_000_000
SESSIONS = 20
STREAMS = 8
"""Number of streams of a session."""
BATCH = 500_000
"""Approximate number of rows of a commit."""

CALLS, SOLVES = 10, 10
"""Number of calls in a solve, and number of solves in a step."""
STEP = CALLS * SOLVES + SOLVES + 3
"""Number of rows of a step: its spans, a counter and an instant."""
SPANS = STEP - 2

MEDIAN_NS, SIGMA = 150_000, 1.6
"""Parameters of the log-normal distribution of the calls' durations. The mean duration is some 0.5 ms."""
SHARE_OF_GAPS = 1 / 250
"""Share of the steps after which events are missing."""

_SOURCE = "ranks"
_KINDS = ["span", "counter", "instant"]
_NAMES = ["step", "solve", "residual", "output", *(f"call {number}" for number in range(24))]
_COUNTER = '{"value":%d}'

Numbers = NDArray[np.int64]


class Shape(NamedTuple):
    """The size of a store: the number of spans of all streams, and the number of streams."""

    spans: int
    sessions: int = SESSIONS
    streams: int = STREAMS

    @property
    def steps(self) -> int:
        """Return the number of steps of each stream."""
        return max(self.spans // (SPANS * self.sessions * self.streams), 1)


def write(store: Path, shape: Shape, seed: int = 1) -> int:
    """Write a store. Return its number of spans."""
    made = [_Session(number, shape.streams, seed) for number in range(shape.sessions)]
    table = Table.open(
        str(store), options={}, collector="benchmark", config=StoreConfig(), clock=SystemClock(), refills=lambda _: False
    )  # fmt: skip
    batch = Batch()
    for session in made:
        session.open(batch)
    left, position = shape.steps, 0
    per_commit = max(BATCH // (STEP * len(made) * shape.streams), 1)
    while left:
        steps = min(per_commit, left)
        for session in made:
            session.add(batch, steps)
        left -= steps
        position += 1
        table.land(table.prepare(batch), position)
        batch = Batch()
    return shape.steps * SPANS * len(made) * shape.streams


class _Stream:
    """The state of one stream between two commits."""

    def __init__(self) -> None:
        self.now = 0
        self.seq = 0


class _Session:
    def __init__(self, number: int, streams: int, seed: int) -> None:
        self._id = f"rank-{number:02}"
        self._random = np.random.default_rng([seed, number])
        self._deep = number % 2 == 0
        self._streams = [_Stream() for _ in range(streams)]
        self._offset = 0

    def open(self, batch: Batch) -> None:
        """Add the rows at the begin of a stream: what the session states about its clock, and one span that never ends."""
        words = {"clock": "clk", "ticks_per_second": 10**9, "epoch": EPOCH}
        rows = [_row(kind="session", name="header", attributes=json.dumps(words))]
        rows += [
            _row(kind="begin", stream=str(stream), name="run", id=stream, start=0, time=EPOCH, offset=self._next(1),
                 depth=0 if self._deep else None)
            for stream in range(len(self._streams))
        ]  # fmt: skip
        self._extend(batch, rows)

    def add(self, batch: Batch, steps: int) -> None:
        """Add the rows of steps of each stream, and gaps after some of them."""
        made = [self._steps(stream, steps) for stream in self._streams]
        gaps = [gap for number, (_, found) in enumerate(made) for gap in self._gaps(number, found)]
        columns = [np.concatenate(each) for each in zip(*(rows for rows, _ in made), strict=True)]
        kind, name, begin, end, depth, seq = columns
        count = len(kind)
        stream = np.repeat(np.arange(len(self._streams)), count // len(self._streams))
        offset = self._next(count) + np.arange(count)
        counters = kind == 1
        texts = [_COUNTER % value for value in np.flatnonzero(counters) % 1000]
        has_end = _bits(kind == 0)
        block = Block(
            rows=count, length=count,
            offset=_integers(offset), size=_integers(np.ones(count, np.int64)),
            kind=_words(kind, _KINDS), stream=_words(stream, list(map(str, range(len(self._streams))))),
            substream=None, counter=None, name=_words(name, _NAMES), category=None, id=None, parent=None,
            start=_integers(begin), end=Integers(end.tobytes(), has_end), attributes=_texts(texts, counters),
        )  # fmt: skip
        depths = Integers(depth.tobytes(), has_end) if self._deep else None
        rows = BlockRows(block, _integers(begin + EPOCH), _integers(seq), depths)
        batch.day = _day()
        batch.extend(_SOURCE, "heph", self._id, rows, count * 64)
        self._extend(batch, gaps)

    def _steps(self, stream: _Stream, steps: int) -> tuple[list[Numbers], list[tuple[int, int]]]:
        """Return the rows of some steps as columns: kind, name, begin, end, depth, number.

        Also return the first number and the count of each missing range.
        """
        shape = steps, SOLVES, CALLS
        length = np.minimum(self._random.lognormal(np.log(MEDIAN_NS), SIGMA, shape), 2e9).astype(
            np.int64
        )
        pause = self._random.exponential(MEDIAN_NS / 5, shape).astype(np.int64) + 1
        lost = self._random.random(steps) < SHARE_OF_GAPS
        pause[:, -1, -1] += np.where(lost, 20 * MEDIAN_NS, 0)
        ends = stream.now + np.cumsum(length + pause).reshape(shape) - pause
        begins = ends - length
        kind = np.zeros((steps, STEP), np.int64)
        name, begin, end, depth = (np.zeros_like(kind) for _ in range(4))
        of_solves = slice(0, STEP - 3)
        begin[:, of_solves], end[:, of_solves] = _beside_solves(begins), _beside_solves(ends)
        name[:, of_solves] = self._random.zipf(1.6, (steps, STEP - 3)) % 24 + 4
        depth[:, of_solves] = 3
        solves = np.arange(CALLS, STEP - 3, CALLS + 1)
        begin[:, solves], end[:, solves] = begins[:, :, 0], ends[:, :, -1]
        name[:, solves], depth[:, solves] = 1, 2
        begin[:, -3], end[:, -3], depth[:, -3] = begins[:, 0, 0], ends[:, -1, -1], 1
        for column, which in ((-2, 1), (-1, 2)):
            kind[:, column], name[:, column], begin[:, column] = which, which + 1, ends[:, -1, -1]
        missing = np.where(lost, self._random.integers(1, 40, steps), 0)
        before = stream.seq + np.arange(steps) * STEP + np.cumsum(missing) - missing
        seq = before[:, None] + np.arange(STEP)
        stream.now = int(ends[-1, -1, -1] + pause[-1, -1, -1])
        stream.seq = int(seq[-1, -1]) + 1 + int(missing[-1])
        gaps = [(int(seq[at, -1]) + 1, int(missing[at])) for at in np.flatnonzero(lost)]
        return [each.reshape(-1) for each in (kind, name, begin, end, depth, seq)], gaps

    def _gaps(self, stream: int, found: list[tuple[int, int]]) -> Iterator[Row]:
        for first, missing in found:
            count = json.dumps({"count": missing})
            yield _row(kind="gap", stream=str(stream), name="network", seq=first, missing=missing,
                       attributes=count, offset=self._offset)  # fmt: skip

    def _extend(self, batch: Batch, rows: list[Row]) -> None:
        if rows:
            columns = [list(each) for each in zip(*rows, strict=True)]
            batch.day = _day()
            batch.extend(_SOURCE, "heph", self._id, columns, 64 * len(rows))

    def _next(self, count: int) -> int:
        """Return the time at which the next rows begin."""
        self._offset += count
        return self._offset - count


def _beside_solves(values: Numbers) -> Numbers:
    """Return the calls' values of each step in one array.

    After the calls of each solve, there is a place for the solve itself.
    """
    room: Numbers = np.zeros((len(values), SOLVES, CALLS + 1), np.int64)
    room[:, :, :CALLS] = values
    return room.reshape(len(values), -1)


_EMPTY = Row(
    "", None, None, "", None, None, None, None, None, None, None, None, None, None, 0, None
)


def _row(**values: object) -> Row:
    return _EMPTY._replace(**values)


def _day() -> int:
    return EPOCH // (86_400 * 10**9)


def _integers(values: Numbers) -> Integers:
    return Integers(values.astype(np.int64).tobytes())


def _words(codes: Numbers, texts: list[str]) -> Words:
    return Words(codes.astype(np.int32).tobytes(), texts, len(texts))


def _bits(valid: NDArray[np.bool_]) -> bytes:
    return np.packbits(valid, bitorder="little").tobytes()


def _texts(texts: list[str], rows: NDArray[np.bool_]) -> Texts:
    """Return an array of texts: the given texts in the given rows, in order, and none in all other rows."""
    lengths = np.zeros(len(rows) + 1, np.int32)
    lengths[1:][rows] = [len(text) for text in texts]
    return Texts(np.cumsum(lengths, dtype=np.int32).tobytes(), "".join(texts).encode(), _bits(rows))
