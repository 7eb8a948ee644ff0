"""Collect everything that the ingest produces between two commits: rows, and unreadable bytes for the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.ingest.state import Tally
from tailrace.rows.batch import Batch, Emitted
from tailrace.spool.payloads import OpenInfo


class QuarantinedBytes(NamedTuple):
    """Unreadable bytes, encoded for a session's quarantine file, and their position in the file."""

    session: str
    at: int
    frame: bytes


class Yielded:
    """Collects rows and unreadable bytes until the next commit."""

    def __init__(self) -> None:
        self.batch = Batch()
        self.quarantined: list[QuarantinedBytes] = []
        self.day = 0
        """Day of the last entry by the wall clock (days since 1970)."""
        self._last: dict[Callable[[], None], None] = {}

    @property
    def some(self) -> bool:
        """Return whether a commit would have rows to write."""
        return bool(len(self.batch) or self._last)

    def at_last(self, write: Callable[[], None]) -> None:
        """Call `write` once at the next `take`, so that it emits rows of the spans that are still open then."""
        self._last[write] = None

    def emit(
        self,
        info: OpenInfo,
        tally: Tally,
        name: str,
        rows: Emitted,
        size: int,
    ) -> None:
        """Add rows of the incarnation `name` (see `Batch.extend`). `size` is the approximate memory (bytes) of the
        rows."""
        batch = self.batch
        before = batch.size
        batch.extend(self.day, info.source, info.format, name, rows, size)
        tally.rows += batch.size - before

    def keep(self, session: str, at: int, frame: bytes) -> None:
        """Add encoded bytes for a session's quarantine file, at the position `at` in the file."""
        self.quarantined.append(QuarantinedBytes(session, at, frame))

    def take(self) -> tuple[Batch, list[QuarantinedBytes]]:
        """Return the rows and the unreadable bytes that were collected since the last call."""
        for write in self._last:
            write()
        self._last.clear()
        batch, quarantined = self.batch, self.quarantined
        self.batch, self.quarantined = Batch(), []
        return batch, quarantined
