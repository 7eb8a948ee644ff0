"""Take events out of the queue that cannot become durable any more; count all discarded events, and report them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace_client._chunk import UNNUMBERED, Chunk, Recorder
from tailrace_client._queue import Queue
from tailrace_client._session import Answer, Dialogue, Range

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
        """Count a chunk's events as discarded, and return their number."""
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


WAITING_PACKETS_MAX = 64
"""With so many packets waiting no report is added: a collector might ask and never read."""


class Losses:
    """The events of one queue that are lost, refused or given up."""

    def __init__(self, queue: Queue, discards: Discards, dialogue: Dialogue) -> None:
        self._queue, self._discards, self._dialogue = queue, discards, dialogue

    def settle(self, answer: Answer) -> bool:
        """Settle what an answer says of the events. Return whether some are missing."""
        queue = self._queue
        self._give_up_some(answer)
        missing, lost = queue.settle(answer)
        self._discards.lose(lost)
        self._name(lost)
        # The collector still asks for discarded events: the report of them may have been lost.
        again = answer.holes and answer.turn == self._dialogue.turn
        if again and queue.waiting_packets < WAITING_PACKETS_MAX:
            discarded, durable = queue.unreachable(answer)
            self._name(discarded)
            self._name(durable, elsewhere=True)
        return missing

    def refuse(self) -> None:
        """Discard the events that the kernel refuses to send."""
        for chunk in self._queue.refused():
            self._discards.count(chunk, "refused")
            self._name([Range(chunk.stream, chunk.first, chunk.next)])

    def lose_unsettled(self) -> None:
        """Discard the events that were sent to nobody and are not kept."""
        lost = self._queue.lose()
        self._discards.lose(lost)
        self._name(lost)
        if not self._dialogue.asks:
            self._queue.lose_handed()

    def close_late(self, chunks: Iterable[Chunk], stated: Mapping[int, int]) -> int:
        """Count the events of these chunks as discarded, because the link was closed before. Return how many of them no
        goodbye counts: those that have no number, or one that is not below what is `stated` of their stream."""
        late = 0
        for chunk in chunks:
            events = self._discards.count(chunk, "closed")
            below = stated.get(chunk.stream, 0)
            late += (
                events
                if chunk.stream == UNNUMBERED
                else sum(number >= below for number, _ in chunk.places())
            )
        return late

    def close_unsent(self) -> None:
        """Count the events that were never sent as discarded, because the link is closed."""
        for chunk in self._queue.unsent():
            self._discards.count(chunk, "closed")

    def close_unanswered(self) -> None:
        """Count the events that were never answered as discarded, because the link is closed."""
        for chunk in self._queue.unanswered():
            self._discards.count(chunk, "closed")
        self._discards.lose(self._queue.lose())

    def report(self, now: float) -> None:
        """Queue a report of the counts if one is due."""
        has_room = self._queue.waiting_packets < WAITING_PACKETS_MAX
        if has_room and (report := self._discards.report(now)):
            self._queue.packet(report)

    def _give_up_some(self, answer: Answer) -> None:
        """Count as discarded the events that the collector has given up or does not count. No report
        names them: the collector knows."""
        for stream, events in answer.given_up.items():
            if self._discards.give_up(stream, events):
                self._queue.lose_some(stream)
        chunks, ranges = self._queue.abandon(answer.uncounted)
        for chunk in chunks:
            self._discards.count(chunk, "uncounted")
        self._discards.lose(ranges, "uncounted")

    def _name(self, ranges: Sequence[Range], *, elsewhere: bool = False) -> None:
        """Queue reports that these events were discarded, or are durable `elsewhere`."""
        for packet in self._discards.name(ranges, elsewhere=elsewhere):
            self._queue.packet(packet)
