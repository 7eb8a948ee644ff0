"""Simulate a program without a client that writes Heph. It gets no answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.ingest.log import heph_epoch, heph_event, heph_goodbye, heph_report
from tests.simulation.wire import Part, Sender
from tests.simulation.world import Time


class Heph:
    """A program that sends Heph events with numbers. Its clock began with the program."""

    def __init__(
        self,
        make: Callable[[Callable[[], list[Part]]], Sender],
        time: Time,
        random: Random,
        first: int,
        *,
        introduces: bool,
    ) -> None:
        """`make` returns the sender, given a function that returns the first packets.

        `first` is the number of each stream's first event. With `introduces`, this event arrives before all others of
        its stream.
        """
        self._zero = time.monotonic_ns()
        self.epoch = time.time_ns()
        self._time = time
        self._random = random
        self._first = first
        self._introduces = introduces
        self._next: dict[int, int] = {}
        self._discarded = 0
        self.sender = make(self._greet)

    def event(self, stream: int, number: int, name: str) -> None:
        """Send an event."""
        if self._introduces and stream not in self._next:
            self.sender.introduce()
        self._next[stream] = number + 1
        self.sender.send([self._event(stream, number, name)])

    def discard(self, stream: int, number: int, count: int, unnumbered: int) -> None:
        """Report that some events were discarded."""
        self._next[stream] = number + count
        self._discarded += count + unnumbered
        numbered = stream, (self._first + number) % 2**32, count
        report = heph_report(numbered, discarded=self._stated)
        self.sender.send([Part(report)])

    def garble(self, how: str, stream: int, number: int, name: str) -> None:
        """Send bytes that cannot be read (see `producers.GARBLES`): beside an event, or with `torn` in place of one."""
        event = self._event(stream, number, name)
        self._next[stream] = number + 1
        random = self._random
        noise = Part(
            bytes(random.randrange(128) for _ in range(random.randint(1, 150))), good=False
        )
        if how == "torn":
            # The epoch packet after this piece begins before the collector can take the piece for a whole event.
            cut = random.randrange(1, len(event.data) - 3)
            self.sender.send([Part(event.data[:cut], good=False), *self._greet()])
        else:
            self.sender.send([event, noise] if how == "behind" else [noise, event])

    def close(self) -> None:
        """Send the last number of each stream, and end."""
        finals = {str(s): (self._first + n) % 2**32 for s, n in self._next.items()}
        self.sender.send([Part(heph_goodbye(finals, discarded=self._stated))])
        self.sender.end()

    @property
    def _stated(self) -> dict[str, int]:
        return {"full": self._discarded} if self._discarded else {}

    def _event(self, stream: int, number: int, name: str) -> Part:
        now = self._time.monotonic_ns() - self._zero
        data = heph_event(
            stream, self._first + number, start=max(0, now - 1000), end=now, name=name.encode()
        )
        return Part(data, name)

    def _greet(self) -> list[Part]:
        return [Part(heph_epoch(self.epoch))]
