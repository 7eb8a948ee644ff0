"""A client's belief of what is delivered, held against the answers that it got: no more than these said."""

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
"""Answers from one after which all that a client keeps is looked at to the next."""


class Hearing:
    """A client's side of the conversation, as bytes that go and come."""

    def __init__(self, watches: Sequence[Watch], program: int, address: str, link: Link) -> None:
        self._watches = watches
        self._program = program
        self._link = link
        self._session = link.dialogue.id  # type: ignore[attr-defined]  # a `Session`
        self._said: defaultdict[int, Spans] = defaultdict(Spans)
        """By stream, the numbers that some answer called durable."""
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
        """The client reads bytes, and has thought about what it read before."""
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
        """Hold what the client believes of its streams, up to an end each, against what it was told.
        Unless `wholly`, pass over a stream of which the first event that nobody called durable is kept.

        Raise Violation if more events are neither unsettled nor called durable than the client says
        that it discarded."""
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
