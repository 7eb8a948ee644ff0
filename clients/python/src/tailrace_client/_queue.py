"""What is on its way to the collector, and what of it may have to be sent again. Pure: no I/O.

    recorder ─ put ─► new ─┐
               packets ────┼─► under way ─► sent ─► durable: let go
                  again ───┘      ▲           │
                    ▲             └── broken ─┤
                    └────── not durable ──────┘

What is `sent`, or to be sent `again`, is kept until it is durable, as long as there is room; then the oldest is
forgotten. What is new is never forgotten. A chunk that has no number, and every chunk while nothing
is kept (`keep`), is let go once the kernel has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from math import inf

from tailrace_client._chunk import UNNUMBERED, Chunk
from tailrace_client._session import Standing

_PACKET = -2
"""The stream of a session's own packets, which no recorder has counted."""

_OVERHEAD_BYTES = 256
"""What keeping a chunk takes beside its bytes, about."""

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
        return self.chunk.stream == _PACKET


class Queue:
    """Chunks in; pieces for system calls out. One caller at a time."""

    def __init__(self, room: int, release: Callable[[int], None]) -> None:
        """`room`: bytes that may be kept; `release(size)` is told of bytes that are let go."""
        self.keep = True
        self.put_bytes = 0
        """Bytes ever put."""
        self.kept_bytes = 0
        """Bytes that are sent, or to be sent again, and not durable; with what keeping takes."""
        self.in_flight_bytes = 0
        """Those of them that are not to be sent again, as far as is known."""
        self.sent: dict[int, int] = {}
        """By stream, one more than the highest number that the kernel has."""
        self.forgotten: dict[int, int] = {}
        """By stream, one more than the highest number that was forgotten."""
        self._room = room
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
        """A packet of the session, to be sent before all else; it may be there already."""
        if not (self._packets and self._packets[0].chunk.data == data):
            self._packets.appendleft(_Item(Chunk(data, _PACKET, 0, 0), self.put_bytes))

    def packet(self, data: bytes) -> None:
        """A packet of the session, to be sent before any chunk."""
        self._packets.append(_Item(Chunk(data, _PACKET, 0, 0), self.put_bytes))

    def last_packet(self, data: bytes) -> None:
        """A packet of the session, to be sent after all chunks so far."""
        self._new.append(_Item(Chunk(data, _PACKET, 0, 0), self.put_bytes))

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
    def oldest(self) -> float:
        """When that was sent which is not durable for longest; infinity if there is nothing."""
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
            self._let_go(item)
        return [item.chunk for item in lost if item.turn < 0]

    def back(self) -> None:
        """What was offered and not taken is offered anew."""
        for item in reversed(self._under_way):
            again = self._new if item.turn < 0 else self._again
            (self._packets if item.is_packet else again).appendleft(item)
        self._under_way.clear()
        self._part = 0

    def broken(self) -> None:
        """The connection is gone: what was under way goes again, as a whole; packets do not."""
        self.back()
        self._packets.clear()

    def settle(self, standing: Standing, named: Collection[int] = (), before: int = 0) -> bool:
        """Let go of what is durable. What was sent before turn `before` and has not arrived is sent
        again, in its order, as is what is in a hole of a `named` stream; but if that was repeated
        already, it may be on its way. Whether anything was found lost."""
        again: list[_Item] = []
        kept: deque[_Item] = deque()
        for item in self._again:
            if standing.has(*item.chunk[1:]):
                self._let_go(item)
            else:
                again.append(item)
        waiting = len(again)
        for item in self._kept:
            chunk = item.chunk
            if standing.has(*chunk[1:]):
                self._let_go(item)
                continue
            hole = chunk.stream in named and standing.lacks(*chunk[1:])
            if item.turn < before or (hole and not item.repeated):
                item.repeated = True
                again.append(item)
            else:
                kept.append(item)
        self._again = deque(sorted(again, key=lambda item: item.at))
        self._kept = kept
        self.in_flight_bytes = sum(item.room for item in kept)
        return len(again) > waiting

    def forget(self) -> None:
        """Let go of all that was sent before: nobody will ask for it."""
        for item in (*self._kept, *self._again):
            self._let_go(item)
        self._kept.clear()
        self._again.clear()
        self.in_flight_bytes = 0

    def clear(self) -> None:
        """Let go of everything."""
        self.forget()
        for item in (*self._under_way, *self._new):
            self._let_go(item)
        self._under_way.clear()
        self._new.clear()
        self._packets.clear()
        self._part = 0

    def handed(self) -> int:
        """How many of the bytes ever put the kernel has, counted from the first to the first that
        it has not, or is to get again."""
        unsent = (*self._under_way, *self._again, *self._new)
        begins = (item.begin for item in unsent if not item.is_packet)
        return min(begins, default=self.put_bytes)

    def settled(self, standing: Standing) -> int:
        """The same of those that are durable."""
        durable = standing.durable
        if any(durable.get(stream, 0) < number for stream, number in self.forgotten.items()):
            return 0
        return min([self.handed(), *(item.begin for item in self._kept)])

    def unsent(self, *, in_vain: bool = False) -> list[Chunk]:
        """Chunks that the kernel has never got as a whole; if `in_vain`, also those that it is to get
        again."""
        items = (*self._under_way, *self._again, *self._new)
        return [i.chunk for i in items if (in_vain or i.turn < 0) and not i.is_packet]

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
            stream = oldest.chunk.stream
            self.forgotten[stream] = max(oldest.chunk.next, self.forgotten.get(stream, 0))
            self._let_go(oldest)

    def _let_go(self, item: _Item) -> None:
        if item.turn >= 0:
            self.kept_bytes -= item.room
        if not item.is_packet:
            self._release(len(item.chunk.data))
