"""Find out which events of a session are durable, count the lost ones, and end the session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace_client._chunk import UNNUMBERED, Chunk, ChunkSource
from tailrace_client._queue import Queue
from tailrace_client._session import Answer, Dialogue, Range


def _chance() -> float:
    return os.urandom(1)[0] / 1024


class Backoff:
    """A pause that doubles each time until it is reset. It varies at random, because the clients of a restarted
    collector would otherwise reconnect at the same moment."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self.after = first
        self.at = 0.0

    def left(self, now: float) -> float:
        return max(0.0, self.at - now)

    def grow(self, now: float) -> None:
        self.at = now + self.after * (1 - _chance())
        self.after = min(2 * self.after, self._most)

    def shorten(self) -> None:
        self.after = self._first


_SECONDS = (0.3, 5.0)
"""Minimum and maximum pause (seconds) between requests to the collector to state which events are durable. They are
sent while events are unsettled (neither known to be durable nor lost). The pause doubles while no answer arrives."""
_FIRST_SECONDS = 0.1
"""Pause (seconds) between requests to the collector for an answer until it has answered for the first time."""
_REMIND_SECONDS = 10.0
"""Interval (seconds) at which the client announces its session again: datagrams get lost, and collectors restart."""


class Questions:
    """Decides when the client announces its session again. An announcement with a new number is a *question*: the
    collector answers it and states which events are durable. An announcement that repeats the last number is a
    *reminder*."""

    def __init__(self) -> None:
        self._pause = Backoff(*_SECONDS)
        self._hurried = False
        self._announced_at = -1e9

    def announced(self, now: float) -> None:
        self._announced_at = now

    def answered(self) -> None:
        self._pause.shorten()

    def hurry(self) -> None:
        """Let the client request an answer of the collector at once, because the program waits for the answer."""
        self._hurried = True

    def asked(self, now: float) -> None:
        self._hurried = False
        self._pause.grow(now)

    def is_due(self, oldest: float, now: float, *, first: bool) -> bool:
        """Return whether the client must now ask the collector which events are durable. `oldest` is the time since
        which an event has been unsettled (neither known to be durable nor lost). `first` states that the client waits
        for the first answer of a collector, but not for long yet."""
        if first and now - self._announced_at >= _FIRST_SECONDS:
            return True
        return self._hurried or (now - oldest > _SECONDS[0] and not self._pause.left(now))

    def is_forgotten(self, now: float) -> bool:
        """Return whether the client's last announcement of its session was so long ago that another collector may have
        been started at the address since. The new collector would not know the session."""
        return now - self._announced_at >= _REMIND_SECONDS


_FIRST = 256 * 1024
_LEAST = 64 * 1024


class Window:
    """Limits the number of sent bytes that may be unsettled (neither known to be durable nor lost). Each answer
    enlarges the limit, or reduces it if events were lost."""

    def __init__(self, most: int, silence: float) -> None:
        """Allow at most `most` unsettled bytes. If there was no answer for `silence` seconds, there is no limit."""
        self._most = most
        self._silence = silence
        self._size = _FIRST
        self._answered_at = -1e9

    def is_full(self, in_flight: int, now: float) -> bool:
        return in_flight > self._size and now - self._answered_at < self._silence

    def answered(self, *, lost: bool, now: float) -> None:
        if now - self._answered_at > self._silence:
            self._size = _FIRST
        elif lost:
            self._size = max(_LEAST, self._size // 2)
        else:
            self._size = min(self._most, self._size + self._size // 4)
        self._answered_at = now


_REPORT_SECONDS = 30.0
_RANGES_PER_REPORT = 16
"""Maximum number of ranges in one report, which then fits into any datagram."""


WAITING_PACKETS_MAX = 64
"""Number of waiting packets above which no report of discarded events is added. A collector that asks for events again
but reads nothing would otherwise fill the queue."""


class Losses:
    """Removes from the queue the events that were lost on the way, refused by the kernel, or given up by the collector.
    Counts these events as discarded in the recorder, and queues the reports about them."""

    def __init__(self, queue: Queue, recorder: ChunkSource, dialogue: Dialogue) -> None:
        self._queue, self._recorder, self._dialogue = queue, recorder, dialogue
        self._reported: dict[str, int] = {}
        self._report_at = 0.0
        self._given_up: dict[int, int] = {}
        """For each stream, the number of events that the collector gave up and that are already counted."""

    def settle(self, answer: Answer) -> bool:
        """Release the durable events, and count the lost ones. Return whether events are missing."""
        queue = self._queue
        missing, lost = queue.settle(answer, self._give_up_some(answer))
        self._lose(lost)
        self._name(lost)
        # The collector may ask again for discarded events, because their report was lost.
        again = answer.holes and answer.turn == self._dialogue.turn
        if again and queue.waiting_packets < WAITING_PACKETS_MAX:
            discarded, durable = queue.unreachable(answer)
            self._name(discarded)
            self._name(durable, elsewhere=True)
        return missing

    def refuse(self) -> None:
        for chunk in self._queue.refused():
            self._discard(chunk, "refused")
            self._name([Range(chunk.stream, chunk.first, chunk.next)])

    def lose_unsettled(self) -> None:
        """Count sent events as discarded if no collector received them and the queue no longer keeps them."""
        lost = self._queue.lose()
        self._lose(lost)
        self._name(lost)
        if not self._dialogue.asks:
            self._queue.lose_handed()

    def close_late(self, chunks: Iterable[Chunk], stated: Mapping[int, int]) -> int:
        """Count events as discarded that were recorded after the link was closed. Return how many of them the goodbye
        (the packet that ends the session) did not count. `stated` has, for each stream, the number after the last event
        that the goodbye counted."""
        late = 0
        for chunk in chunks:
            events = self._discard(chunk, "closed")
            below = stated.get(chunk.stream, 0)
            if chunk.stream != UNNUMBERED:
                events = sum(number >= below for number, _ in chunk.places())
            late += events
        return late

    def close_unsent(self) -> None:
        for chunk in self._queue.unsent():
            self._discard(chunk, "closed")

    def close_unanswered(self) -> None:
        for chunk in self._queue.unanswered():
            self._discard(chunk, "closed")
        self._lose(self._queue.lose())

    def name_ends(self, numbers: Mapping[int, int]) -> None:
        """Report the numbers of the events that were discarded after the last recorded event of each stream. `numbers`
        has the number of each stream's next event. Call this only if the client asks for no answers; otherwise the
        client reports these events when the collector asks for them."""
        recorded = self._queue.recorded
        self._name(
            [Range(s, recorded.get(s, 0), n) for s, n in numbers.items() if recorded.get(s, 0) < n]
        )

    def report(self, now: float) -> None:
        """Queue a report of how many events were discarded for each reason. Queue none if no count has changed, the
        last report is recent, or many packets wait."""
        discarded = dict(self._recorder.discarded)
        has_room = self._queue.waiting_packets < WAITING_PACKETS_MAX
        is_new = discarded != self._reported and any(discarded.values())
        if has_room and is_new and now >= self._report_at:
            self._reported = discarded
            self._report_at = now + _REPORT_SECONDS
            if report := self._dialogue.report(discarded):
                self._queue.packet(report)

    def _give_up_some(self, answer: Answer) -> set[int]:
        """Count as discarded the events that the collector has given up (it waits for them no longer), and the events
        of streams that the collector does not check. Return the streams of which the collector has given up more events
        than before."""
        grown = set()
        for stream, events in answer.given_up.items():
            more = events - self._given_up.get(stream, 0)
            if more > 0:
                # The collector reports these events itself, so add them to no report.
                self._given_up[stream] = events
                self._recorder.discard("given_up", more)
                self._queue.lose_some(stream)
                grown.add(stream)
        chunks, ranges = self._queue.abandon(answer.uncounted)
        for chunk in chunks:
            self._discard(chunk, "uncounted")
        self._lose(ranges, "uncounted")
        return grown

    def _discard(self, chunk: Chunk, reason: str) -> int:
        """Count the events of a chunk as discarded, and return their number."""
        events = self._dialogue.count(chunk.data)
        self._recorder.discard(reason, events)
        return events

    def _lose(self, ranges: Iterable[Range], reason: str = "lost") -> None:
        """Count events as discarded that the client has sent and that were lost on the way, or for another `reason`."""
        for missing in ranges:
            self._recorder.discard(reason, missing.next - missing.first)

    def _name(self, ranges: Sequence[Range], *, elsewhere: bool = False) -> None:
        """Queue reports of discarded events or, with `elsewhere`, of events that another collector has acknowledged."""
        for at in range(0, len(ranges), _RANGES_PER_REPORT):
            some = ranges[at : at + _RANGES_PER_REPORT]
            self._queue.packet(
                self._dialogue.report(self._recorder.discarded, some, elsewhere=elsewhere)
            )


_AGAIN_SECONDS = 0.25
"""Time (seconds) after which a client sends a goodbye (the packet that ends the session) again if the collector has not
answered the last datagram with it."""


class Farewell:
    """The end of a session. The client states it in a packet, the *goodbye*, and the end is unsettled until the
    collector answers this packet. On a byte stream, the goodbye is sent after all other data, and again on each new
    connection. Over UDP, it waits until all events are settled (durable or lost), because datagrams overtake one
    another."""

    def __init__(
        self, dialogue: Dialogue, recorder: ChunkSource, size: int, *, repeat: bool
    ) -> None:
        """Create packets of about `size` bytes. `repeat` states whether they are sent in datagrams."""
        self._dialogue, self._recorder = dialogue, recorder
        self._size, self._repeat = size, repeat
        self._sent: tuple[int, int] | None = None
        self._sent_at = -1e9
        self._is_new = True
        """Whether the requested goodbye (the last packet of a session) was not sent yet. Until then, an answer belongs
        to an earlier goodbye."""
        self.wanted = False
        """Whether a goodbye (a packet that ends the session) was requested, and the format has such a packet."""
        self.answered = False
        """Whether the collector has answered the requested goodbye, the packet that ends the session."""
        self.numbers: Mapping[int, int] = {}
        """For each stream, the number of its next event as stated in the latest goodbye, the packet that ends the
        session."""

    def want(self) -> None:
        self.answered = False
        self._is_new = True
        before = self.numbers
        self.wanted = any(self.packets())
        self.numbers = before

    def packets(self) -> Iterator[bytes]:
        self.numbers = numbers = self._recorder.next_numbers()
        return self._dialogue.goodbyes(numbers, self._recorder.discarded, self._size)

    @property
    def sent(self) -> bool:
        """Whether the goodbye, the packet that ends the session, was sent on the current connection."""
        return self._sent is not None and not self._is_new

    def is_due(self, connection: int, place: int, *, settled: bool, now: float) -> bool:
        """Return whether to send the goodbye (the packet that ends the session) now. `place` is the number of bytes
        that were sent on the connection number `connection`. `settled` states that all of these bytes are known to be
        durable or lost."""
        if not self.wanted or self.answered:
            return False
        if self._repeat:
            return settled and (self._is_new or now - self._sent_at >= _AGAIN_SECONDS)
        return self._is_new or self._sent != (connection, place)

    def send(self, connection: int, place: int, now: float) -> Iterator[bytes]:
        self._sent, self._sent_at, self._is_new = (connection, place), now, False
        return self.packets()

    def take_answer(self) -> None:
        self.answered = not self._is_new

    def broken(self) -> None:
        self._sent = None


class Fate:
    """Shows which events in the queue are durable, lost, or unsettled (neither is known yet)."""

    def __init__(self, queue: Queue, farewell: Farewell, *, asks: bool) -> None:
        self._queue, self._farewell, self._asks = queue, farewell, asks

    @property
    def unsettled(self) -> bool:
        """Whether an event, or the goodbye that ends the session, still waits to be sent or to be answered."""
        farewell = self._farewell
        unanswered = farewell.wanted and not (farewell.answered if self._asks else farewell.sent)
        return not self._queue.idle or self._queue.unsettled or unanswered

    def is_settled(self, position: int) -> bool:
        """Return whether all events before `position` are durable or lost or, without answers, accepted by the kernel."""
        queue = self._queue
        return (queue.settled() if self._asks else queue.handed()) >= position

    def has_lost(self, position: int) -> bool:
        """Return whether any event before `position` was lost on its way, or refused by the kernel."""
        return self._queue.lost_at < position

    def has_ended(self, position: int) -> bool:
        """Return whether all events before `position` are settled, and the collector has answered the goodbye (the
        packet that ends the session and follows all events). If the client asks for no answers, it is enough that the
        goodbye was sent."""
        farewell = self._farewell
        sent = self._queue.idle and (farewell.sent or not farewell.wanted)
        return (farewell.answered if self._asks else sent) and self.is_settled(position)
