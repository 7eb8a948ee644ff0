"""What a producer of the demonstration sends, and what is to be found of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Write(NamedTuple):
    """One write(2) to a file of a trace: `path` is below its directory. With `anew` the file is
    emptied before, as documents are that are rewritten in place."""

    path: str
    data: bytes
    anew: bool = False


class Traffic(NamedTuple):
    chunks: Sequence[bytes] | Sequence[Write]
    """Datagrams, pieces of a stream, or what is written to files, in order."""
    events: int
    """How many different events are in them."""
    lost: dict[str, int]
    """How many were left out on purpose, by stream as the table names it."""
    numbers: set[tuple[str, int]]
    """Which: stream and counter, where the format has counters."""
    about: str
