"""What the sender discards, and what the collector is told of all that was discarded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tailrace_client._chunk import Chunk, Recorder
from tailrace_client._session import Dialogue, Range

_REPORT_SECONDS = 30.0
_RANGES_PER_REPORT = 16
"""So that a report fits into any datagram."""


class Discards:
    """Counts in the recorder, and makes reports in the words of the dialogue."""

    def __init__(self, recorder: Recorder, dialogue: Dialogue) -> None:
        self._recorder = recorder
        self._dialogue = dialogue
        self._reported: dict[str, int] = {}
        self._report_at = 0.0

    def count(self, chunk: Chunk, reason: str) -> None:
        """Count a chunk's events."""
        for _ in range(self._dialogue.count(chunk.data)):
            self._recorder.discard(reason)

    def name(self, ranges: Sequence[Range]) -> Iterator[bytes]:
        """Say which events were discarded."""
        for at in range(0, len(ranges), _RANGES_PER_REPORT):
            some = ranges[at : at + _RANGES_PER_REPORT]
            yield self._dialogue.report(self._recorder.discarded, some)

    def lose(self, ranges: Iterable[Range], reason: str = "lost") -> None:
        """Count events that were lost after they were sent."""
        for missing in ranges:
            self.lose_some(missing.next - missing.first, reason)

    def lose_some(self, events: int, reason: str) -> None:
        """Count so many of them."""
        for _ in range(events):
            self._recorder.discard(reason)

    def report(self, now: float) -> bytes:
        """Say how many there are, if there are more than were said, and not too often; empty if not."""
        discarded = dict(self._recorder.discarded)
        if now < self._report_at or discarded == self._reported or not any(discarded.values()):
            return b""
        self._reported = discarded
        self._report_at = now + _REPORT_SECONDS
        return self._dialogue.report(discarded)
