"""A bad network between producers that begin anew behind one socket and a collector, and its book.

    network = Network(seed, epochs=True, announced=True)
    for leaving in network.course():
        ...  # datagrams that arrive together, or PAUSE: longer than the collector waits, in silence
    network.book

A producer has several runs, one after the other from the same socket, each with some streams whose
counters begin at 0 or just below 2^32. Datagrams of one to four events are dropped, sent twice, or
overtaken by up to `DEPTH` later ones, across the end of a run too; so are the copies.

Producers that announce their runs throw events away, which they report in the datagram of the next event
of the stream, send again in a pause what was dropped, and end with a goodbye, which is neither lost
nor late: what is still on its way comes after it. Their streams may lose their last events.

Quick producers (`quick`) send as their clocks go, run for a fraction of a second each and begin anew
after 100 to 300 ms: several runs fit into the time for which the collector waits. `clock` is how far
(ns) the time has come; for other producers it stands still.

Things that no collector can know from counters are left out, and this is the list:

- the last number of each stream of a run arrives, unless it is announced, and so does the first where
  that is not 0; of such a stream, a number before the wrap arrives first;
- runs last longer than datagrams are late and, unless they are quick, than a collector waits for late
  ones: the last events of a run have times far from the first ones of the next, and each run has a
  long pause;
- no pause comes while something of an earlier run is still on its way;
- with epochs: the first datagram of a run is neither lost nor late, nor overtakes the run before;
- no report comes after the next run's beginning: it says nothing of whose it is;
- without: no number below `HEAD` (on the wire) is lost, only the first run may begin above 0, all runs
  have the same streams, and none ends at the numbers with which the next one begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.ingest.log import heph_epoch, heph_event, heph_goodbye, heph_report, heph_session

DEPTH = 12
HEAD = 64
EVENTS_MAX = 4
PAUSE = None

_MS, _SECOND = 10**6, 10**9
_EPOCH = 10**18


class Event(NamedTuple):
    """An event that was sent. `number` is unwrapped."""

    run: int
    stream: int
    number: int


class Book:
    """The packets that were sent, and what became of them."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.dropped: set[Event] = set()
        self.copies: Counter[int] = Counter()
        """Events that arrive a second time, by run."""
        self.healed: set[Event] = set()
        """Late events that the collector must have reported as lost in a pause."""
        self.discarded: set[Event] = set()
        """Events that their producer discarded. They are in `sent`, too."""
        self.reported: set[Event] = set()
        """Discarded events whose report has arrived."""

    @property
    def missing(self) -> set[Event]:
        return self.dropped | self.discarded


class _Packet(NamedTuple):
    data: bytes
    events: tuple[Event, ...]
    opens: bool = False
    """Whether the packet is the first one of its run."""
    idle: bool = False
    """Whether its producer did nothing for a long time before."""
    last: bool = False
    """Whether it contains the last event of a stream."""
    reports: tuple[Event, ...] = ()
    """The events that it reports as discarded."""


class Network:
    def __init__(
        self, seed: int, *, epochs: bool, announced: bool = False, quick: bool = False
    ) -> None:
        self.book = Book()
        self.runs = 0
        self.clock = 0
        self._random = Random(
            f"network/{seed}/{epochs}" + "/announced" * announced + "/quick" * quick
        )
        self._quick = quick
        self._loss = self._random.choice([0, 0.12]) if quick else 0.12
        self._seed = seed
        self._epochs = epochs
        self._announced = announced
        self._streams = [3, 1, 4][: self._random.randint(1, 3)]
        self._held: list[tuple[int, int, _Packet]] = []
        """Packets on their way: after how many others each arrives, a number for their order, and the packet."""
        self._passed = 0
        self._arrived: dict[tuple[int, int], list[int]] = {}
        self._firsts: dict[tuple[int, int], int] = {}
        self._finals: dict[tuple[int, int], int] = {}
        """The runs that have sent a goodbye."""
        self._lost: list[_Packet] = []
        """Dropped packets of the current run."""

    def course(self) -> Iterator[list[bytes] | None]:
        random = self._random
        epoch = _EPOCH
        for run in range(random.randint(2, 8) if self._quick else random.randint(1, 4)):
            self.runs += 1
            packets = list(self._packets(run, epoch))
            for packet, ticks in packets:
                if self._quick:
                    self.clock = epoch - _EPOCH + ticks
                elif packet.idle or (self._calm(run) and random.random() < 0.03):
                    self._pause()
                    yield PAUSE
                    if self._announced and (again := self._again()):
                        yield again
                if packet.opens and self._epochs:
                    # Packets that are still on their way arrive after it.
                    self._arrive(packet)
                    yield [packet.data]
                else:
                    leaving = [p.data for p in self._push(packet)]
                    if leaving:
                        yield leaving
            pause = (
                random.randrange(100, 300) * _MS if self._quick else random.randrange(60 * _SECOND)
            )
            epoch += packets[-1][1] + pause
            if self._announced:
                yield self._goodbyes(run)
        rest = [packet for *_, packet in sorted(self._held)]
        for packet in rest:
            self._arrive(packet)
            yield [packet.data]

    def _calm(self, run: int) -> bool:
        return all(packet.events[0].run == run for *_, packet in self._held)

    def _packets(self, run: int, epoch: int) -> Iterator[tuple[_Packet, int]]:
        """Yield one run's packets, and how far its clock is at each."""
        random = self._random
        streams = random.sample(range(6), random.randint(1, 3)) if self._epochs else self._streams
        numbers = {stream: self._first(run, stream) for stream in streams}
        size = random.randint(150, 400) if self._quick else random.randint(400, 500)
        turns = [random.choice(streams) for _ in range(size)]
        ends = {len(turns) - 1 - turns[::-1].index(stream) for stream in set(turns)}
        idle = random.randrange(EVENTS_MAX * (DEPTH + 1), len(turns) // 2)
        ticks, step = random.randrange(_MS), (5 if self._quick else 1) * _MS
        place = 0
        while place < len(turns):
            size = random.randint(1, EVENTS_MAX) if random.random() < 0.3 else 1
            events, reports, data = [], [], b""
            if self._epochs and (place == 0 or random.random() < 0.05):
                data = heph_epoch(epoch)
                if self._announced:
                    data += heph_session(self._seed * 1000 + run)
            opens, idles, last = place == 0, False, False
            for turn in range(place, min(place + size, len(turns))):
                stream = turns[turn]
                ticks += random.randrange(1, step)
                if turn == place and idle < turn and not self._quick:
                    idle, idles, ticks = len(turns), True, ticks + 1000 * _SECOND
                start = ticks - random.randrange(ticks // 2 if random.random() < 0.1 else 1000)
                if self._announced and random.random() < 0.06:
                    thrown = self._discard(run, stream, numbers)
                    timely = turn < len(turns) - EVENTS_MAX * (DEPTH + 1)
                    if thrown and timely and random.random() < 0.8:
                        first = thrown[0].number % 2**32
                        data += heph_report([stream, first, len(thrown)])
                        reports += thrown
                data += heph_event(stream, numbers[stream], start=max(start, 0), end=ticks)
                events.append(Event(run, stream, numbers[stream]))
                numbers[stream] += 1
                last |= turn in ends
            self.book.sent += events
            place += size
            yield _Packet(data, tuple(events), opens, idles, last, tuple(reports)), ticks
        self._numbers = numbers

    def _discard(self, run: int, stream: int, numbers: dict[int, int]) -> list[Event]:
        """Let the producer discard some events. They use up their numbers."""
        if numbers[stream] == self._firsts[run, stream] > 0:
            return []
        size = self._random.randint(1, 3)
        thrown = [Event(run, stream, numbers[stream] + n) for n in range(size)]
        numbers[stream] += size
        self.book.sent += thrown
        self.book.discarded.update(thrown)
        return thrown

    def _goodbyes(self, run: int) -> list[bytes]:
        """Return the goodbye of a run: a report of what it discarded last, and the last numbers of its streams."""
        random, said = self._random, []
        for stream in self._numbers:
            if random.random() < 0.3:
                thrown = self._discard(run, stream, self._numbers)
                said += thrown
        self.book.reported.update(said)
        reports = [[e.stream, e.number % 2**32, 1] for e in said]
        finals = {str(stream): number % 2**32 for stream, number in self._numbers.items()}
        self._finals |= {(run, stream): number for stream, number in self._numbers.items()}
        self._lost.clear()
        first = dict(list(finals.items())[:1])
        return [
            heph_report(*reports) + heph_goodbye(first, more=True),
            heph_goodbye(finals),
        ]

    def _again(self) -> list[bytes]:
        """Return those dropped packets that are sent again after a pause. They are a share of all."""
        chosen = [packet for packet in self._lost if self._random.random() < 0.5]
        for packet in chosen:
            self._lost.remove(packet)
            self.book.dropped.difference_update(packet.events)
            self.book.healed.update(e for e in packet.events if self._lacks(e))
        for packet in chosen:
            self._arrive(packet)
        return [packet.data for packet in chosen]

    def _first(self, run: int, stream: int) -> int:
        may_wrap = self._epochs or run == 0
        first = (
            2**32 - self._random.randint(60, 70) if may_wrap and self._random.random() < 0.3 else 0
        )
        self._firsts[run, stream] = first
        return first

    def _push(self, packet: _Packet) -> list[_Packet]:
        """Send a packet. Return what arrives now."""
        random = self._random
        self._passed += 1
        fate = random.random()
        if fate < self._loss and not self._needed(packet):
            self.book.dropped.update(packet.events)
            self._lost.append(packet)
        elif fate < 0.3:
            self._hold(packet)
        else:
            self._held.append((self._passed, 2 * self._passed, packet))
        if 0.25 < fate < 0.35:
            self.book.copies[packet.events[0].run] += len(packet.events)
            self._hold(packet)
        ready = sorted(held for held in self._held if held[0] <= self._passed)
        self._held = [held for held in self._held if held[0] > self._passed]
        for *_, arriving in ready:
            self._arrive(arriving)
        return [arriving for *_, arriving in ready]

    def _hold(self, packet: _Packet) -> None:
        by = self._random.randint(1, DEPTH)
        self._held.append((self._passed + by, 2 * self._passed + 1, packet))

    def _needed(self, packet: _Packet) -> bool:
        if (packet.last and not self._announced) or (packet.opens and self._epochs):
            return True
        return any(
            (event.number == (first := self._firsts[event.run, event.stream]) and first > 0)
            or (not self._epochs and event.number % 2**32 < HEAD)
            for event in packet.events
        )

    def _arrive(self, packet: _Packet) -> None:
        for run, stream, number in packet.events:
            self._arrived.setdefault((run, stream), []).append(number)
        self.book.reported.update(packet.reports)

    def _pause(self) -> None:
        """Record a pause: packets that were overtaken and have not arrived count as lost now."""
        for *_, packet in self._held:
            self.book.healed.update(event for event in packet.events if self._lacks(event))

    def _lacks(self, event: Event) -> bool:
        """Return whether the collector knows that it lacks this event."""
        key = event.run, event.stream
        arrived = self._arrived.get(key, [])
        ends = self._finals.get(key, max(arrived, default=-1))
        begins = min(arrived) if self._firsts[key] and arrived else -1
        return event.number not in arrived and begins < event.number < ends
