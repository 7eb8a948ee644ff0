"""The traffic of a producer in the demonstration, and what the table must say about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Write(NamedTuple):
    """One write(2) to a file of a trace. `path` is relative to the trace's directory. With `anew`, the
    file is emptied first, like documents that are rewritten in place."""

    path: str
    data: bytes
    anew: bool = False


class Traffic(NamedTuple):
    chunks: Sequence[bytes] | Sequence[Write]
    """Datagrams, pieces of a stream, or writes to files, in order."""
    events: int
    """The number of different events in the chunks."""
    lost: dict[str, int]
    """The number of events left out on purpose, by stream as the table names it."""
    numbers: set[tuple[str, int]]
    """Stream and counter of each event left out, for formats with counters."""
    about: str
