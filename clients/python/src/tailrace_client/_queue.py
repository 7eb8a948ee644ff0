"""What is on its way to the collector, and what of it may have to be sent again. Pure: no I/O.

    recorder ─ put ─► new ─┐
               packets ────┼─► under way ─► sent ─► durable: let go
                  again ───┘      ▲           │
                    ▲             └── broken ─┤
                    └────── not durable ──────┘

What is `sent`, or to be sent `again`, is kept until an answer calls it durable, as long as there is
room; then the oldest is forgotten (`_forgotten`). What is new is never forgotten. A chunk that has no
number, and every chunk while nothing is kept (`keep`), is let go once the kernel has it.

Places in the order of recording are counted in bytes ever put.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import inf

from tailrace_client._chunk import UNNUMBERED, Chunk
from tailrace_client._forgotten import Forgotten
from tailrace_client._session import Answer, Range

_PACKET, _FIRST, _LAST = -2, -3, -4
"""The streams of a session's own packets, which no recorder has counted."""

_OVERHEAD_BYTES = 256
"""What keeping a chunk takes beside its bytes, about."""

_UNREACHABLE_MAX = 64
"""Ranges at a time; a collector asks again for what it still lacks."""

_PIECES_MAX = 512
"""Buffers in one system call; Linux takes 1024."""


class _Item:
    """A chunk in the queue. `at`: how many bytes had been put before its end. `turn`: that of the
    last announcement before it was sent; -1: not sent yet. `since`: when it was sent last.
    `repeated`: whether it was sent more than once."""

    __slots__ = ("at", "chunk", "repeated", "since", "turn")

    def __init__(self, chunk: Chunk, at: int) -> None:
        self.chunk = chunk
        self.at = at
        self.turn = -1
        self.since = 0.0
        self.repeated = False

    @property
    def begin(self) -> int:
        return self.at - len(self.chunk.data)

    @property
    def room(self) -> int:
        return len(self.chunk.data) + _OVERHEAD_BYTES

    @property
    def is_packet(self) -> bool:
        return self.chunk.stream <= _PACKET


class Queue:
    """Chunks in; pieces for system calls out. One caller at a time."""

    def __init__(self, room: int, release: Callable[[int], None], *, late: int = 0) -> None:
        """`room`: bytes that may be kept; `release(size)` is told of bytes that are let go. `late`: how
        many questions may overtake an event."""
        self.keep = True
        """Whether anybody answers for what is sent."""
        self.put_bytes = 0
        """Bytes ever put."""
        self.kept_bytes = 0
        """Bytes that are sent, or to be sent again, and not durable; with what keeping takes."""
        self.in_flight_bytes = 0
        """Those of them that are not to be sent again, as far as is known."""
        self.sent: dict[int, int] = {}
        """By stream, one more than the highest number that the kernel has."""
        self.forgotten = Forgotten()
        self.lost_at = inf
        """How many bytes had been put before the first event that was put and is lost for good."""
        self._room = room
        self._late = late
        self._release = release
        self._packets: deque[_Item] = deque()
        self._again: deque[_Item] = deque()
        self._new: deque[_Item] = deque()
        self._under_way: deque[_Item] = deque()
        self._part = 0
        """Bytes of the first item under way that the kernel has."""
        self._kept: deque[_Item] = deque()

    def put(self, chunks: Iterable[Chunk]) -> None:
        """Chunks never sent before, to be sent in this order, after all others."""
        for chunk in chunks:
            self.put_bytes += len(chunk.data)
            self._new.append(_Item(chunk, self.put_bytes))

    def first_packet(self, data: bytes) -> None:
        """A packet of the session, to be sent before all else, in place of an earlier one."""
        self._withdraw(_FIRST)
        self._packets.appendleft(self._packet(data, _FIRST))

    def packet(self, data: bytes) -> None:
        """A packet of the session, to be sent before any chunk."""
        self._packets.append(self._packet(data, _PACKET))

    def last_packets(self, packets: Iterable[bytes]) -> None:
        """Send packets of the session after all chunks so far, in place of earlier last packets."""
        self._withdraw(_LAST)
        self._new.extend(self._packet(data, _LAST) for data in packets)

    def _packet(self, data: bytes, stream: int) -> _Item:
        return _Item(Chunk(data, stream, 0, 0), self.put_bytes)

    def _withdraw(self, stream: int) -> None:
        self._packets = deque(item for item in self._packets if item.chunk.stream != stream)
        self._new = deque(item for item in self._new if item.chunk.stream != stream)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send."""
        return not (self._under_way or self._packets or self._again or self._new)

    def pieces(self, size: int, *, only_packets: bool = False) -> list[bytes]:
        """What the kernel is to be offered next: whole chunks of `size` bytes at most together, or
        one alone that is longer. The first lacks what the kernel has of it."""
        under_way = self._under_way
        total = sum(len(item.chunk.data) for item in under_way)
        sources = (self._packets,) if only_packets else (self._packets, self._again, self._new)
        for source in sources:
            while source and len(under_way) < _PIECES_MAX:
                total += len(source[0].chunk.data)
                if total > size and under_way:
                    break
                # In this order: a signal's exception in between repeats a chunk, and loses none.
                under_way.append(source[0])
                source.popleft()
            if source:
                break
        pieces = [item.chunk.data for item in under_way]
        if self._part:
            pieces[0] = pieces[0][self._part :]
        return pieces

    @property
    def speaks(self) -> bool:
        """Whether a packet of the session other than the first is sent next."""
        ahead = (*islice(self._under_way, 1), *islice(self._packets, 2), *islice(self._new, 1))
        return any(item.chunk.stream in (_PACKET, _LAST) for item in ahead)

    @property
    def repeats(self) -> bool:
        """Whether something is sent next that was sent before."""
        return bool(self._again)

    @property
    def waiting_packets(self) -> int:
        """How many packets of the session wait to be sent before any chunk."""
        return len(self._packets)

    @property
    def unsettled(self) -> bool:
        """Whether something was sent of which nobody has said yet what became of it."""
        return self.kept_bytes > 0 or bool(self.forgotten)

    @property
    def oldest(self) -> float:
        """When that was sent which is unsettled for longest, or longer ago; infinity if there is
        nothing."""
        if self.forgotten:
            return 0.0
        return self._kept[0].since if self._kept else inf

    def through(self, size: int, turn: int, now: float) -> None:
        """The kernel took so many bytes of the pieces, after the announcement of `turn`."""
        self._part += size
        under_way = self._under_way
        while under_way and self._part >= len(under_way[0].chunk.data):
            item = under_way[0]
            if not item.is_packet:
                self._keep(item, turn, now)
            self._part -= len(item.chunk.data)
            under_way.popleft()

    def refused(self) -> list[Chunk]:
        """The kernel will never take what is under way: let go of that, and say what it was."""
        lost = [item for item in self._under_way if not item.is_packet]
        self._under_way.clear()
        self._part = 0
        for item in lost:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in lost if item.turn < 0]

    def back(self) -> None:
        """What was offered and not taken is offered anew."""
        for item in reversed(self._under_way):
            early = item.is_packet and item.chunk.stream != _LAST
            again = self._new if item.turn < 0 else self._again
            (self._packets if early else again).appendleft(item)
        self._under_way.clear()
        self._part = 0

    def broken(self) -> None:
        """The connection is gone: what was under way goes again, as a whole; packets do not."""
        self.back()
        self._packets.clear()
        self._withdraw(_LAST)

    def settle(self, answer: Answer) -> tuple[bool, Sequence[Range]]:
        """Let go of what an answer calls durable. Send again, in its order, what was sent before the
        announcement that is answered and has not arrived, and what is in a hole; but if that was
        repeated already, it may be on its way. Return whether anything was found missing, and what
        of it is lost, since it is kept no more."""
        again: list[_Item] = []
        for item in self._again:
            if answer.has(*item.chunk[1:]):
                self._let_go(item)
            else:
                again.append(item)
        waiting = len(again)
        kept: deque[_Item] = deque()
        for item in self._kept:
            chunk = item.chunk
            if answer.has(*chunk[1:]):
                self._let_go(item)
            elif item.turn < answer.turn or (answer.lacks(*chunk[1:]) and not item.repeated):
                item.repeated = True
                again.append(item)
            else:
                kept.append(item)
        self._wait(again, kept)
        lost = self._lost(self.forgotten.settle(answer))
        return len(again) > waiting or bool(lost), lost

    def unreachable(self, answer: Answer) -> list[Range]:
        """Return what of an answer's holes cannot be sent and is not on its way: discarded events, of
        which the collector seems not to know. Of very many, return the first."""
        return list(islice(self._unreachable(answer), _UNREACHABLE_MAX))

    def _unreachable(self, answer: Answer) -> Iterator[Range]:
        for stream, holes in answer.holes.items():
            if stream not in answer.below:
                continue  # what it says of this stream cannot be true
            items = (*self._kept, *self._again, *self._under_way, *self._new)
            ours = [item.chunk[2:] for item in items if item.chunk.stream == stream]
            spans = sorted(ours + self.forgotten.spans(stream))
            for hole in holes:
                yield from _without(hole, spans)

    def repeat(self, before: int) -> None:
        """Send again, in its order, what was sent before the announcement of turn `before`."""
        again = [item for item in self._kept if item.turn < before]
        self._wait([*self._again, *again], deque(i for i in self._kept if i.turn >= before))

    def abandon(self, streams: Collection[int]) -> tuple[Sequence[Chunk], Sequence[Range]]:
        """Let go of what was sent of some streams: nobody will say what became of it. Return the chunks
        that were kept, and what was forgotten."""
        gone = [item for item in (*self._again, *self._kept) if item.chunk.stream in streams]
        if gone:
            again = [item for item in self._again if item.chunk.stream not in streams]
            self._wait(again, deque(i for i in self._kept if i.chunk.stream not in streams))
        for item in gone:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in gone], self._lost(self.forgotten.drop(streams))

    def lose_some(self, stream: int) -> None:
        """Take note that some of what the kernel has of a stream is lost for good: the oldest event of
        which it was not known yet that it had arrived, or a later one."""
        begins = [item.begin for item in (*self._again, *self._kept) if item.chunk.stream == stream]
        begins += [begin for begin, range_ in self.forgotten.all() if range_.stream == stream]
        self.lost_at = min([self.lost_at, *begins])
        if not begins:
            self.lose_handed()

    def lose(self) -> Sequence[Range]:
        """Give up what was forgotten: it is known that nobody got it. Return what that is."""
        lost = self._lost(self.forgotten.all())
        self.forgotten.clear()
        return lost

    def lose_handed(self) -> None:
        """Take note that nobody got the last of what the kernel has, and that nothing of it is kept."""
        if handed := self.handed():
            self.lost_at = min(self.lost_at, handed - 1)

    def clear(self) -> None:
        """Let go of everything."""
        for items in (self._under_way, self._kept, self._again, self._new):
            for item in items:
                self._let_go(item)
            items.clear()
        self._packets.clear()
        self._part = self.in_flight_bytes = 0
        self.forgotten.clear()

    def handed(self) -> int:
        """How many of the bytes ever put the kernel has, counted from the first to the first that
        it has not, or is to get again."""
        unsent = (*self._under_way, *self._again, *self._new)
        begins = (item.begin for item in unsent if not item.is_packet)
        return min(begins, default=self.put_bytes)

    def settled(self) -> float:
        """The same of those of which it is known whether they are durable or lost."""
        return min([self.handed(), self.forgotten.begin, *(item.begin for item in self._kept)])

    def unsent(self) -> list[Chunk]:
        """Return the chunks that the kernel has never got as a whole."""
        items = (*self._under_way, *self._new)
        return [item.chunk for item in items if item.turn < 0 and not item.is_packet]

    def unanswered(self) -> list[Chunk]:
        """Return the chunks that the kernel has got and that are not durable, as far as is known."""
        items = (*self._under_way, *self._again, *self._kept)
        return [item.chunk for item in items if item.turn >= 0]

    def _keep(self, item: _Item, turn: int, now: float) -> None:
        chunk = item.chunk
        self.sent[chunk.stream] = max(chunk.next, self.sent.get(chunk.stream, 0))
        if not self.keep or chunk.stream == UNNUMBERED:
            self._let_go(item)
            return
        if item.turn < 0:
            self.kept_bytes += item.room
        item.turn, item.since = turn, now
        self.in_flight_bytes += item.room
        self._kept.append(item)
        while self.kept_bytes > self._room and self._kept:
            oldest = self._kept.popleft()
            self.in_flight_bytes -= oldest.room
            self.forgotten.add(oldest.chunk, oldest.begin, oldest.turn + self._late)
            self._let_go(oldest)

    def _lost(self, found: Sequence[tuple[int, Range]]) -> Sequence[Range]:
        self.lost_at = min([self.lost_at, *(begin for begin, _ in found)])
        return [missing for _, missing in found]

    def _wait(self, again: list[_Item], kept: deque[_Item]) -> None:
        """What of the items sent is to be sent again, and what waits for an answer."""
        self._again = deque(sorted(again, key=lambda item: item.at))
        self._kept = kept
        self.in_flight_bytes = sum(item.room for item in kept)

    def _let_go(self, item: _Item) -> None:
        if item.turn >= 0:
            self.kept_bytes -= item.room
        if not item.is_packet:
            self._release(len(item.chunk.data))


def _without(hole: Range, spans: Iterable[tuple[int, int]]) -> Iterator[Range]:
    """What is left of a hole without sorted spans."""
    at = hole.first
    for first, next_ in spans:
        if at < min(first, hole.next):
            yield hole._replace(first=at, next=min(first, hole.next))
        at = max(at, next_)
    if at < hole.next:
        yield hole._replace(first=at)
