"""Compare what a client believes to be delivered with the answers that it has received.

It must believe no more than these state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tailrace_client._link import Link
from tests.simulation import words
from tests.simulation.spans import Spans
from tests.simulation.violation import demand
from tests.simulation.watch import Watch

WHOLLY_EVERY = 16
"""After this number of answers, everything that a client keeps is compared."""


class Hearing:
    """A client's side of its conversation with the collector, as bytes in both directions."""

    def __init__(self, watches: Sequence[Watch], program: int, address: str, link: Link) -> None:
        self._watches = watches
        self._program = program
        self._link = link
        self._session = link.dialogue.id  # type: ignore[attr-defined]  # a `Session`
        self._said: defaultdict[int, Spans] = defaultdict(Spans)
        """By stream, the numbers that at least one answer called durable."""
        self._rest = b""
        self._news = False
        self._thoughts = 0
        for watch in watches:
            watch.introduced(self._session, program, address)

    def connected(self) -> None:
        """A new connection begins with a whole packet."""
        self._rest = b""

    def sent(self, data: bytes) -> None:
        """The client offers bytes to its kernel."""
        for watch in self._watches:
            watch.sent(self._program, data)

    def heard(self, data: bytes) -> None:
        """The client reads bytes. It has processed everything that it read before."""
        if self._news:
            self._news = False
            self._thoughts += 1
            wholly = self._thoughts % WHOLLY_EVERY == 0
            self.believes(self._link.queue.sent.items(), wholly=wholly)
        said = words.read(self._rest + data)
        self._rest = said.rest
        for answer in said.answers:
            if answer["session"] == self._session:
                self._news = True
                self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        holes: defaultdict[str, Spans] = defaultdict(Spans)
        for stream, first, count in answer["holes"]:
            holes[str(stream)].add(first, first + count)
        for stream, number in answer["streams"].items():
            for span in holes[stream].missing(0, number):
                self._said[int(stream)].add(*span)

    def believes(self, ends: Iterable[tuple[int, int]], *, wholly: bool = True) -> None:
        """Compare what the client believes of its streams with the answers that it received, for each stream up to a
        given end.

        Without `wholly`, skip streams whose first event that no answer called durable is kept by the client. Raise
        Violation if more events are neither unsettled nor called durable than the client has counted as discarded.
        """
        lacking = sum(
            self._believed_too_much(stream, end)
            for stream, end in ends
            if wholly or not self._keeps(stream, self._said[stream].beyond(0))
        )
        discarded = sum(self._link.recorder.discarded.values())
        about = (self._program, lacking, discarded)
        demand(lacking <= discarded, "a client believes what nobody said", about)

    def _keeps(self, stream: int, number: int) -> bool:
        queue = self._link.queue
        for items in (queue._again, queue._kept):
            for item in items:
                chunk = item.chunk
                if chunk.stream == stream and chunk.next > number:
                    return chunk.first <= number
        return False

    def _believed_too_much(self, stream: int, end: int) -> int:
        said, unsettled, queue = self._said[stream], Spans(), self._link.queue
        if said.beyond(0) >= end:
            return 0
        for items in (queue._kept, queue._again, queue._under_way, queue._new):
            for item in items:
                if item.chunk.stream == stream:
                    unsettled.add(item.chunk.first, item.chunk.next)
        for span in queue.forgotten.spans(stream):
            unsettled.add(*span)
        return sum(
            following - first
            for part in said.missing(0, end)
            for first, following in unsettled.missing(*part)
        )
