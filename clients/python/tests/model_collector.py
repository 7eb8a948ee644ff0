"""Model a collector as clients/PROTOCOL.md describes it, without sockets, clocks or files. Also model networks between
the collector and a client, in virtual time.

The model shares no code and no constant with the client. The events in `heard` are received but not durable: they are
lost if the collector is killed before the next `commit`. The events in `stored` are durable. Networks do not report
which data they lose: a test knows only which events were emitted and which are stored.
"""

from __future__ import annotations

import errno
import heapq
import json
from collections import defaultdict
from itertools import count

from clients.python.tests.collectors import option
from clients.python.tests.reader import Metadata, packets


class Session:
    """The state of one session in a collector. Events are pairs of stream and number."""

    def __init__(self, places):
        self.places = places
        """Maximum number of streams whose numbers are checked: the first ones that arrive."""
        self.counted = []
        self.uncounted = set()
        """Streams whose numbers are not checked. Those of them with new events are also in `uncounted_news`."""
        self.uncounted_news = set()
        self.stored = set()
        self.heard = set()
        self.said = []
        """Fields of metadata packets that are not durable yet."""
        self.turn = 0
        self.asked = True
        """Whether the next answer must name all streams."""
        self.told = {}
        self.reported = set()
        self.next = defaultdict(int)
        """By stream, the highest known number of its events plus one."""
        self.goodbye = False
        self.farewells = []

    def commit(self):
        self.stored |= self.heard
        for stream, number in sorted(self.heard):
            if not self.counts(stream):
                self.uncounted.add(stream)
                self.uncounted_news.add(stream)
                continue
            self.next[stream] = max(self.next[stream], number + 1)
        self.heard = set()
        for name, fields in self.said:
            if name == "tailrace.session":
                self.asked |= fields["turn"] > self.turn
                self.turn = max(self.turn, fields["turn"])
            elif name == "tailrace.report":
                for stream, first, lost in fields["ranges"]:
                    self.reported |= {(stream, number) for number in range(first, first + lost)}
            elif name == "tailrace.goodbye":
                for stream, number in fields["streams"].items():
                    if not self.counts(int(stream)):
                        continue
                    self.next[int(stream)] = max(self.next[int(stream)], number)
                self.farewells.append(fields)
                parts = {said.get("part", 0) for said in self.farewells}
                ends = [said.get("part", 0) for said in self.farewells if not said["more"]]
                self.goodbye |= any({*range(end)} <= parts for end in ends)
        self.said = []

    def counts(self, stream):
        """Return whether the numbers of a stream are checked. If fewer than `places` streams are checked so far, check
        this one, too."""
        if stream not in self.counted and len(self.counted) < self.places:
            self.counted.append(stream)
        return stream in self.counted

    def forget_unstored(self):
        self.heard, self.said = set(), []

    def standing(self, stream, holes_max):
        """Return the number up to which a stream is acknowledged, and its holes (ranges of missing events) below this
        number."""
        have = {number for s, number in self.stored | self.reported if s == stream}
        holes = []
        for number in range(self.next[stream]):
            if number in have:
                continue
            if holes and sum(holes[-1][1:]) == number:
                holes[-1][2] += 1
            elif len(holes) == holes_max:
                return number, holes
            else:
                holes.append([stream, number, 1])
        return self.next[stream], holes

    def answer(self, id_, holes_max):
        """Return the next answer; None if nothing has changed since the last one."""
        streams, holes = {}, []
        for stream in sorted(self.next):
            standing = self.standing(stream, holes_max)
            if self.asked or standing != self.told.get(stream):
                self.told[stream] = standing
                streams[str(stream)] = standing[0]
                holes += standing[1]
        uncounted = sorted(self.uncounted if self.asked else self.uncounted_news)
        self.uncounted_news = set()
        news = streams or uncounted or self.asked or self.goodbye != self.told.get("goodbye", False)
        self.told["goodbye"] = self.goodbye
        self.asked = False
        fields = {"session": id_, "turn": self.turn, "streams": streams, "holes": holes}
        if uncounted:
            fields["uncounted"] = uncounted
        return option("tailrace.ack", fields | {"goodbye": self.goodbye}) if news else None


class ModelCollector:
    """A collector that receives whole packets, and answers peers that have announced their session."""

    def __init__(self, places=10**6):
        self.sessions = defaultdict(lambda: Session(places))
        self.peer = None
        """The id of the session to which the last packets belong."""

    @property
    def only(self):
        (session,) = self.sessions.values()
        return session

    @property
    def stored(self):
        return self.only.stored if self.sessions else set()

    def take(self, data):
        for packet in packets(data):
            if isinstance(packet, Metadata):
                if packet.name != "epoch":
                    self._hear(packet)
            elif self.peer:
                self.sessions[self.peer].heard.add((packet.stream, packet.counter))

    def _hear(self, packet):
        fields = json.loads(packet.option)
        if packet.name == "tailrace.session":
            self.peer = fields["session"]
        if self.peer:
            self.sessions[self.peer].said.append((packet.name, fields))

    def commit(self):
        for session in self.sessions.values():
            session.commit()

    def kill(self):
        self.peer = None
        for session in self.sessions.values():
            session.forget_unstored()
            session.asked = True

    def answer(self, holes_max):
        """Return the packets to send now; None if there are none."""
        return self.sessions[self.peer].answer(self.peer, holes_max) if self.peer else None


class World:
    """The surroundings of a client: time, random numbers, a collector that may be down, and a network with faults while
    `bad` is set."""

    def __init__(self, rng, places):
        self.rng = rng
        self.now = 100.0
        self.collector = ModelCollector(places)
        self.up = True
        self.bad = True
        self._commit_at = self._answer_at = 0.0

    def clock(self):
        return self.now

    def advance(self, network):
        """Let some time pass, during which the network and the collector work."""
        self.now += self.rng.uniform(0.001, 0.05)
        network.carry()
        if not self.up:
            return
        if self.now >= self._commit_at:
            self._commit_at = self.now + self.rng.uniform(0, 0.2)
            self.collector.commit()
        if self.now >= self._answer_at:
            self._answer_at = self.now + self.rng.uniform(0.02, 0.3)
            if data := self.collector.answer(self.rng.randint(1, 12)):
                network.answer(data)

    def kill(self, network):
        self.up = False
        self.collector.kill()
        network.broken()

    def start(self):
        self.up = True


class _Transport:
    """The client's side of a network, with the interface of `tailrace_client._transport`."""

    packet_max = 65_507
    prompt = True
    is_near = False
    answers = True
    refusal = ""

    def __init__(self, world, chunk_bytes):
        self.world = world
        self.chunk_bytes = chunk_bytes
        self.is_open = False

    def wait(self, *_, **__):
        raise AssertionError("nothing waits in virtual time")

    def finish(self, _):
        self.close()

    def close(self):
        self.is_open = False

    def forked(self):
        raise AssertionError("nobody forks")


class Datagrams(_Transport):
    """A network that loses, duplicates and delays datagrams in both directions, so that they arrive in another order.

    If no process listens, one of the next calls fails.
    """

    datagrams = True

    def __init__(self, world, chunk_bytes):
        super().__init__(world, chunk_bytes)
        self.loss, self.doubling, self.delay = (
            world.rng.choice([0.0, 0.1, 0.3]),
            world.rng.choice([0.0, 0.2]),
            world.rng.choice([0.0, 0.05, 0.5]),
        )
        self.order = count()
        self.there, self.back = [], []
        self.refusals = 0

    def open(self):
        self.is_open = True

    def _launch(self, heap, data):
        rng = self.world.rng
        if not self.world.bad:
            heapq.heappush(heap, (self.world.now + 0.001, next(self.order), data))
            return
        for _ in range(1 + (rng.random() < self.doubling)):
            if rng.random() >= self.loss:
                due = self.world.now + 0.001 + self.delay * rng.random() ** 3
                heapq.heappush(heap, (due, next(self.order), data))

    def _landed(self, heap):
        return heapq.heappop(heap)[2] if heap and heap[0][0] <= self.world.now else None

    def _refuse(self):
        if self.refusals and self.world.rng.random() < 0.7:
            self.refusals = 0
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    def send(self, pieces):
        self._refuse()
        if self.world.bad and self.world.rng.random() < 0.02:
            return 0  # The send buffer is full.
        data = b"".join(pieces)
        self._launch(self.there, data)
        return len(data)

    def receive(self):
        self._refuse()
        return self._landed(self.back) or b""

    def carry(self):
        while (data := self._landed(self.there)) is not None:
            if self.world.up:
                self.world.collector.take(data)
            else:
                self.refusals += 1

    def answer(self, data):
        self._launch(self.back, data)

    def broken(self):
        """Lose the datagrams that have arrived and were not read. Datagrams on their way are not lost."""


class Connections(_Transport):
    """Connections that may break at any time, and then lose the data that is on its way in both directions."""

    datagrams = False

    def __init__(self, world, chunk_bytes):
        super().__init__(world, chunk_bytes)
        self.there, self.back = bytearray(), bytearray()

    def open(self):
        if not self.world.up:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self.there.clear()
        self.back.clear()
        self.reset = False
        self.is_open = True
        self.world.collector.peer = None

    def _check(self):
        if self.reset:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    def send(self, pieces):
        self._check()
        data = b"".join(pieces)
        if self.world.bad:
            data = data[: self.world.rng.choice([0, 7, 100, 1000, 10**6])]
        self.there += data
        return len(data)

    def receive(self):
        if self.reset and not self.back:
            self._check()
        size = self.world.rng.choice([1, 50, 10**6])
        data = bytes(self.back[:size])
        del self.back[:size]
        return data

    def carry(self):
        """Let a part of the sent bytes arrive. The collector reads the whole packets among the bytes that have
        arrived."""
        if not self.is_open or self.reset:
            return
        until = self.world.rng.choice([0, len(self.there)]) if self.world.bad else len(self.there)
        at = 0
        while at + 8 <= until:
            size = int.from_bytes(self.there[at + 4 : at + 8], "big")
            if at + size > until:
                break
            at += size
        self.world.collector.take(bytes(self.there[:at]))
        del self.there[:at]
        if self.world.bad and self.world.rng.random() < 0.02:
            self.broken()

    def answer(self, data):
        if self.is_open and not self.reset:
            self.back += data

    def broken(self):
        if self.is_open:
            self.reset = True
            del self.back[self.world.rng.randint(0, len(self.back)) :]
