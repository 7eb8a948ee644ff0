"""The counts of events that the sender discards, and the reports of all discarded events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tailrace_client._chunk import Chunk, Recorder
from tailrace_client._session import Dialogue, Range

_REPORT_SECONDS = 30.0
_RANGES_PER_REPORT = 16
"""With so many ranges a report fits into any datagram."""


class Discards:
    """Counts discarded events in the recorder, and makes reports by the dialogue."""

    def __init__(self, recorder: Recorder, dialogue: Dialogue) -> None:
        self._recorder = recorder
        self._dialogue = dialogue
        self._reported: dict[str, int] = {}
        self._report_at = 0.0
        self._given_up: dict[int, int] = {}
        """By stream, how many events that the collector has given up are counted."""

    def count(self, chunk: Chunk, reason: str) -> int:
        """Count a chunk's events as discarded. Return how many there are."""
        events = self._dialogue.count(chunk.data)
        self._count(events, reason)
        return events

    def name(self, ranges: Sequence[Range], *, elsewhere: bool = False) -> Iterator[bytes]:
        """Yield reports that these events were discarded, or are durable `elsewhere`."""
        for at in range(0, len(ranges), _RANGES_PER_REPORT):
            some = ranges[at : at + _RANGES_PER_REPORT]
            yield self._dialogue.report(self._recorder.discarded, some, elsewhere=elsewhere)

    def lose(self, ranges: Iterable[Range], reason: str = "lost") -> None:
        """Count events that were lost after they were sent."""
        for missing in ranges:
            self._count(missing.next - missing.first, reason)

    def give_up(self, stream: int, events: int) -> bool:
        """Count the events that the collector has given up: `events` of a stream, in the session so
        far. Return whether some were not counted before."""
        more = events - self._given_up.get(stream, 0)
        if more > 0:
            self._given_up[stream] = events
            self._count(more, "given_up")
        return more > 0

    def _count(self, events: int, reason: str) -> None:
        self._recorder.discard(reason, events)

    def report(self, now: float) -> bytes:
        """Return a report of the counts; empty if nothing is new or the last report is too recent."""
        discarded = dict(self._recorder.discarded)
        if now < self._report_at or discarded == self._reported or not any(discarded.values()):
            return b""
        self._reported = discarded
        self._report_at = now + _REPORT_SECONDS
        return self._dialogue.report(discarded)
