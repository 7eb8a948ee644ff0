"""What the ingest yields between two commits: rows, and frames for the quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.ingest.payloads import OpenInfo
from tailrace.ingest.state import Tally
from tailrace.model.columns import Batch


class QuarantinedBytes(NamedTuple):
    """A frame for the quarantine file of a session, and its position in the file."""

    session: str
    at: int
    frame: bytes


class Yielded:
    """Collects rows and frames until they are taken."""

    def __init__(self) -> None:
        self.batch = Batch()
        self.quarantined: list[QuarantinedBytes] = []
        self.day = 0
        """Day of the last entry by the wall clock (days since 1970)."""

    def emit(
        self, info: OpenInfo, tally: Tally, name: str, columns: Sequence[Sequence[Any]], size: int
    ) -> None:
        """Add rows of an incarnation, given as columns in the table's order and their bytes, about."""
        self.batch.extend(self.day, info.source, info.format, name, columns, size)
        tally.rows += len(columns[0])

    def keep(self, session: str, at: int, frame: bytes) -> None:
        """Add a frame to a session's quarantine file."""
        self.quarantined.append(QuarantinedBytes(session, at, frame))

    def take(self) -> tuple[Batch, list[QuarantinedBytes]]:
        """Return what was collected since the last call."""
        batch, quarantined = self.batch, self.quarantined
        self.batch, self.quarantined = Batch(), []
        return batch, quarantined
