"""Take events out of the queue that cannot become durable any more; count them, and report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace_client._chunk import Chunk
from tailrace_client._discards import Discards
from tailrace_client._queue import Queue
from tailrace_client._session import Answer, Dialogue, Range

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

    def close_late(self, chunks: Iterable[Chunk]) -> int:
        """Count the events of these chunks as discarded, because the link was closed before. Return how many there are."""
        return sum(self._discards.count(chunk, "closed") for chunk in chunks)

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
